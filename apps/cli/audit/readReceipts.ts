import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { tabLineType } from '@tollkeeper/sdk/protocol/tabLine'
import { CliError } from '../terminal/cliError.ts'

/** A receipt or a tab line, with its line number in the input. */
export type ReceiptLine = { jws: string; line: number }

/** The receipts and tab lines in a file. */
export type ReceiptLines = { receipts: ReceiptLine[]; tabLines: ReceiptLine[] }

/**
 * Reads receipts and tab lines, one per line. A line is the JWS itself, a JSON string of it, or an object with the JWS in
 * `receipt` or `tabLine`, as returned by `GET /receipts/{id}`, by the list of a provider's receipts, and by the middleware. Any
 * other line is passed on, and the audit reports it as forged.
 *
 * @param path `-` is standard input.
 */
export async function readReceipts(path: string): Promise<ReceiptLines> {
  const content = path === '-' ? await text(process.stdin) : await readText('--receipts', path)
  const lines = content
    .split('\n')
    .map((line, index) => ({ ...parseLine(line.trim()), line: index + 1 }))
    .filter(({ jws }) => jws !== '')
  const only = (isWanted: boolean) =>
    lines.flatMap(({ jws, line, isTabLine }) => (isTabLine === isWanted ? { jws, line } : []))
  return { receipts: only(false), tabLines: only(true) }
}

function parseLine(line: string): { jws: string; isTabLine: boolean } {
  if (!/^["{]/.test(line)) return { jws: line, isTabLine: isTabLine(line) }
  try {
    const json: unknown = JSON.parse(line)
    if (typeof json === 'string') return { jws: json, isTabLine: isTabLine(json) }
    const { receipt, tabLine } = json as { receipt?: unknown; tabLine?: unknown }
    if (typeof tabLine === 'string') return { jws: tabLine, isTabLine: true }
    return { jws: typeof receipt === 'string' ? receipt : line, isTabLine: false }
  } catch {
    return { jws: line, isTabLine: false }
  }
}

/** Reads the type from the JWS header. The JWS's signature is verified later. */
function isTabLine(jws: string): boolean {
  try {
    return JSON.parse(Buffer.from(jws.split('.')[0] ?? '', 'base64url').toString()).typ === tabLineType
  } catch {
    return false
  }
}

/** Reads a file. @throws {CliError} `code`, with a message that names the flag, if the file can't be read. */
export function readText(flag: string, path: string, code = 'unreadable_file'): Promise<string> {
  return readFile(path, 'utf8').catch((error: Error) => {
    throw new CliError(code, `${flag}: ${path} can't be read: ${error.message}`, error)
  })
}
