import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'

const sql = await useDatabase()

const bytes = (byte: string, length: number) => `\\x${byte.repeat(length)}`
const split = (byte: string) => bytes(byte, 32)

const terms = {
  chain_id: 8453,
  token: bytes('aa', 20),
  contract: bytes('bb', 20),
  platform: bytes('cc', 20),
  reward_share: 100,
  expires_at: 2_000_000_000,
}
/** A tab of two lines, with 50 and 20 charged, and 60 and 20 signed by state 3. */
const tab = {
  ...terms,
  payment_id: 'pay_0',
  closed_at: null,
  reserved: 100,
  requests: 3,
  sequence: 3,
  charged: [50, 20],
  signed: [60, 20],
}
/** A request for 10 on the first line. Its state has the number 4 and signs 60 and 20. */
const request = {
  ...terms,
  request_hash: bytes('01', 16),
  reserved: null,
  sequence: 4,
  amounts: [60, 20],
  position: 0,
  price: 10,
  known: 2,
  splits: [] as string[],
}

describe('judge_terms', () => {
  const own = request.request_hash
  const other = bytes('02', 16)
  type Changes = {
    request?: Record<string, unknown>
    tab?: Record<string, unknown> | null
    earlier?: string
    hasOtherLine?: boolean
  }

  test.each<[string, Changes, string | null]>([
    ['accepts a request that fits its tab', {}, null],
    ['accepts a request that adds a line', { request: { splits: [split('03')] } }, null],
    [
      'accepts a request that was verified before a line was added',
      { request: { known: 1, splits: [] } },
      null,
    ],
    ['returns `repeated` for a request that was accepted before', { earlier: own }, 'repeated'],
    [
      'returns `repeated` for a request that was accepted before the tab was closed',
      { earlier: own, tab: { closed_at: 'now' } },
      'repeated',
    ],
    ['returns `replayed` for a request with the state of another request', { earlier: other }, 'replayed'],
    [
      'returns `replayed` for a request with the state of another request on a closed tab',
      { earlier: other, tab: { closed_at: 'now' } },
      'replayed',
    ],
    ['returns `unreserved` for a request on an unknown tab', { tab: null }, 'unreserved'],
    ['returns `closed` for a request after the tab was closed', { tab: { closed_at: 'now' } }, 'closed'],
    [
      'returns `closed` for a request with other terms after the tab was closed',
      { tab: { closed_at: 'now', chain_id: 1 } },
      'closed',
    ],
    ['returns `mismatch` for another chain', { request: { chain_id: 1 } }, 'mismatch'],
    ['returns `mismatch` for another token', { request: { token: bytes('dd', 20) } }, 'mismatch'],
    ['returns `mismatch` for another contract', { request: { contract: bytes('dd', 20) } }, 'mismatch'],
    ['returns `mismatch` for another platform', { request: { platform: bytes('dd', 20) } }, 'mismatch'],
    ['returns `mismatch` for another reward share', { request: { reward_share: 99 } }, 'mismatch'],
    ['returns `mismatch` for another expiry', { request: { expires_at: 2_000_000_001 } }, 'mismatch'],
    [
      'returns `mismatch` for a request that assumes more lines than the tab has',
      { request: { known: 3 } },
      'mismatch',
    ],
    [
      'returns `mismatch` for a request with another line at an existing position',
      { hasOtherLine: true },
      'mismatch',
    ],
  ])('behavior: %s', async (_, changes, expected) => {
    const asked = { ...request, ...changes.request }
    const found = changes.tab === null ? {} : { ...tab, ...changes.tab }
    const [row] = await sql`
      select tabs.judge_terms(jsonb_populate_record(null::tabs.candidate, ${sql.json(asked as never)}),
        jsonb_populate_record(null::tabs.tab_state, ${sql.json(found as never)}),
        ${changes.earlier ?? null}::text::bytea, ${changes.hasOtherLine ?? false}) as verdict`
    expect(row?.verdict).toBe(expected)
  })
})

describe('judge_amounts', () => {
  type Changes = { request?: Record<string, unknown>; tab?: Record<string, unknown>; credited?: number }
  type Judgment = { verdict: string | null; charged: bigint[]; signed: bigint[]; total: bigint | null }

  test.each<[string, Changes, Judgment]>([
    [
      'accepts a request that its state covers exactly',
      {},
      { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'accepts a request whose state signs more than is charged',
      { request: { amounts: [70, 30] } },
      { verdict: null, charged: [60n, 20n], signed: [70n, 30n], total: 80n },
    ],
    [
      'returns `behind` if the request’s state signs too little on the request’s line',
      { request: { amounts: [59, 20] } },
      { verdict: 'behind', charged: [60n, 20n], signed: [59n, 20n], total: null },
    ],
    [
      'returns `behind` if the request’s state signs too little on another line',
      { request: { amounts: [60, 19] } },
      { verdict: 'behind', charged: [60n, 20n], signed: [60n, 19n], total: null },
    ],
    [
      'returns `behind` if the request’s state lacks a line',
      { request: { amounts: [60] } },
      { verdict: 'behind', charged: [60n, 20n], signed: [60n], total: null },
    ],
    [
      'accepts an older state if the tab’s newest state covers the request',
      { request: { sequence: 2, amounts: [10] } },
      { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'returns `behind` for an older state if the tab’s newest state signs exactly the earlier charges',
      { request: { sequence: 2 }, tab: { signed: null } },
      { verdict: 'behind', charged: [60n, 20n], signed: [50n, 20n], total: null },
    ],
    [
      'accepts a request that the reserved credit covers exactly',
      { tab: { reserved: 80 } },
      { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'returns `unreserved` if the reserved credit is too small',
      { tab: { reserved: 79 } },
      { verdict: 'unreserved', charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'accepts a request that newly reserved credit covers',
      { tab: { reserved: 79 }, request: { reserved: 80 } },
      { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'accepts a request that opens a line',
      { request: { position: 2, splits: [split('03')], amounts: [50, 20, 10] } },
      { verdict: null, charged: [50n, 20n, 10n], signed: [50n, 20n, 10n], total: 80n },
    ],
    [
      'accepts a request that adds a line after another new line',
      { request: { position: 3, splits: [split('03'), split('04')], amounts: [50, 20, 0, 10] } },
      { verdict: null, charged: [50n, 20n, 0n, 10n], signed: [50n, 20n, 0n, 10n], total: 80n },
    ],
    [
      'accepts a request that adds a line whose credit pays a part of the price',
      { request: { position: 2, splits: [split('03')], amounts: [50, 20, 6] }, credited: 4 },
      { verdict: null, charged: [50n, 20n, 6n], signed: [50n, 20n, 6n], total: 76n },
    ],
    [
      // The rest of a credit doesn't pay for other lines.
      'accepts a request that adds a line whose credit exceeds the price',
      { request: { position: 2, splits: [split('03')], amounts: [50, 20, 0] }, credited: 15 },
      { verdict: null, charged: [50n, 20n, -5n], signed: [50n, 20n, 0n], total: 70n },
    ],
    [
      'accepts a request that opens its tab',
      {
        tab: { charged: [], signed: null, sequence: 0, requests: 0, reserved: 10 },
        request: { sequence: 1, known: 0, splits: [split('03')], amounts: [10] },
      },
      { verdict: null, charged: [10n], signed: [10n], total: 10n },
    ],
  ])('behavior: %s', async (_, changes, expected) => {
    const [row] = await sql`
      select verdict, charged, signed, total from tabs.judge_amounts(
        jsonb_populate_record(null::tabs.candidate, ${sql.json({ ...request, ...changes.request } as never)}),
        jsonb_populate_record(null::tabs.tab_state, ${sql.json({ ...tab, ...changes.tab } as never)}),
        ${changes.credited ?? 0})`
    expect(row).toEqual(expected)
  })
})
