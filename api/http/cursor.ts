import { z } from '@hono/zod-openapi'
import { Refusal } from './refusal.ts'

/*
 * Fields of a position in a list. Each admits only values of its column, so that a made-up value is refused
 * here and never becomes an error of Postgres.
 */

/** A `timestamptz`, as milliseconds, in the years that ISO 8601 writes with four digits. */
export const timeField = z.codec(
  z
    .int()
    .min(0)
    .max(Date.UTC(10_000, 0) - 1),
  z.date(),
  {
    decode: (milliseconds) => new Date(milliseconds),
    encode: (time) => time.getTime(),
  },
)

/** An `integer` that is never negative. */
export const integerField = z
  .int()
  .min(0)
  .max(2 ** 31 - 1)

/** A `bigint` that is never negative and that a JSON number holds exactly. */
export const bigintField = z.int().min(0)

/** A `text` of ours: an id, or a value that rows are grouped by. */
export const textField = z
  .string()
  .max(100)
  .regex(/^[ -~]*$/)

/** Where the pages of a list end, as text that is opaque to clients. */
export type Cursor<Position> = {
  /** @param list the list of the cursor, with everything that the order of its rows depends on */
  write(list: string, position: Position): string
  /**
   * @returns null without a cursor: the list is read from its start
   * @throws {Refusal} `invalid_cursor` for anything but a cursor of this list that `write` made
   */
  read(list: string, cursor: string | undefined): Position | null
}

/** @example const positions = createCursor({ createdAt: timeField, id: textField }) */
export function createCursor<Shape extends z.ZodRawShape>(
  fields: Shape,
): Cursor<z.output<z.ZodObject<Shape, z.core.$strict>>> {
  const schema = z.strictObject(fields)

  function write(list: string, position: z.output<typeof schema>): string {
    return Buffer.from(JSON.stringify([list, schema.encode(position)])).toString('base64url')
  }

  return {
    write,
    read(list, cursor) {
      if (cursor === undefined) return null
      const json = parseJson(Buffer.from(cursor, 'base64url').toString('utf8'))
      const position = schema.safeParse(Array.isArray(json) ? json[1] : undefined)
      // Base64 and JSON have many spellings of one value: only ours is taken.
      if (!position.success || write(list, position.data) !== cursor) throw new Refusal('invalid_cursor')
      return position.data
    },
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Cuts a page out of rows. One row more than `limit` was read, which tells whether there is a next page. */
export function cutPage<Row>(found: Row[], limit: number): { page: Row[]; last: Row | null } {
  const page = found.slice(0, limit)
  return { page, last: found.length > limit ? (page.at(-1) ?? null) : null }
}
