export type CompositeField = string | number | bigint | boolean | null

/** Text that needs no quotes in a row or an array. */
const plain = /^[\w.:/-]+$/

/**
 * Writes rows as the text of an array of a composite type (Postgres' manual, 8.15.6 and 8.16.6), which is read several times as
 * fast as JSON.
 *
 * @param rows each with its fields in the type's order.
 */
export function compositeArray(rows: readonly (readonly CompositeField[])[]): string {
  return `{${rows.map((fields) => `"${escapeQuotes(`(${fields.map(toText).join()})`)}"`).join()}}`
}

function toText(field: CompositeField): string {
  if (field === null) return ''
  const text = String(field)
  return plain.test(text) ? text : `"${escapeQuotes(text)}"`
}

function escapeQuotes(text: string): string {
  return text.replace(/["\\]/g, '\\$&')
}
