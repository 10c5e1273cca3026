import { z } from '@hono/zod-openapi'
import { expect, test } from 'vitest'
import * as wire from './wire.ts'
import { writerOf } from './writer.ts'

const schema = z.object({
  network: wire.networkOfChain,
  amount: wire.decimalUsdc.nullable(),
  label: z.string().optional(),
  lines: z.array(z.object({ baseUnits: wire.baseUnits, at: wire.isoSeconds.nullable() })),
  free: z.looseObject({}),
  strict: z.strictObject({ name: z.string() }),
  counts: z.record(z.string(), z.int()),
})
const lines = [
  { baseUnits: 7n, at: 0n, position: 1 },
  { baseUnits: 0n, at: null },
]
const read = {
  network: 8453,
  amount: 50_000n,
  lines,
  free: { any: 'thing' },
  strict: { name: 'a' },
  counts: { a: 1 },
}

test('default: writes values as the schema parses them, without fields that the schema lacks', () => {
  const row = { secret: 'of the row' }
  const written = writerOf(schema)({ ...read, ...row, strict: { ...read.strict, ...row } } as typeof read)
  expect(written).toEqual({
    network: 'base',
    amount: '0.050000',
    lines: [
      { baseUnits: '7', at: '1970-01-01T00:00:00.000Z' },
      { baseUnits: '0', at: null },
    ],
    free: { any: 'thing' },
    strict: { name: 'a' },
    counts: { a: 1 },
  })
  expect(written).toEqual(schema.parse(read))
})

test('behavior: leaves null and undefined unchanged', () => {
  expect(writerOf(schema.nullable())(null)).toBeNull()
  expect(writerOf(schema)({ ...read, amount: null }).amount).toBeNull()
  expect(JSON.stringify(writerOf(z.object({ label: z.string().optional() }))({}))).toBe('{}')
})

test('error: a schema accepts neither null nor undefined for a required value', () => {
  for (const word of [wire.decimalUsdc, wire.baseUnits, wire.isoTime, wire.isoSeconds, wire.integer])
    expect([null, undefined].map((none) => word.safeParse(none).success)).toEqual([false, false])
})
