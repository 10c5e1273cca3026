import type { Command, CommanderError } from 'commander'

/**
 * Describes a usage error in the form of our other errors: the name of the wrong flag or argument, then the expected and the
 * received value, or a hint on how to get help.
 *
 * Commander reports only a sentence, so this file parses its sentences. A test has one sentence of each kind.
 */
export function describeUsageError(
  program: Command,
  args: readonly string[],
  { message }: CommanderError,
): string {
  const said = message.replace(/^error: /, '')
  const typed = typedCommand(program, args)
  const see = `See \`${typed} --help\``

  const unknown = /^unknown (command|option) '(.*?)'(?:\n\(Did you mean (?:one of )?(.*)\?\))?$/s.exec(said)
  if (unknown) {
    const [, kind = '', name = '', similar] = unknown
    const hint = similar === undefined ? see : `Did you mean ${similar}?`
    return kind === 'option' ? `${name}: unknown option. ${hint}` : `${name}: unknown command. ${hint}`
  }

  const invalid = invalidForms.map((form) => form.exec(said)).find((found) => found !== null)
  if (invalid) {
    const { flags = '', argument, variable, value = '', reason = '' } = invalid.groups ?? {}
    const name = argument === undefined ? (variable ?? longName(flags)) : `<${argument}>`
    return `${name}: ${describeReason(reason, value)}`
  }

  const missing =
    /^required option '(?<flags>.+)' not specified$/.exec(said) ??
    /^option '(?<flags>.+)' argument missing$/.exec(said) ??
    /^missing required argument '(?<argument>.+)'$/.exec(said)
  if (missing) {
    const { flags, argument } = missing.groups ?? {}
    if (argument !== undefined) return `<${argument}>: required. ${see}`
    const needsValue = said.endsWith('argument missing')
    return `${longName(flags ?? '')}: ${needsValue ? 'expected a value' : 'required'}. ${see}`
  }
  return `${said.charAt(0).toLowerCase()}${said.slice(1)} ${see}`
}

/**
 * A value may itself contain quotation marks. So the first three patterns also match the beginning of the reason, as our parsers or Commander write
 * it, to find the end of the value.
 */
const invalidForms = [
  /^option '(?<flags>.+?)' value '(?<value>.*)' from env '(?<variable>\w+)' is invalid\. (?<reason>(?:expected|Allowed choices are) .*)$/s,
  /^option '(?<flags>.+?)' argument '(?<value>.*)' is invalid\. (?<reason>(?:expected|Allowed choices are) .*)$/s,
  /^command-argument value '(?<value>.*)' is invalid for argument '(?<argument>.+?)'\. (?<reason>(?:expected|Allowed choices are) .*)$/s,
  /^option '(?<flags>.+?)' (?:argument|value) '(?<value>.*?)' (?:from env '(?<variable>\w+)' )?is invalid\. (?<reason>.*)$/s,
  /^command-argument value '(?<value>.*?)' is invalid for argument '(?<argument>.+?)'\. (?<reason>.*)$/s,
]

/** @param reason from our parsers, "expected …, got …", or from Commander's list of choices. */
function describeReason(reason: string, value: string): string {
  const [, choices] = /^Allowed choices are (.*)\.$/s.exec(reason) ?? []
  if (choices !== undefined) return `expected one of ${choices}, got ${JSON.stringify(value)}`
  return /\bgot\b/.test(reason) ? reason : `${reason.replace(/\.$/, '')}, got ${JSON.stringify(value)}`
}

function longName(flags: string): string {
  return /--[\w-]+/.exec(flags)?.[0] ?? flags
}

/** Returns the words of the command to which the arguments lead, for a hint that names its help. */
function typedCommand(program: Command, args: readonly string[]): string {
  let command = program
  const words = [program.name()]
  for (const arg of args) {
    const next = command.commands.find((each) => each.name() === arg)
    if (next === undefined) continue
    command = next
    words.push(arg)
  }
  return words.join(' ')
}
