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
/** A request for 10 on the first line, which signs 60 and 20 by state 4. */
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
    ['fits its tab', {}, null],
    ['adds a line', { request: { splits: [split('03')] } }, null],
    ['was verified before a line was added', { request: { known: 1, splits: [] } }, null],
    ['was accepted before', { earlier: own }, 'repeated'],
    ['was accepted before the tab was closed', { earlier: own, tab: { closed_at: 'now' } }, 'repeated'],
    ['has the state of another request', { earlier: other }, 'replayed'],
    [
      'has the state of another request on a closed tab',
      { earlier: other, tab: { closed_at: 'now' } },
      'replayed',
    ],
    ['has an unknown tab', { tab: null }, 'unreserved'],
    ['comes after the tab was closed', { tab: { closed_at: 'now' } }, 'closed'],
    [
      'comes after the tab was closed, and has other terms',
      { tab: { closed_at: 'now', chain_id: 1 } },
      'closed',
    ],
    ['names another chain', { request: { chain_id: 1 } }, 'mismatch'],
    ['names another token', { request: { token: bytes('dd', 20) } }, 'mismatch'],
    ['names another contract', { request: { contract: bytes('dd', 20) } }, 'mismatch'],
    ['names another platform', { request: { platform: bytes('dd', 20) } }, 'mismatch'],
    ['names another reward share', { request: { reward_share: 99 } }, 'mismatch'],
    ['names another expiry', { request: { expires_at: 2_000_000_001 } }, 'mismatch'],
    ['knows more lines than there are', { request: { known: 3 } }, 'mismatch'],
    ['has another line at an existing position', { hasOtherLine: true }, 'mismatch'],
  ])('behavior: judges a request that %s', async (_, changes, expected) => {
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
    ['its own state covers', {}, { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n }],
    [
      'its own state signs more for',
      { request: { amounts: [70, 30] } },
      { verdict: null, charged: [60n, 20n], signed: [70n, 30n], total: 80n },
    ],
    [
      'its own state signs too little for',
      { request: { amounts: [59, 20] } },
      { verdict: 'behind', charged: [60n, 20n], signed: [59n, 20n], total: null },
    ],
    [
      'its own state signs too little of another line for',
      { request: { amounts: [60, 19] } },
      { verdict: 'behind', charged: [60n, 20n], signed: [60n, 19n], total: null },
    ],
    [
      'its own state lacks a line for',
      { request: { amounts: [60] } },
      { verdict: 'behind', charged: [60n, 20n], signed: [60n], total: null },
    ],
    [
      'a newer state than its own covers',
      { request: { sequence: 2, amounts: [10] } },
      { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'no newer state covers, since exactly the charges are signed',
      { request: { sequence: 2 }, tab: { signed: null } },
      { verdict: 'behind', charged: [60n, 20n], signed: [50n, 20n], total: null },
    ],
    [
      'the reserved credit covers exactly',
      { tab: { reserved: 80 } },
      { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'the reserved credit is too small for',
      { tab: { reserved: 79 } },
      { verdict: 'unreserved', charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'newly reserved credit covers',
      { tab: { reserved: 79 }, request: { reserved: 80 } },
      { verdict: null, charged: [60n, 20n], signed: [60n, 20n], total: 80n },
    ],
    [
      'opens a line',
      { request: { position: 2, splits: [split('03')], amounts: [50, 20, 10] } },
      { verdict: null, charged: [50n, 20n, 10n], signed: [50n, 20n, 10n], total: 80n },
    ],
    [
      'adds a line after another new one',
      { request: { position: 3, splits: [split('03'), split('04')], amounts: [50, 20, 0, 10] } },
      { verdict: null, charged: [50n, 20n, 0n, 10n], signed: [50n, 20n, 0n, 10n], total: 80n },
    ],
    [
      'adds a line with a credit that pays a part',
      { request: { position: 2, splits: [split('03')], amounts: [50, 20, 6] }, credited: 4 },
      { verdict: null, charged: [50n, 20n, 6n], signed: [50n, 20n, 6n], total: 76n },
    ],
    [
      // The rest of a credit doesn't pay for other lines.
      'opens a line with a credit that pays more',
      { request: { position: 2, splits: [split('03')], amounts: [50, 20, 0] }, credited: 15 },
      { verdict: null, charged: [50n, 20n, -5n], signed: [50n, 20n, 0n], total: 70n },
    ],
    [
      'opens its tab',
      {
        tab: { charged: [], signed: null, sequence: 0, requests: 0, reserved: 10 },
        request: { sequence: 1, known: 0, splits: [split('03')], amounts: [10] },
      },
      { verdict: null, charged: [10n], signed: [10n], total: 10n },
    ],
  ])('behavior: judges a request that %s', async (_, changes, expected) => {
    const [row] = await sql`
      select verdict, charged, signed, total from tabs.judge_amounts(
        jsonb_populate_record(null::tabs.candidate, ${sql.json({ ...request, ...changes.request } as never)}),
        jsonb_populate_record(null::tabs.tab_state, ${sql.json({ ...tab, ...changes.tab } as never)}),
        ${changes.credited ?? 0})`
    expect(row).toEqual(expected)
  })
})
