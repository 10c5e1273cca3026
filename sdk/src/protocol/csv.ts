/**
 * Formats one CSV line (RFC 4180) with its line break. Null and undefined become empty cells.
 *
 * If a spreadsheet would read a cell as a formula, the cell gets a leading apostrophe, as OWASP recommends. A negative amount such as -0.050000 gets
 * none, because a minus sign before a plain decimal number isn't a formula.
 */
export function formatCsvLine(cells: readonly (string | number | bigint | null | undefined)[]): string {
  return `${cells.map((cell) => formatCsvCell(String(cell ?? ''))).join(',')}\r\n`
}

function formatCsvCell(text: string): string {
  const isFormula = /^[=+\-@\t\r\n＝＋－＠]/.test(text) && !/^-\d+\.\d+$/.test(text)
  const harmless = isFormula ? `'${text}` : text
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
