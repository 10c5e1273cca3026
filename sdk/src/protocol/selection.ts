import { isOfAnotherScheme } from './authorizationHeader.ts'

/**
 * Request headers that select which representation of a resource, or which part of it, is returned (RFC 9110 sections 12 to 14). `Accept-Encoding` is
 * not among them, because the content is the same in any encoding.
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
 * Returns the values of a request's selecting headers, to compare requests. Includes `Authorization`, because a response for one caller isn't meant
 * for another. Omits an `Authorization` that contains the payment itself.
 *
 * @param get returns a header by its lower-case name.
 */
export function selectionOf(get: (name: string) => string | null | undefined): string {
  const login = get('authorization') ?? ''
  return [...selectingHeaders.map((name) => chosenBy(get(name))), isOfAnotherScheme(login) ? login : ''].join(
    '\n',
  )
}

/** Returns the value of a header. A missing header gives the same value as a header that accepts anything. */
function chosenBy(value: string | null | undefined): string {
  return !value || /^\*(?:\/\*)?$/.test(value.trim()) ? '' : value
}
