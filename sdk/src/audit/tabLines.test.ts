import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import { address, facts, payer, claims as receipt, stranger, transaction } from '../../test/audited.ts'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { encodeSplit } from '../protocol/splitter.ts'
import { tabNonce, toWord } from '../protocol/tab.ts'
import type { SettledTab } from '../protocol/tabSettlement.ts'
import type { Evidence } from './evidence.ts'
import { explain } from './explain.ts'
import { type ChainFacts, judge } from './judge.ts'
import type { AuditedReceipt } from './report.ts'
import { findLineNeeds, movedOn, sumByTab } from './tabLines.ts'
import { sumByProvider } from './totals.ts'

const contract = facts.tabSettlement
const id = `tab_${'0'.repeat(32)}`
const nonce = tabNonce(receipt.iss, id)
const splitFor = (provider: Address) => encodeSplit({ provider, providerShare: 9n, platformShare: 1n })
const [first, second] = [splitFor(address('1')), splitFor(address('2'))]

const claims: ReceiptClaims = {
  ...receipt,
  totalUsdc: '1000',
  providerUsdc: '900',
  platformUsdc: '100',
  tier: 'ultra-micro',
  effectiveRate: '0.1',
  authorizations: [{ to: contract, value: '1000', nonce }],
  split: { provider: address('1'), platform: address('3') },
  tab: { id, sequence: 2, split: toWord(first), rewardShare: 1_000, lineTotal: '3000' },
}

/** Returns a tab's state as TabSettlement logged it, with the receipt's terms. */
const settledTab = (lines: [bigint, bigint][], change: Partial<SettledTab> = {}): SettledTab => ({
  platform: address('3'),
  rewardShare: 1_000,
  sequence: 2,
  lines: lines.map(([split, amount]) => ({ split, amount })),
  ...change,
})

const moved = (lines: [bigint, bigint][] | undefined, change: Partial<Evidence> = {}): Evidence => ({
  kind: 'used',
  authorizer: payer,
  nonce,
  transactionHash: transaction,
  blockNumber: 90n,
  blockHash: transaction,
  blockTime: 900n,
  logIndex: 0,
  transfer: { to: contract, value: (lines ?? []).reduce((sum, [, amount]) => sum + amount, 0n) },
  ...(lines && { tab: settledTab(lines) }),
  ...change,
})

const movedUnder = (terms: Partial<SettledTab>) =>
  moved([[first, 3_000n]], { tab: settledTab([[first, 3_000n]], terms) })

describe('judge', () => {
  const cases: [string, Partial<ReceiptClaims>, Evidence[], Partial<ChainFacts>, string, string?][] = [
    [
      'is settled if the line received exactly the receipt’s total',
      {},
      [
        moved([
          [first, 3_000n],
          [second, 7n],
        ]),
      ],
      {},
      'settled',
    ],
    [
      'is settled if the line received more, for later requests',
      {},
      [moved([[first, 3_001n]])],
      {},
      'settled',
    ],
    [
      'is a mismatch if the line received less',
      {},
      [
        moved([
          [first, 2_999n],
          [second, 9_000n],
        ]),
      ],
      {},
      'mismatch',
      'line',
    ],
    [
      'is a mismatch if another line received the amount',
      {},
      [moved([[second, 3_000n]])],
      {},
      'mismatch',
      'line',
    ],
    [
      'is pending with too few confirmations',
      {},
      [moved([[first, 3_000n]], { blockNumber: 98n })],
      {},
      'pending',
      'confirming',
    ],
    [
      'is a mismatch if the line received less, even with too few confirmations',
      {},
      [moved([[first, 1n]], { blockNumber: 98n })],
      {},
      'mismatch',
      'line',
    ],
    [
      'is a mismatch if the transfer has no events of TabSettlement',
      {},
      [moved(undefined)],
      {},
      'mismatch',
      'line',
    ],
    [
      'is a mismatch if the tab settled with another platform',
      {},
      [movedUnder({ platform: stranger })],
      {},
      'mismatch',
      'terms',
    ],
    [
      'is a mismatch if the tab settled with the payer as the platform',
      {},
      [movedUnder({ platform: payer })],
      {},
      'mismatch',
      'terms',
    ],
    [
      'is a mismatch if the tab settled with a larger reward',
      {},
      [movedUnder({ rewardShare: 1_001 })],
      {},
      'mismatch',
      'terms',
    ],
    [
      'is settled if the tab settled with a smaller reward',
      {},
      [movedUnder({ rewardShare: 0 })],
      {},
      'settled',
    ],
    [
      'is a mismatch because of its line if both the line’s amount and the platform differ',
      {},
      [moved([[first, 2_999n]], { tab: settledTab([[first, 2_999n]], { platform: stranger }) })],
      {},
      'mismatch',
      'line',
    ],
    [
      'is a mismatch if the transfer went to another recipient',
      {},
      [moved([[first, 3_000n]], { transfer: { to: stranger, value: 3_000n } })],
      {},
      'mismatch',
      'recipient',
    ],
    [
      'is pending if only another payer used the nonce',
      {},
      [moved([[first, 3_000n]], { authorizer: stranger })],
      {},
      'pending',
      'waiting',
    ],
    [
      'is cancelled if the payer cancelled the authorization',
      {},
      [moved([], { kind: 'cancelled' })],
      {},
      'cancelled',
      'cancelled_on_chain',
    ],
    ['is pending if the tab has not settled', {}, [], {}, 'pending', 'waiting'],
    [
      'is missing if the tab expired without a settlement',
      {},
      [],
      { head: { number: 100n, time: 2000n } },
      'missing',
      'expired',
    ],
    [
      'is missing if the receipt says settled, but nothing is on chain',
      { status: 'settled' },
      [],
      {},
      'missing',
      'said_to_be_settled',
    ],
    [
      'is cancelled if the request was voided, even if the tab settled',
      { status: 'voided' },
      [moved([[first, 2_000n]])],
      {},
      'cancelled',
      'voided',
    ],
    [
      'is a mismatch if the receipt names the nonce of another tab',
      { iss: 'https://another.example' },
      [moved([[first, 3_000n]])],
      {},
      'mismatch',
      'tab',
    ],
    [
      'is a mismatch if the receipt pays another contract',
      {},
      [moved([[first, 3_000n]])],
      { tabSettlement: stranger },
      'mismatch',
      'tab',
    ],
    [
      'is a mismatch if the receipt names another provider',
      { split: { provider: stranger, platform: address('3') } },
      [moved([[first, 3_000n]])],
      {},
      'mismatch',
      'tab',
    ],
    [
      'is a mismatch if the receipt names another token',
      { asset: address('d') },
      [moved([[first, 3_000n]])],
      {},
      'mismatch',
      'token',
    ],
  ]
  test.each(cases)(
    'behavior: the receipt of a request on a tab %s',
    (_, change, evidence, changedFacts, state, reason) => {
      const verdict = judge({ ...claims, ...change }, new Map([[nonce, evidence]]), {
        ...facts,
        ...changedFacts,
      })
      expect([verdict.state, verdict.reason]).toEqual([state, reason])
      expect(verdict.reconciled).toBe(state === 'settled' || reason === 'voided')
      expect(explain(verdict)).not.toMatch(/undefined/)
    },
  )

  test('behavior: describes a settlement under other terms than the receipt’s, and counts the amount that the platform actually received', () => {
    const verdict = judge(claims, new Map([[nonce, [movedUnder({ rewardShare: 6_000 })]]]), facts)
    expect(explain(verdict)).toBe(
      "The payment is on a tab that settled under other terms: 50% of the platform's part went elsewhere",
    )
    const payment = {
      ...claims,
      providerAmount: 900n,
      platformAmount: 100n,
    } as unknown as NonNullable<AuditedReceipt['payment']>
    const receipt = { ...verdict, position: 0, detail: '', payment } as AuditedReceipt
    expect(sumByProvider([receipt])).toMatchObject([
      { settled: 0, failing: 1, providerAmount: 900n, platformAmount: 50n },
    ])
  })

  test('default: describes the verdict in words', () => {
    const verdict = judge(claims, new Map([[nonce, [moved([[first, 2_999n]])]]]), facts)
    expect(explain(verdict)).toBe('The payment is on a tab that settled with only 0.002999 USDC on its line')
  })
})

describe('movedOn', () => {
  test('default: returns the amount that a settled tab moved on a line', () => {
    expect(
      movedOn(
        settledTab([
          [first, 1n],
          [second, 2n],
        ]),
        second,
      ),
    ).toBe(2n)
    expect(movedOn(settledTab([[first, 1n]]), second)).toBe(0n)
    expect(movedOn(undefined, first)).toBe(0n)
  })

  test('behavior: adds up the amounts of two lines with the same split', () => {
    expect(
      movedOn(
        settledTab([
          [first, 1n],
          [second, 7n],
          [first, 2n],
        ]),
        first,
      ),
    ).toBe(3n)
  })
})

describe('findLineNeeds', () => {
  /** Returns a request's claims, given its line's total and the part of its price that isn't charged. */
  const request = (lineTotal: bigint, reduced = 0n, lineReduced = 0n): ReceiptClaims => ({
    ...claims,
    tab: {
      id,
      sequence: 1,
      split: toWord(first),
      rewardShare: 1_000,
      lineTotal: `${lineTotal}`,
      ...(reduced > 0n && { reduced: `${reduced}` }),
      ...(lineReduced > 0n && { lineReduced: `${lineReduced}` }),
    },
  })

  test('behavior: after a reduced charge, requires less of the line for that request and later requests, but not for earlier requests', () => {
    const [before, reduced, after] = [request(100n), request(200n, 60n), request(300n)]
    const needOf = findLineNeeds([before, reduced, after])
    expect([before, reduced, after].map(needOf)).toEqual([100n, 140n, 240n])
  })

  test('behavior: requires the full amount of the line if the receipt of the reduced request is missing', () => {
    const [reduced, after] = [request(200n, 60n), request(300n)]
    expect(findLineNeeds([after])(after)).toBe(300n)
    expect(findLineNeeds([reduced, after])(after)).toBe(240n)
  })
})

describe('sumByTab', () => {
  const receiptAt = (position: number) => ({ position, state: 'settled' }) as AuditedReceipt
  const sum = (lines: [bigint, bigint][] | undefined) => {
    const evidence = new Map([['localhost', new Map([[nonce, [moved(lines)]]])]])
    const needOf = () => 3_000n
    return sumByTab([receiptAt(0), receiptAt(1)], new Map([0, 1].map((at) => [at, claims])), needOf, evidence)
  }

  test.each([
    ['paid its line in full', [[first, 3_000n]], 0n],
    ['paid less on its line', [[first, 2_900n]], 100n],
    ['paid only another line', [[second, 3_000n]], 3_000n],
    ['never settled, because its nonce was used for another transfer', undefined, 3_000n],
  ] as [string, [bigint, bigint][] | undefined, bigint][])(
    'default: returns the unpaid amount (gap) of a tab that %s',
    (_, lines, gap) => {
      expect(sum(lines)).toMatchObject([
        {
          id,
          requests: 2,
          ...(lines && { platform: address('3'), rewardShare: 1_000 }),
          lines: [{ requests: 2, boughtAmount: 2_000n, lineTotal: 3_000n, gap }],
        },
      ])
    },
  )
})
