import type { Command, Option } from 'commander'

/** A command, and the words that can follow it. */
export type DescribedCommand = {
  /** The words after `tollkeeper`; none for the program itself. */
  path: string[]
  commands: { name: string; about: string }[]
  flags: DescribedFlag[]
  /** Values of the first argument, if they are a fixed set. */
  choices: readonly string[]
}

export type DescribedFlag = {
  names: string[]
  about: string
  takesValue: boolean
  /** The flag's values, if they are a fixed set. */
  choices: readonly string[]
}

/** Describes a program: every command and group, with the words that lead to it. */
export function describeProgram(program: Command): DescribedCommand[] {
  const shared = program.options.map(toFlag)
  return walk(program, [], shared)
}

function walk(command: Command, path: string[], shared: DescribedFlag[]): DescribedCommand[] {
  // The name of a group's default command may be omitted. The flags of the default command can then follow the group's name.
  const byDefault = command.commands
    .filter((each) => isDefault(command, each))
    .flatMap(({ options }) => options)
  const own = path.length === 0 ? [] : [...command.options, ...byDefault].map(toFlag)
  const commands = command.commands.map((each) => ({
    name: each.name(),
    about: each.summary() || each.description(),
  }))
  const described: DescribedCommand = {
    path,
    commands,
    flags: [...own, helpFlag, ...shared],
    choices: command.registeredArguments[0]?.argChoices ?? [],
  }
  return [described, ...command.commands.flatMap((each) => walk(each, [...path, each.name()], shared))]
}

const helpFlag: DescribedFlag = {
  names: ['--help'],
  about: 'print this help',
  takesValue: false,
  choices: [],
}

function toFlag({ short, long, description, required, optional, argChoices = [] }: Option): DescribedFlag {
  const names = [short, long].filter((name) => name !== undefined)
  return { names, about: description, takesValue: required || optional, choices: argChoices }
}

/** Commander doesn't expose the name of a group's default command. */
function isDefault(group: Command, command: Command): boolean {
  return (group as unknown as { _defaultCommandName?: string })._defaultCommandName === command.name()
}
