import { styleText } from 'node:util'
import { alignColumns } from '@tollkeeper/runtime/alignColumns'

/** Colors a text if standard output is a terminal that supports colors. */
export function paint(format: Parameters<typeof styleText>[0], text: string): string {
  return styleText(format, text, { stream: process.stdout })
}

/** Prints lines for people on standard output; empty lines are left out. */
export function printLines(...lines: readonly string[]): void {
  process.stdout.write(`${lines.filter((line) => line !== '').join('\n')}\n`)
}

/** Prints one JSON value for scripts. A bigint is written as a string, because a number would lose digits. */
export function printJson(value: unknown): void {
  process.stdout.write(
    `${JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? `${each}` : each))}\n`,
  )
}

/** Prints a note for people on standard error, so that standard output contains only the result. */
export function printNote(line: string): void {
  process.stderr.write(`${line}\n`)
}

/** Formats a table. Numeric columns are right-aligned, and color codes don't count as width. */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const [titles, ...lines] = alignColumns(header, rows)
  return [paint('bold', titles), ...lines].join('\n')
}

/** Shortens a hash or an address to its two ends. */
export function shorten(hex: string): string {
  return hex.length > 14 ? `${hex.slice(0, 8)}…${hex.slice(-4)}` : hex
}

/** Removes control characters, which could control the terminal: a provider's name or a URL may contain any. */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, '�')
}
