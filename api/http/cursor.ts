import { z } from '@hono/zod-openapi'
import { Refusal } from './refusal.ts'

/*
 * Fields of a position in a list. Each accepts only values of its column, so that an invented value is refused here and never becomes an
 * error of Postgres.
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
export const bigintField = z.codec(z.int().min(0), z.bigint(), { decode: BigInt, encode: Number })

/** A whole number of any size that is never negative, such as a sum in base units. */
export const wholeField = z.codec(z.string().regex(/^\d{1,30}$/), z.bigint(), {
  decode: BigInt,
  encode: String,
})

/** A column of type `text` whose values we created, so they are short and ASCII: an id, or a value by which rows are grouped. */
export const textField = z
  .string()
  .max(100)
  .regex(/^[ -~]*$/)

/**
 * Converts the position at which a page ends to text that is opaque to clients, and back. `list` consists of the list's name and of everything
 * else that determines the order of its rows.
 */
export type Cursor<Position> = {
  write(list: string, position: Position): string
  /**
   * @returns null without a cursor: the list is read from its start
   * @throws {Refusal} `invalid_cursor` unless the cursor was made by `write` for this list
   */
  read(list: string, cursor: string | undefined): Position | null
  /**
   * Reads a page, and one more row that shows whether there is a next page. Each row contains the fields of `Position`, so the page's last row gives
   * the cursor.
   */
  page<Row extends Position>(
    list: string,
    asked: { cursor?: string | undefined; limit: number },
    readRows: (page: { after: Position | null; limit: number }) => Promise<Row[]>,
  ): Promise<{ rows: Row[]; cursor: string | null }>
}

/** @example const positions = createCursor({ createdAt: timeField, id: textField }) */
export function createCursor<Shape extends z.ZodRawShape>(
  fields: Shape,
): Cursor<z.output<z.ZodObject<Shape>>> {
  type Position = z.output<z.ZodObject<Shape>>
  const schema = z.object(fields)

  function write(list: string, position: Position): string {
    return Buffer.from(JSON.stringify([list, schema.encode(position)])).toString('base64url')
  }

  function read(list: string, cursor: string | undefined): Position | null {
    if (cursor === undefined) return null
    const json = parseJson(Buffer.from(cursor, 'base64url').toString('utf8'))
    const position = schema.safeParse(Array.isArray(json) ? json[1] : undefined)
    // Base64 and JSON can write one value in several ways. Only the text that `write` returns is accepted.
    if (!position.success || write(list, position.data) !== cursor) throw new Refusal('invalid_cursor')
    return position.data
  }

  return {
    write,
    read,
    async page(list, { cursor, limit }, readRows) {
      const found = await readRows({ after: read(list, cursor), limit: limit + 1 })
      const rows = found.slice(0, limit)
      const last = found.length > limit ? rows.at(-1) : undefined
      return { rows, cursor: last === undefined ? null : write(list, last) }
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
