/**
 * Formats one CSV line (RFC 4180) with its line break. Null and undefined become empty cells.
 *
 * If a spreadsheet would read a cell as a formula, the cell gets a leading apostrophe, as OWASP recommends. Amounts aren't affected, because a
 * negative amount has decimals, such as -0.050000.
 */
export function formatCsvLine(cells: readonly (string | number | bigint | null | undefined)[]): string {
  return `${cells.map((cell) => formatCsvCell(String(cell ?? ''))).join(',')}\r\n`
}

function formatCsvCell(text: string): string {
  const isFormula = /^[=+\-@\t\r\n＝＋－＠]/.test(text) && !/^-\d+\.\d+$/.test(text)
  const harmless = isFormula ? `'${text}` : text
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
