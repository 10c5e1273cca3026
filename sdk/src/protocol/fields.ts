import { type ErrorCode, ProtocolError } from './errors.ts'

export const addressPattern = /^0x[0-9a-f]{40}$/
/** A macaroon's text: base64 with padding, or base64url without. */
export const macaroonPattern = /^(?:[A-Za-z0-9_-]{1,4096}|(?=.{1,4096}$)[A-Za-z0-9+/]+={0,2})$/
export const wordPattern = /^0x[0-9a-f]{64}$/
/** A decimal amount of base units, of at most 20 digits. */
export const amountPattern = /^(?:0|[1-9]\d{0,19})$/

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/**
 * Returns a value if it is text, otherwise ''. Use it for untrusted JSON: `String(value)` and templates throw a TypeError if an object's `toString`
 * is not a function.
 */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/**
 * @returns undefined for an invalid URL. `URL.parse` and `URL.canParse` aren't available in Node 20 and React Native.
 */
export function parseUrl(text: string, base?: string): URL | undefined {
  try {
    return new URL(text, base)
  } catch {
    return undefined
  }
}

/** @returns undefined for invalid JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Creates functions that read untrusted JSON field by field. `details.field` of their errors is the rejected field.
 *
 * @param what the start of each message, for example `Receipt`.
 * @param anyText pattern for texts without a specific form.
 */
export function fieldsOf(code: ErrorCode, what: string, anyText = /^/) {
  function invalid(field: string, expected: string, cause?: unknown): ProtocolError {
    const message = `${what}: ${field} must be ${expected}`
    return new ProtocolError(code, message, { details: { field }, cause })
  }

  function object(value: unknown, field: string): Record<string, unknown> {
    if (!isRecord(value)) throw invalid(field, 'an object')
    return value
  }

  /** @param path path of the object that contains the field. */
  function text(parent: Record<string, unknown>, name: string, pattern = anyText, path?: string): string {
    const value = parent[name]
    const field = path ? `${path}.${name}` : name
    if (typeof value !== 'string' || !pattern.test(value)) throw invalid(field, `a string like ${pattern}`)
    return value
  }

  function integer(
    value: unknown,
    field: string,
    [least, most]: [number, number],
    expected?: string,
  ): number {
    if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most)
      throw invalid(field, expected ?? `an integer from ${least} to ${most}`)
    return value
  }

  return { invalid, object, text, integer }
}
