import { expect, test } from 'vitest'
import type { ServedNetwork } from '#chain/servedNetworks'
import { networks } from '#protocol/networks'
import { judgeAlerts, judgedMetrics } from './judgeAlerts.ts'
import { type Operation, samplesOf } from './operationQueries.ts'

const now = new Date('2026-11-22T12:00:00Z')
const address = `0x${'ab'.repeat(20)}` as const
const keeper = { address, holder: 'k', isHeld: true, expiresAt: now, pausedUntil: null, pausedReason: null }

const operation: Operation = {
  networks: [
    {
      served: { network: networks.base } as ServedNetwork,
      index: { status: 'behind', reason: 'stale', head: { blockNumber: 1n, readNumber: 1n, blockTime: 1n } },
      chainBlock: 99n,
      unreadable: new Map([['receipt_unavailable', 1]]),
      queue: [
        {
          payee: address,
          verified: 1,
          retrying: 0,
          settling: 0,
          amount: 1n,
          oldestAt: new Date(0),
          providers: [],
        },
      ],
      openBatches: {},
      keepers: [
        { ...keeper, balance: 0n, pausedUntil: now },
        // Nobody has it, so it needs no gas money.
        { ...keeper, isHeld: false, balance: 0n },
      ],
      gasToday: 0n,
      gasOfMonth: 0n,
      hold: null,
      overBudget: 1,
      givenUpPayers: 0,
      failedSweeps: 1,
    },
  ],
  webhooks: { pending: 1, oldestDueAt: new Date(0), disabled: 0 },
}

test('default: everything that is sampled is judged by some alert', () => {
  const samples = samplesOf(operation, now)
  expect(samples.filter(({ metric }) => !judgedMetrics.has(metric))).toEqual([])
  expect(judgeAlerts(samples).map(({ name }) => name)).toEqual([
    ...['IndexStale', 'QueueTooOld', 'IndexNotBelieved', 'IndexHole', 'WalletPaused', 'GasBudgetUsedUp'],
    ...['WebhooksOverdue', 'SweepsFail', 'WalletLow'],
  ])
})
