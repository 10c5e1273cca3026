import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { CliError } from '../terminal/cliError.ts'

/** A receipt and its place in the input. */
export type ReceiptLine = { jws: string; line: number }

/**
 * Reads receipts, one a line: the JWS itself, a JSON string of it, or an object with it as `receipt`, as
 * `GET /receipts/{id}` and the middleware give it. Anything else is passed on, and the audit reports it as forged.
 *
 * @param path `-` is standard input.
 */
export async function readReceipts(path: string): Promise<ReceiptLine[]> {
  const content = path === '-' ? await text(process.stdin) : await readText('--receipts', path)
  return content
    .split('\n')
    .map((line, index) => ({ jws: parseLine(line.trim()), line: index + 1 }))
    .filter(({ jws }) => jws !== '')
}

function parseLine(line: string): string {
  if (!/^["{]/.test(line)) return line
  try {
    const json: unknown = JSON.parse(line)
    if (typeof json === 'string') return json
    const { receipt } = json as { receipt?: unknown }
    return typeof receipt === 'string' ? receipt : line
  } catch {
    return line
  }
}

/** @throws {CliError} with this code, naming the flag. */
export function readText(flag: string, path: string, code = 'unreadable_file'): Promise<string> {
  return readFile(path, 'utf8').catch((error: Error) => {
    throw new CliError(code, `${flag}: ${path} can't be read: ${error.message}`, error)
  })
}
