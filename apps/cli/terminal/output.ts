import { styleText } from 'node:util'
import { alignColumns } from '@tollkeeper/runtime/alignColumns'

/** Colours text when standard output is a terminal that supports it. */
export function paint(format: Parameters<typeof styleText>[0], text: string): string {
  return styleText(format, text, { stream: process.stdout })
}

/** Formats a table; numeric columns are right-aligned, and colour codes don't count for widths. */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const [titles, ...lines] = alignColumns(header, rows)
  return [paint('bold', titles), ...lines].join('\n')
}

/** Shortens a hash or an address to its two ends, which tell it apart. */
export function shorten(hex: string): string {
  return hex.length > 14 ? `${hex.slice(0, 8)}…${hex.slice(-4)}` : hex
}

/** Removes control characters: a provider's name or a URL may hold any, and they could steer the terminal. */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, '�')
}
