import { parseText } from '@tollkeeper/runtime/env'
import type { Parser } from '@tollkeeper/runtime/parsers'
import { InvalidArgumentError, Option } from 'commander'
import type { PlayedNetwork } from '../../devstack/stack/stack.ts'
import { CliError } from './cliError.ts'

/** Parses a flag's value outside of {@link parsedOption}. @throws {CliError} that names the flag and the expected value. */
export function readFlag<T>(flag: string, text: string, parser: Parser<T>): T {
  try {
    return parseText(flag, text, parser)
  } catch (error) {
    throw new CliError('invalid_flags', (error as Error).message, error)
  }
}

/** Creates an option whose value is parsed. @param flags in commander's form: `--http <port>`. */
export function parsedOption<T>(flags: string, about: string, parser: Parser<T>): Option {
  return new Option(flags, about).argParser((text: string) => parseValue(text, parser))
}

/**
 * Parses the value of a flag, an argument, or the variable of a flag.
 *
 * @throws {InvalidArgumentError} to which Commander adds the name of the flag.
 */
export function parseValue<T>(text: string, parser: Parser<T>): T {
  const name = 'value'
  try {
    return parseText(name, text, parser)
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message.slice(`${name}: `.length))
  }
}

/** Creates an option like {@link parsedOption} that may be given several times. */
export function repeatedOption<T>(flags: string, about: string, parser: Parser<T>): Option {
  return new Option(flags, about).argParser((text: string, before: T[] = []) => [
    ...before,
    parseValue(text, parser),
  ])
}

export type JsonFlag = { json?: boolean }

/** Creates `--json`, which is the same for every command that prints data. */
export function jsonOption(): Option {
  return new Option('--json', 'print JSON, for scripts')
}

/**
 * Creates the option for the network that a local chain simulates. It doesn't use the devstack's list, because `--help` would
 * have to load that code.
 */
export function playedNetworkOption(): Option {
  const names = ['base-sepolia', 'localhost'] satisfies PlayedNetwork[]
  return new Option('--network <name>', 'the network that the chain simulates')
    .choices(names)
    .default(names[0])
}

/** Parses a day or a time, and returns it unchanged. */
export const timeText: Parser<string> = {
  expected: 'a day like 2026-11-21 or a time like 2026-11-21T13:00:00Z',
  parse(value) {
    const isDay = /^\d{4}-\d\d-\d\d$/.test(value)
    const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value)
    if (!(isDay || isTime) || Number.isNaN(Date.parse(value))) return undefined
    // Needed because Date.parse reads 2026-02-30 as March 2nd.
    if (isDay && !new Date(value).toISOString().startsWith(value)) return undefined
    return value
  },
}

/** Parses a URL to request. */
export const httpUrl: Parser<string> = {
  expected: 'an http(s) URL like https://api.example/forecast',
  parse: (value) => (/^https?:$/.test(URL.parse(value)?.protocol ?? '') ? value : undefined),
}
