import { Refusal } from '../refusal.ts'

type Part = string | number | null

/** A page's end, opaque to clients: what list it belongs to, and the position in it. */
export function encodePageCursor(list: string, position: Part[]): string {
  return Buffer.from(JSON.stringify([list, ...position])).toString('base64url')
}

/**
 * Reads a position back with `read`, which throws or gives null for what isn't one.
 *
 * @throws {Refusal} `invalid_cursor` for anything but a cursor of this list.
 */
export function decodePageCursor<T>(
  cursor: string | undefined,
  list: string,
  read: (position: unknown[]) => T | null,
): T | null {
  if (cursor === undefined) return null
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    // Postgres takes no NUL in text.
    if (Array.isArray(parts) && parts[0] === list && !JSON.stringify(parts).includes('\\u0000')) {
      const position = read(parts.slice(1))
      // Only the spelling that we made.
      if (position !== null && encodePageCursor(list, parts.slice(1)) === cursor) return position
    }
  } catch {
    // Not even JSON.
  }
  throw new Refusal('invalid_cursor')
}

/** A time of a cursor: milliseconds since 1970. */
export function readTime(value: unknown): Date | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && Math.abs(value) < 8.64e15
    ? new Date(value)
    : null
}
