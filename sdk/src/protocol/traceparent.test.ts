import { expect, test } from 'vitest'
import { parseTraceparent } from './traceparent.ts'

const [traceId, spanId] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']

test('default: reads the trace id, the span id and the recording flag', () => {
  expect(parseTraceparent(`00-${traceId}-${spanId}-01`)).toEqual({
    traceId,
    spanId,
    flags: 1,
    text: `00-${traceId}-${spanId}-01`,
  })
  expect(parseTraceparent(`00-${traceId}-${spanId}-00`)?.flags).toBe(0)
  expect(parseTraceparent(`00-${'1'.repeat(32)}-${spanId}-00, 00-${traceId}-${spanId}-01`)?.traceId).toBe(
    traceId,
  )
})

test.each([
  ...[undefined, null, '', 'x', `00-${traceId}-${spanId}`, `00-${traceId}-${spanId}-01-extra`],
  ...[`ff-${traceId}-${spanId}-01`, `00-${traceId.toUpperCase()}-${spanId}-01`],
  ...[
    `00-${'0'.repeat(32)}-${spanId}-01`,
    `00-${traceId}-${'0'.repeat(16)}-01`,
    `00-${traceId}0-${spanId}-01`,
  ],
  `00-${traceId}-${spanId}-01\n`.repeat(1_000),
])('error: rejects %j', (header) => {
  expect(parseTraceparent(header)).toBeUndefined()
})
