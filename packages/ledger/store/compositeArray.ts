export type CompositeField = string | number | bigint | boolean | null

/** Text that needs no quotes in a row or an array. */
const plain = /^[\w.:/-]+$/
const special = /["\\]/

/**
 * Formats rows as the text of an array of a composite type (Postgres manual, 8.15.6 and 8.16.6), which Postgres parses several times as
 * fast as JSON.
 *
 * @param rows the fields of each row, in the type's order.
 */
export function compositeArray(rows: readonly (readonly CompositeField[])[]): string {
  return `{${rows.map((fields) => `"${escapeQuotes(`(${fields.map(toText).join()})`)}"`).join()}}`
}

function toText(field: CompositeField): string {
  if (field === null) return ''
  if (typeof field !== 'string') return String(field)
  return plain.test(field) ? field : `"${escapeQuotes(field)}"`
}

function escapeQuotes(text: string): string {
  return special.test(text) ? text.replaceAll(/["\\]/g, '\\$&') : text
}
