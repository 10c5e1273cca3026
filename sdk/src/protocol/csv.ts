/**
 * Formats one CSV line (RFC 4180) with its line break. Null and undefined become empty cells.
 *
 * A cell that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP advises. Numbers aren't affected,
 * because our amounts are never negative.
 */
export function formatCsvLine(cells: readonly (string | number | bigint | null | undefined)[]): string {
  return `${cells.map((cell) => formatCsvCell(String(cell ?? ''))).join(',')}\r\n`
}

function formatCsvCell(text: string): string {
  const harmless = /^[=+\-@\t\r\n＝＋－＠]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
