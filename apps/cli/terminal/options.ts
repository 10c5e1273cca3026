import { parseText } from '@tollkeeper/runtime/env'
import type { Parser } from '@tollkeeper/runtime/parsers'
import { Option } from 'commander'
import type { PlayedNetwork } from '../../devstack/stack/stack.ts'
import { CliError } from './cliError.ts'

/** Reads what a flag says by the parser of a variable. @throws {CliError} that names the flag and what was expected. */
export function readFlag<T>(flag: string, text: string, parser: Parser<T>): T {
  try {
    return parseText(flag, text, parser)
  } catch (error) {
    throw new CliError('invalid_flags', (error as Error).message, error)
  }
}

/** @param flags as commander has them: `--http <port>`. */
export function parsedOption<T>(flags: string, about: string, parser: Parser<T>): Option {
  const [flag = ''] = flags.split(' ')
  return new Option(flags, about).argParser((text: string) => readFlag(flag, text, parser))
}

/** The same for a flag that may be given several times. */
export function repeatedOption<T>(flags: string, about: string, parser: Parser<T>): Option {
  const [flag = ''] = flags.split(' ')
  return new Option(flags, about).argParser((text: string, before: T[] = []) => [
    ...before,
    readFlag(flag, text, parser),
  ])
}

/** Which network a local chain is. Not the stack's own list: `--help` would load all of it. */
export function playedNetworkOption(): Option {
  const names = ['base-sepolia', 'localhost'] satisfies PlayedNetwork[]
  return new Option('--network <name>', 'the network that the chain plays').choices(names).default(names[0])
}
