import type { GasPrices } from '@tollkeeper/chain/gasShares'
import type { DueBatch } from '@tollkeeper/ledger/queue/dueBatches'
import type { Lane } from '@tollkeeper/ledger/queue/lanes'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { createFeeCoveredPolicy } from '../settler/gasPolicy.ts'
import { planClaims, type QueueSnapshot } from './choose.ts'

const now = new Date('2026-11-23T12:00:00Z')
const platform: Address = `0x${'fe'.repeat(20)}`
const group = { id: 1, chainId: 31_337, token: `0x${'ab'.repeat(20)}`, feeRecipient: platform } as const
const policy = createFeeCoveredPolicy({ maxFeePerGas: 100n, gasPerFee: 10n })
/** Gas that costs nothing. */
const free: GasPrices = { baseFeePerGas: 1n, expected: 0n, most: 0n, dataFee: 0n, usdPerToken: 0n }
/** A payment's gas costs several cents. */
const expensive: GasPrices = {
  baseFeePerGas: 1n,
  expected: 100_000_000n,
  most: 100_000_000n,
  dataFee: 0n,
  usdPerToken: 3_000_000_000n,
}

const payment = (id: string, change: Partial<QueuedPayment> = {}): QueuedPayment => ({
  id,
  recipient: `0x${'11'.repeat(20)}`,
  isPair: false,
  isRefund: false,
  tab: null,
  hasCode: false,
  acceptedAt: now,
  fee: 2_500n,
  isSold: true,
  gasLeft: 0n,
  urgentAt: BigInt(now.getTime() / 1000) + 86_100n,
  ...change,
})

const due = (lane: Lane, ...payments: QueuedPayment[]): DueBatch => ({
  lane,
  group,
  trigger: lane === 'direct' ? 'direct' : 'time',
  payments,
})

const snapshot = (change: Partial<QueueSnapshot> = {}): QueueSnapshot => ({
  due: [],
  blocked: new Set(),
  prices: free,
  waitingSplitters: new Map(),
  turns: [],
  isGathering: false,
  pairAloneAt: 0,
  now,
  ...change,
})

const pair = (id: string) => payment(id, { isPair: true })
const cheap = (id: string) => payment(id, { fee: 10n })
const urgent = (id: string) => payment(id, { fee: 10n, urgentAt: 0n })
const unpaid = (id: string) => payment(id, { fee: 0n, isSold: false })
const code = (id: string) => payment(id, { hasCode: true })
const wallets = (count: number) =>
  Array.from({ length: count }, (_, index) =>
    payment(`p${index}`, { recipient: `0x${index.toString(16).padStart(40, '0')}` }),
  )

/** A plan in words: the lane, its payments, and which of them wait or draw. */
function describePlans(change: Partial<QueueSnapshot>): unknown[] {
  return [...planClaims(snapshot(change), policy)].map((plan) => {
    const { due, payments, gas, isPairAlone } = plan
    const idsWhere = (is: (index: number) => unknown) =>
      payments.filter((_, index) => is(index)).map(({ id }) => id)
    const held = idsWhere((index) => gas.holds[index])
    const drawing = idsWhere((index) => gas.draws.some(({ positions }) => positions.includes(index)))
    return {
      claim: due.lane,
      ids: payments.map(({ id }) => id),
      ...(held.length > 0 && { held }),
      ...(drawing.length > 0 && { drawing }),
      ...(isPairAlone && { isPairAlone }),
    }
  })
}

test.each<[string, Partial<QueueSnapshot>, unknown[]]>([
  ['nothing if nothing is due', { prices: null }, []],
  [
    'nothing while gas is too expensive for anything',
    { due: [due('shared', payment('a'))], prices: { ...free, baseFeePerGas: 101n } },
    [],
  ],
  [
    'all due payments of a lane that fit',
    { due: [due('shared', payment('a'), payment('b'))] },
    [{ claim: 'shared', ids: ['a', 'b'] }],
  ],
  [
    'one batch after the other, by the turns of the lanes',
    { due: [due('code', code('a')), due('shared', payment('b'))], turns: ['shared'] },
    [
      { claim: 'code', ids: ['a'] },
      { claim: 'shared', ids: ['b'] },
    ],
  ],
  [
    'no submission with a payment of a blocked payer',
    {
      blocked: new Set(['a']),
      due: [due('direct', payment('a'), payment('b')), due('shared', payment('c'))],
    },
    [{ claim: 'shared', ids: ['c'] }],
  ],
  [
    'nothing more while callers gather whose turn it is',
    { due: [due('shared', payment('a')), due('facilitator', payment('b'))], isGathering: true },
    [],
  ],
  [
    'a batch of another lane whose turn it is while callers gather',
    {
      due: [due('shared', payment('a')), due('facilitator', payment('b'))],
      isGathering: true,
      turns: ['facilitator'],
    },
    [{ claim: 'shared', ids: ['a'] }],
  ],
  [
    'payments of one kind: the most urgent one’s',
    { due: [due('shared', pair('a'), payment('b'), pair('c'))] },
    [{ claim: 'shared', ids: ['a', 'c'] }],
  ],
  [
    'one payment of high value at a time',
    { due: [due('high_value', payment('a'), payment('b'))] },
    [{ claim: 'high_value', ids: ['a'] }],
  ],
  [
    'a submission as a whole, whatever it consists of',
    { due: [due('direct', pair('a'), payment('b'), code('c'))] },
    [{ claim: 'direct', ids: ['a', 'b', 'c'] }],
  ],
  [
    'one pair alone while splitters wait and only pairs are due',
    { due: [due('shared', pair('a'), pair('b'))], waitingSplitters: new Map([[platform, 1]]) },
    [{ claim: 'shared', ids: ['a'], isPairAlone: true }],
  ],
  [
    'all pairs if one went alone less than ten minutes ago',
    {
      due: [due('shared', pair('a'), pair('b'))],
      waitingSplitters: new Map([[platform, 1]]),
      pairAloneAt: now.getTime() - 599_999,
    },
    [{ claim: 'shared', ids: ['a', 'b'] }],
  ],
  [
    'that those wait which cost too much for their fees, and those draw which are about to expire',
    {
      due: [due('shared', cheap('a'), urgent('b'), payment('c', { fee: 10n ** 9n }))],
      prices: expensive,
    },
    [{ claim: 'shared', ids: ['a', 'b', 'c'], held: ['a'], drawing: ['b'] }],
  ],
  [
    'that a submission draws as one',
    { due: [due('direct', unpaid('a'), unpaid('b'))], prices: expensive },
    [{ claim: 'direct', ids: ['a', 'b'], drawing: ['a', 'b'] }],
  ],
])('default: plans %s', (_, change, plans) => {
  expect(describePlans(change)).toEqual(plans)
})

test('behavior: a batch that can sweep leaves a quarter of its gas to splitters that wait', () => {
  const sizeOf = (waiting: number, lane: Lane = 'shared', payments = wallets(250)) => {
    const waitingSplitters = new Map([[platform, waiting]])
    const [plan] = planClaims(snapshot({ due: [due(lane, ...payments)], waitingSplitters }), policy)
    return plan?.payments.length ?? 0
  }
  const all = sizeOf(0)
  expect(all).toBeLessThan(250)
  expect(sizeOf(20)).toBeLessThan(all)
  expect(sizeOf(20)).toBeGreaterThanOrEqual(Math.floor(all * 0.75) - 1)
  expect(sizeOf(20, 'shared', wallets(3))).toBe(3)
  // Each payer of these lanes has gas that it may burn.
  const coded = wallets(250).map((one) => ({ ...one, hasCode: true }))
  expect(sizeOf(0, 'code', coded)).toBeLessThan(all / 2)
  expect(sizeOf(0, 'quarantined')).toBeLessThan(all / 2)
})
