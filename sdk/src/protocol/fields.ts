import { type ErrorCode, ProtocolError } from './errors.ts'

export const addressPattern = /^0x[0-9a-f]{40}$/
/** A macaroon's text: base64 with padding, or base64url without. */
export const macaroonPattern = /^(?:[A-Za-z0-9_-]{1,4096}|(?=.{1,4096}$)[A-Za-z0-9+/]+={0,2})$/
export const wordPattern = /^0x[0-9a-f]{64}$/
/** Base units, decimal, of at most 20 digits. */
export const amountPattern = /^(?:0|[1-9]\d{0,19})$/

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/**
 * Returns a value that is text, and '' for anything else. On a stranger's JSON, `String(value)` and templates throw a TypeError for an
 * object whose `toString` is no function.
 */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** @returns undefined for what isn't a URL. Neither `URL.parse` nor `URL.canParse` is everywhere: Node 20 and React Native. */
export function parseUrl(text: string, base?: string): URL | undefined {
  try {
    return new URL(text, base)
  } catch {
    return undefined
  }
}

/** @returns undefined for what isn't JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Reads JSON of a stranger's, field by field. What is refused is named in `details.field`.
 *
 * @param what begins the message: `Receipt`.
 * @param anyText a text whose form isn't known.
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

  /** @param path of the object that the field is in. */
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
