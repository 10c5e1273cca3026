import { type Address, TransactionReceiptNotFoundError } from 'viem'
import { expect, test } from 'vitest'
import { keeperDefaults } from '../../test/support/keeperDefaults.ts'
import { createMetrics } from '../settings/metrics.ts'
import { followBatches, mayBegin, mostInFlight } from './advance.ts'
import type { SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'

const address: Address = `0x${'aa'.repeat(20)}`
const { settings } = keeperDefaults

type Sent = { isTaken?: boolean; ageMs?: number }

/** Returns batches in flight with these highest offers; null stands for a batch that isn't signed yet. */
function open(...batches: (Sent | null)[]): OpenBatch[] {
  return batches.map((sent) => {
    const offers = sent === null ? [] : [{ isTaken: true, ageMs: 0, ...sent }]
    return { offers } as unknown as OpenBatch
  })
}

const out: Sent = {}
const stuck: Sent = { ageMs: settings.replaceAfterMs }

test.each<[string, OpenBatch[], boolean, { funded?: number; hasGap?: boolean }]>([
  ['may begin a batch if nothing is in flight', open(), true, {}],
  ['may begin a batch behind transactions that nodes have accepted', open(out, out), true, {}],
  [
    'may begin a batch if its batches in flight are below the limit',
    open(...Array(mostInFlight - 1).fill(out)),
    true,
    {},
  ],
  [
    'may not begin a batch if its batches in flight reach the limit',
    open(...Array(mostInFlight).fill(out)),
    false,
    {},
  ],
  [
    'may not begin a batch behind a transaction that no node has accepted',
    open(out, { isTaken: false }),
    false,
    {},
  ],
  ['may not begin a batch behind a stuck transaction', open(stuck, out), false, {}],
  [
    'may begin a batch with an unused nonce before a stuck transaction',
    open(stuck, out),
    true,
    { hasGap: true },
  ],
  ['may not begin a batch while another batch is not signed yet', open(out, null), false, { hasGap: true }],
  [
    'may not begin a batch if as many are in flight as its gas money covers',
    open(out, out),
    false,
    { funded: 2 },
  ],
  ['may begin a batch if fewer are in flight than its gas money covers', open(out), true, { funded: 2 }],
])('a wallet %s', (_, batches, may, { funded, hasGap = false }) => {
  const fundedInFlight = new Map(funded === undefined ? [] : [[address, funded]])
  expect(mayBegin({ settings, address, fundedInFlight }, batches, hasGap)).toBe(may)
})

/** Follows a batch with nonce 5 that has no receipt, and returns how often a node was asked for one. */
async function countReceipts(
  nextNonce: number,
  offer: { ageMs?: number; triedAgoMs?: number | null },
  missingSince = new Map<string, number>(),
): Promise<number> {
  let receipts = 0
  const client = {
    getTransactionCount: async () => nextNonce,
    getTransactionReceipt: async ({ hash }: { hash: `0x${string}` }) => {
      receipts += 1
      throw new TransactionReceiptNotFoundError({ hash })
    },
    sendRawTransaction: async () => '0x01',
  }
  const log = { warn() {}, info() {}, error() {} }
  const context = {
    served: { network: { name: 'localhost' }, clients: [client] },
    metrics: createMetrics(),
    journal: { markTried: async () => {} },
    checkpoint: () => {},
    now: () => new Date(),
    settings,
    address,
    log,
    missingSince,
    wallet: null,
  } as unknown as SettlerContext
  const own = { hash: '0x01', nonce: 5, ageMs: 0, triedAgoMs: 0, isTaken: true, readRaw: async () => '0x02' }
  const batch = { batch: { batchId: 'b' }, offers: [{ ...own, ...offer }] } as unknown as OpenBatch
  await followBatches(context, [batch])
  return receipts
}

test.each([
  ['does not ask a node for a receipt if the transaction’s nonce is unused', 5, {}, 0],
  ['asks a node for the receipt if the transaction’s nonce is used', 6, {}, 1],
  [
    'asks a node for the receipt before it sends the transaction again',
    5,
    { triedAgoMs: settings.rebroadcastAfterMs },
    1,
  ],
  [
    'asks a node for the receipt before it sends the transaction for the first time',
    5,
    { triedAgoMs: null },
    1,
  ],
  [
    'asks a node for the receipt before it replaces the transaction',
    5,
    { ageMs: settings.replaceAfterMs },
    1,
  ],
] as const)('%s', async (_, nextNonce, offer, count) => {
  expect(await countReceipts(nextNonce, offer)).toBe(count)
})

test('no longer treats a batch’s nonce as used by another transaction once the chain reports the nonce as unused again', async () => {
  const missingSince = new Map<string, number>()
  await countReceipts(6, {}, missingSince)
  expect([...missingSince.keys()]).toEqual(['b'])
  await countReceipts(5, {}, missingSince)
  expect([...missingSince.keys()]).toEqual([])
})
