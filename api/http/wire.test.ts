import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isoOfSeconds, isoTime } from './wire.ts'
import { writerOf } from './writer.ts'

const writeTime = writerOf(isoTime.nullable())

test('default: times have the same format as Date’s ISO strings, for any sequence of days', () => {
  const ms = fc.oneof(
    fc.nat(4_000_000_000_000),
    fc.nat(46_000).map((day) => day * 86_400_000),
    // An authorization may be valid until 2^40 s, in the year 36812.
    fc.integer({ min: 4_000_000_000, max: 2 ** 40 - 1 }).map((seconds) => seconds * 1000),
  )
  fc.assert(
    fc.property(ms, (time) => {
      const date = new Date(time)
      expect(writeTime(date)).toBe(date.toISOString())
      const seconds = Math.floor(time / 1000)
      expect(isoOfSeconds(BigInt(seconds))).toBe(new Date(seconds * 1000).toISOString())
    }),
  )
  expect(writeTime(null)).toBeNull()
})
