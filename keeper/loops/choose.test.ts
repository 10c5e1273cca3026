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
/** Prices at which gas is free. */
const free: GasPrices = { baseFeePerGas: 1n, expected: 0n, most: 0n, dataFee: 0n, usdPerToken: 0n }
/** Prices at which a payment's gas costs several cents. */
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
  trigger: lane === 'submission' ? 'submission' : 'time',
  payments,
})

const snapshot = (change: Partial<QueueSnapshot> = {}): QueueSnapshot => ({
  due: [],
  blocked: new Set(),
  behindOwnPayer: new Set(),
  inFlight: [],
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

/** Describes each plan: its lane, its payments, which of them are held, and which draw gas money. */
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
    'nothing while the gas price is above the maximum',
    { due: [due('shared', payment('a'))], prices: { ...free, baseFeePerGas: 101n } },
    [],
  ],
  [
    'all due payments of a lane that fit',
    { due: [due('shared', payment('a'), payment('b'))] },
    [{ claim: 'shared', ids: ['a', 'b'] }],
  ],
  [
    'one batch after the other, in the order of the lanes’ turns',
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
      due: [due('submission', payment('a'), payment('b')), due('shared', payment('c'))],
    },
    [{ claim: 'shared', ids: ['c'] }],
  ],
  [
    'only batches of other lanes if it is the turn of a lane that still gathers callers',
    { due: [due('shared', payment('a')), due('facilitator', payment('b'))], isGathering: true },
    [{ claim: 'shared', ids: ['a'] }],
  ],
  [
    'a batch of another lane if it is that lane’s turn, even while a lane gathers callers',
    {
      due: [due('shared', payment('a')), due('facilitator', payment('b'))],
      isGathering: true,
      turns: ['facilitator'],
    },
    [{ claim: 'shared', ids: ['a'] }],
  ],
  [
    'only payments of the same kind as the most urgent one',
    { due: [due('shared', pair('a'), payment('b'), pair('c'))] },
    [{ claim: 'shared', ids: ['a', 'c'] }],
  ],
  [
    'one payment of high value at a time',
    { due: [due('high_value', payment('a'), payment('b'))] },
    [{ claim: 'high_value', ids: ['a'] }],
  ],
  [
    'a second payment of high value or a second submission while the first is in flight, but no second batch of any other lane',
    {
      due: [
        due('shared', payment('a')),
        due('high_value', payment('b')),
        due('submission', payment('c')),
        due('tab', payment('d')),
      ],
      inFlight: (['high_value', 'submission', 'shared'] as const).map((lane) => ({ lane, gas: 5_000_000n })),
      turns: ['shared'],
    },
    [
      { claim: 'high_value', ids: ['b'] },
      { claim: 'submission', ids: ['c'] },
      { claim: 'tab', ids: ['d'] },
    ],
  ],
  [
    'no submission and no payment of high value while such batches in flight use as much gas as a full batch',
    {
      due: [due('shared', payment('a')), due('high_value', payment('b')), due('submission', payment('c'))],
      inFlight: [
        { lane: 'submission', gas: 15_000_000n },
        { lane: 'high_value', gas: 500_000n },
      ],
    },
    [{ claim: 'shared', ids: ['a'] }],
  ],
  [
    'no payment of high value if its payer has code and already has another payment in flight',
    { due: [due('high_value', code('a'), code('b'))], behindOwnPayer: new Set(['a']) },
    [{ claim: 'high_value', ids: ['b'] }],
  ],
  [
    'a whole submission, even with payments of several kinds',
    { due: [due('submission', pair('a'), payment('b'), code('c'))] },
    [{ claim: 'submission', ids: ['a', 'b', 'c'] }],
  ],
  [
    'a single payment with two authorizations, if only such payments are due and splitters wait to be swept',
    { due: [due('shared', pair('a'), pair('b'))], waitingSplitters: new Map([[platform, 1]]) },
    [{ claim: 'shared', ids: ['a'], isPairAlone: true }],
  ],
  [
    'all payments with two authorizations together, if one settled alone less than ten minutes ago',
    {
      due: [due('shared', pair('a'), pair('b'))],
      waitingSplitters: new Map([[platform, 1]]),
      pairAloneAt: now.getTime() - 599_999,
    },
    [{ claim: 'shared', ids: ['a', 'b'] }],
  ],
  [
    'payments whose gas their fees don’t cover: some wait, and those that expire soon draw gas money',
    {
      due: [due('shared', cheap('a'), urgent('b'), payment('c', { fee: 10n ** 9n }))],
      prices: expensive,
    },
    [{ claim: 'shared', ids: ['a', 'b', 'c'], held: ['a'], drawing: ['b'] }],
  ],
  [
    'one draw of gas money for a whole submission',
    { due: [due('submission', unpaid('a'), unpaid('b'))], prices: expensive },
    [{ claim: 'submission', ids: ['a', 'b'], drawing: ['a', 'b'] }],
  ],
])('default: plans %s', (_, change, plans) => {
  expect(describePlans(change)).toEqual(plans)
})

test('behavior: a batch that can sweep reserves a quarter of its gas for waiting splitters', () => {
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
  // In the lanes `code` and `isolated`, each payment gets the maximum gas that its payer's code may burn, so fewer payments fit.
  const coded = wallets(250).map((one) => ({ ...one, hasCode: true }))
  expect(sizeOf(0, 'code', coded)).toBeLessThan(all / 2)
  expect(sizeOf(0, 'isolated')).toBeLessThan(all / 2)
})
