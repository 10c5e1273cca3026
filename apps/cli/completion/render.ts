import type { DescribedCommand, DescribedFlag } from './describe.ts'

export const shells = ['bash', 'zsh', 'fish'] as const

/** Renders the completion script of a shell. */
export function renderCompletion(
  shell: (typeof shells)[number],
  commands: readonly DescribedCommand[],
): string {
  return { bash: renderBash, zsh: renderZsh, fish: renderFish }[shell](commands)
}

/** Quotes a text for all three shells: none of them expands text in single quotes. */
function quote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

/** The key of a command in the scripts: `/provider/wallet`. */
const keyOf = ({ path }: DescribedCommand) => path.map((word) => `/${word}`).join('')

const wordsOf = ({ commands, flags, choices }: DescribedCommand) => [
  ...commands.map(({ name }) => name),
  ...choices,
  ...flags.flatMap(({ names }) => names),
]

/**
 * Returns the branches of a shell `case` statement that complete the values of flags. Each command has one branch for each of
 * its flags that takes a value.
 */
function valueBranches(
  commands: readonly DescribedCommand[],
  render: (flag: DescribedFlag) => string,
): string[] {
  return commands.flatMap((command) =>
    command.flags
      .filter(({ takesValue }) => takesValue)
      .map(
        (flag) =>
          `    ${flag.names.map((name) => quote(`${keyOf(command)} ${name}`)).join('|')}) ${render(flag)} ;;`,
      ),
  )
}

function renderBash(commands: readonly DescribedCommand[]): string {
  const subcommands = commands
    .filter((command) => command.commands.length > 0)
    .map(
      (command) =>
        `    ${quote(keyOf(command))}) echo ${quote(command.commands.map(({ name }) => name).join(' '))} ;;`,
    )
  const words = commands.map(
    (command) => `    ${quote(keyOf(command))}) echo ${quote(wordsOf(command).join(' '))} ;;`,
  )
  const values = valueBranches(
    commands,
    ({ choices }) => `echo ${quote(choices.length > 0 ? choices.join(' ') : '@file')}`,
  )
  return `# Completion for tollkeeper in bash, made by \`tollkeeper completion bash\`.
_tollkeeper_commands() {
  case "$1" in
${subcommands.join('\n')}
  esac
}
_tollkeeper_words() {
  case "$1" in
${words.join('\n')}
  esac
}
_tollkeeper_values() {
  case "$1 $2" in
${values.join('\n')}
  esac
}
_tollkeeper() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" at='' word values
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case " $(_tollkeeper_commands "$at") " in *" $word "*) at="$at/$word" ;; esac
  done
  values="$(_tollkeeper_values "$at" "$previous")"
  if [ "$values" = '@file' ]; then
    COMPREPLY=($(compgen -f -- "$current"))
  else
    COMPREPLY=($(compgen -W "\${values:-$(_tollkeeper_words "$at")}" -- "$current"))
  fi
}
complete -F _tollkeeper tollkeeper
`
}

function renderZsh(commands: readonly DescribedCommand[]): string {
  const describe = (name: string, about: string) => quote(`${name}:${about.replaceAll('\n', ' ')}`)
  const subcommands = commands
    .filter((command) => command.commands.length > 0)
    .map(
      (command) =>
        `    ${quote(keyOf(command))}) names=(${command.commands.map(({ name }) => name).join(' ')}) ;;`,
    )
  const words = commands.map((command) => {
    const items = [
      ...command.commands.map(({ name, about }) => describe(name, about)),
      ...command.choices.map(quote),
      ...command.flags.flatMap(({ names, about }) => names.map((name) => describe(name, about))),
    ]
    return `    ${quote(keyOf(command))}) items=(${items.join(' ')}) ;;`
  })
  const values = valueBranches(commands, ({ choices }) =>
    choices.length > 0 ? `compadd -- ${choices.map(quote).join(' ')}; return` : '_files; return',
  )
  return `#compdef tollkeeper
# Completion for tollkeeper in zsh, made by \`tollkeeper completion zsh\`.
_tollkeeper_commands() {
  names=()
  case "$1" in
${subcommands.join('\n')}
  esac
}
_tollkeeper() {
  local at='' word
  local -a names items
  for word in "\${(@)words[2,CURRENT-1]}"; do
    _tollkeeper_commands "$at"
    if (( \${names[(Ie)$word]} )); then at="$at/$word"; fi
  done
  case "$at \${words[CURRENT-1]}" in
${values.join('\n')}
  esac
  case "$at" in
${words.join('\n')}
  esac
  _describe -V tollkeeper items
}
compdef _tollkeeper tollkeeper
`
}

function renderFish(commands: readonly DescribedCommand[]): string {
  const subcommands = commands
    .filter((command) => command.commands.length > 0)
    .map(
      (command) =>
        `    case ${quote(keyOf(command))}\n      string split ' ' -- ${quote(command.commands.map(({ name }) => name).join(' '))}`,
    )
  const lines = commands.flatMap((command) => {
    const complete = (rest: string) =>
      `complete -c tollkeeper -n ${quote(`__tollkeeper_at "${keyOf(command)}"`)} ${rest}`
    const about = (text: string) => `-d ${quote(text.replaceAll('\n', ' '))}`
    return [
      ...command.commands.map(({ name, about: text }) => complete(`-f -a ${quote(name)} ${about(text)}`)),
      ...command.choices.map((choice) => complete(`-f -a ${quote(choice)}`)),
      ...command.flags.map(({ names, about: text, takesValue, choices }) => {
        const flags = names.map((name) =>
          name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
        )
        const value = choices.length > 0 ? `-x -a ${quote(choices.join(' '))} ` : takesValue ? '-r ' : ''
        return complete(`${flags.join(' ')} ${value}${about(text)}`)
      }),
    ]
  })
  return `# Completion for tollkeeper in fish, made by \`tollkeeper completion fish\`.
function __tollkeeper_commands
  switch "$argv[1]"
${subcommands.join('\n')}
  end
end
function __tollkeeper_at
  set -l at ''
  for word in (commandline -opc)[2..]
    if contains -- $word (__tollkeeper_commands "$at")
      set at "$at/$word"
    end
  end
  test "$at" = "$argv[1]"
end
${lines.join('\n')}
`
}
