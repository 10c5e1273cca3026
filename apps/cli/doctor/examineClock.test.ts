import { describe, expect, test } from 'vitest'
import { type ClockReading, examineClock, readBlockTime, readDateHeader } from './examineClock.ts'

const now = Date.parse('2026-11-29T12:00:00.400Z')
/** Returns a reading of a clock that is this far ahead of this host's clock; negative: behind. */
const reading = (source: string, theirsAheadMs: number): ClockReading => ({
  source,
  leastAheadMs: -theirsAheadMs - 5,
  mostAheadMs: -theirsAheadMs + 5,
})

describe('Date headers', () => {
  // The `Date` header has whole seconds, and the server wrote it at some point during the request, which took 200 ms.
  test.each([
    ['the same second', 'Sun, 29 Nov 2026 12:00:00 GMT', 'ok', /within a second/],
    [
      'the previous second, in which the header may have been written',
      'Sun, 29 Nov 2026 11:59:59 GMT',
      'ok',
      /within/,
    ],
    ['a minute ago', 'Sun, 29 Nov 2026 11:59:00 GMT', 'fail', /^58\.|^5[89] s ahead of node/],
    ['ten seconds ahead', 'Sun, 29 Nov 2026 12:00:10 GMT', 'warn', /^9\.4 s behind node/],
  ])('behavior: compares a header of %s', (_, header, status, found) => {
    const readings = readDateHeader('node', header, { sentAt: now, receivedAt: now + 200 })
    expect(examineClock(readings)).toMatchObject({ status, found: expect.stringMatching(found) })
  })

  test.each([null, '', 'soon'])('error: ignores the header %s', (header) => {
    expect(readDateHeader('node', header, { sentAt: now, receivedAt: now })).toEqual([])
  })
})

describe('blocks', () => {
  const block = (aheadSeconds: number) =>
    examineClock(readBlockTime('a block', BigInt(Math.floor(now / 1000) + aheadSeconds), now))

  test('behavior: ignores an old block, and accepts a block that is dated a few seconds ahead', () => {
    for (const seconds of [-600, 0, 10]) expect(block(seconds).status).toBe('ok')
  })

  test('behavior: reports that our clock is behind if a block is from the future', () => {
    expect(block(20)).toMatchObject({ status: 'warn', found: expect.stringMatching(/^20 s behind a block/) })
    expect(block(600)).toMatchObject({
      status: 'fail',
      advice: expect.stringMatching(/NTP.*too shortly before they expire/),
    })
  })
})

describe('the host whose clock the advice corrects', () => {
  test('behavior: is this host if all other clocks agree with each other; the advice then names the consequences', () => {
    const ahead = [reading('the database', -90_000), reading('node 1', -90_000), reading('node 2', -90_000)]
    expect(examineClock(ahead)).toMatchObject({
      status: 'fail',
      advice: expect.stringMatching(/of this host by NTP.*macaroon_expired/),
    })
  })

  test('behavior: is the host of the database if only the database disagrees', () => {
    const readings = [reading('the database', 3_000), reading('node 1', 0), reading('node 2', 0)]
    expect(examineClock(readings)).toMatchObject({
      status: 'warn',
      found: '3.0 s behind the database',
      advice: expect.stringMatching(/of the host of the database by NTP.*leases/),
    })
  })

  test('default: is no host if the difference is below a second, or if there is no other clock', () => {
    expect(examineClock([reading('the database', 990)])).toMatchObject({ status: 'ok' })
    expect(examineClock([reading('the database', 1_010)])).toMatchObject({ status: 'warn' })
    expect(examineClock([])).toMatchObject({ status: 'skip' })
  })
})
