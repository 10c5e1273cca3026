/**
 * Request headers that choose which representation of a resource, or which part of it, is the answer (RFC 9110 sections 12 to 14). Not
 * `Accept-Encoding`: the answer is the same in any encoding.
 */
const selectingHeaders = [
  'accept',
  'accept-language',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'range',
]

/**
 * Returns the values of a request's selecting headers, to compare requests by.
 *
 * @param get by a lower-case name.
 */
export function selectionOf(get: (name: string) => string | null | undefined): string {
  return selectingHeaders.map((name) => chosenBy(get(name))).join('\n')
}

/** A header's choice. Some clients say that they take anything, and others say nothing. */
function chosenBy(value: string | null | undefined): string {
  return !value || /^\*(?:\/\*)?$/.test(value.trim()) ? '' : value
}
