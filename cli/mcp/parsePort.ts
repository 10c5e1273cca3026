import { port } from '#process/parsers'
import { CliError } from '../cliError.ts'

/** Reads the value of `--http`. */
export function parsePort(text: string): number {
  const parsed = port.parse(text)
  if (parsed !== undefined) return parsed
  throw new CliError('invalid_flags', `--http: expected ${port.expected}, got "${text}"`)
}
