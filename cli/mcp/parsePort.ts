import { port } from '#process/parsers'
import { CliError } from '../cliError.ts'

/** Reads what `--http` says. */
export function parsePort(text: string): number {
  const parsed = port.parse(text)
  if (parsed !== undefined) return parsed
  throw new CliError('invalid_flags', `--http: expected ${port.expected}, got "${text}"`)
}
