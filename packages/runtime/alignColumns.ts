/** Returns the lines of a table, its header first, with columns of equal width and right-aligned numbers. */
export function alignColumns(
  header: readonly string[],
  rows: readonly (readonly string[])[],
): [header: string, ...rows: string[]] {
  const isNumeric = header.map((_, column) => rows.every((row) => /^-?[\d.,]*$/.test(row[column] ?? '')))
  const widths = header.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)),
  )
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => {
        const width = widths[column] ?? 0
        return isNumeric[column] ? cell.padStart(width) : cell.padEnd(width)
      })
      .join('  ')
      .trimEnd()
  return [line(header), ...rows.map(line)]
}
