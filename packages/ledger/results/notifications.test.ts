import type { Hex } from 'viem'
import { beforeEach, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import {
  blockHashOf,
  type SeededPayment,
  type SeedProvider,
  seedChainId,
  seedHalf,
  seedPayment,
  seedProvider,
  seedScope,
  seedSettlement,
  seedTransfer,
  toCandidate,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { storeRefund } from '../acceptance/refunds.ts'
import { dropBlock, recordBatches, recordEvents, setConfirmed } from '../facts/record.ts'
import { notifyBatches, notifyReverted, notifySettled, readTold } from './notifications.ts'

const scope = seedScope
const network = 'localhost'
const confirmedAt = new Date('2026-11-21T13:00:00Z')
const [blockTime, settledAt] = [1_795_262_400, '2026-11-21T12:00:00.000Z']

const sql = await useDatabase()
let provider: SeedProvider
beforeEach(async () => {
  provider = await seedProvider(sql)
})

const seed = () => seedPayment(sql, { provider })

let height = 1_000
const blockOf = (blockNumber: number) => ({
  blockNumber: BigInt(blockNumber),
  blockHash: blockHashOf(blockNumber),
})

/** Records that a new block settled halves of a payment. */
async function settle(
  payment: SeededPayment,
  { halves = [0, 1], blockNumber = ++height }: { halves?: (0 | 1)[]; blockNumber?: number } = {},
): Promise<{ blockNumber: number; txHash: Hex }> {
  const txHash = await seedSettlement(sql, payment, { halves, blockNumber, blockTime })
  await sql`delete from indexer.authorization`
  return { blockNumber, txHash }
}

/** Confirms a block. @returns the number of notified payments. */
function confirm(blockNumber: number, block = blockOf(blockNumber)): Promise<number> {
  return sql.begin(async (tx) => {
    if (!(await setConfirmed(tx, seedChainId, block, confirmedAt))) return 0
    return notifySettled(tx, { chainId: seedChainId, network, block })
  }) as Promise<number>
}

/** Reverts a block whose transactions are not mined elsewhere. @returns the payments of the block that had been notified as settled. */
async function revert(blockNumber: number, paymentIds?: string[]): Promise<string[]> {
  const block = blockOf(blockNumber)
  const told = await readTold(sql, { chainId: seedChainId, network, block })
  await notifyReverted(sql, network, paymentIds ?? told.map(({ paymentId }) => paymentId))
  await dropBlock(sql, seedChainId, block)
  return told.map(({ paymentId }) => paymentId)
}

type Message = { event: string; occurrence: number; txHash: Hex; data: Record<string, unknown> }

async function messages(of: { providerId: string } = provider): Promise<Message[]> {
  return sql<Message[]>`
    select event, occurrence, tx_hash as "txHash", data from outbox where provider_id = ${of.providerId} order by id`
}

const eventsOf = async (of = provider) =>
  (await messages(of)).map(({ event, occurrence }) => `${event} ${occurrence}`)

test('default: notifies once about a settled payment when its block is confirmed, regardless of who sent the transaction', async () => {
  const payment = await seed()
  const { blockNumber, txHash } = await settle(payment)
  expect(await messages()).toEqual([])
  expect(await confirm(blockNumber)).toBe(1)
  expect(await messages()).toEqual([
    {
      event: 'payment.settled',
      occurrence: 1,
      txHash,
      data: {
        network,
        blockNumber,
        settledAt,
        providerUsdc: '47500',
        platformUsdc: '2500',
        platformTxHash: txHash,
      },
    },
  ])
  const [row] = await sql`select payment_id as id from outbox where provider_id = ${provider.providerId}`
  expect(row).toEqual({ id: payment.paymentId })
  expect(await confirm(blockNumber)).toBe(0)
  // A process that lost the race for the confirmation tries to notify again.
  const block = blockOf(blockNumber)
  expect(await notifySettled(sql, { chainId: seedChainId, network, block })).toBe(0)
  expect(await messages()).toHaveLength(1)
})

test.each([
  ['the provider’s half moved first', [0, 1], false],
  ['the fee moved first', [1, 0], false],
  ['the provider’s half moved first and was confirmed first', [0, 1], true],
  ['the fee moved first and was confirmed first', [1, 0], true],
] as const)(
  'behavior: if the halves are in two blocks, notifies once both blocks are confirmed: %s',
  async (_, order, inOrder) => {
    const payment = await seed()
    const first = await settle(payment, { halves: [order[0]] })
    const second = await settle(payment, { halves: [order[1]] })
    // The first block is confirmed first, but another process may store the second block's confirmation sooner.
    const [sooner, later] = inOrder ? [first, second] : [second, first]
    expect(await confirm(sooner.blockNumber)).toBe(0)
    expect(await messages()).toEqual([])
    expect(await confirm(later.blockNumber)).toBe(1)
    const [provided, paid] = order[0] === 0 ? [first, second] : [second, first]
    expect(await messages()).toMatchObject([
      {
        event: 'payment.settled',
        txHash: provided.txHash,
        data: { blockNumber: second.blockNumber, platformTxHash: paid.txHash },
      },
    ])
  },
)

test('behavior: does not notify about a payment if only one half has settled, or if an authorization was used for another transfer', async () => {
  const [half, foreign] = [await seed(), await seed()]
  const { blockNumber } = await settle(half, { halves: [0] })
  await settle(foreign, { halves: [1], blockNumber })
  const event = {
    authorizer: foreign.payer,
    nonce: foreign.nonces[0],
    state: 'used' as const,
    recipient: randomHex(20),
    value: 47_500n,
    txHash: randomHex(32),
    logIndex: 0,
    ...blockOf(blockNumber),
  }
  await recordEvents(sql, scope, [{ ...event, blockTime: BigInt(blockTime) }], 'index')
  expect(await confirm(blockNumber)).toBe(0)
  // The other half arrives later.
  const { blockNumber: later } = await settle(half, { halves: [1] })
  expect(await confirm(later)).toBe(1)
  expect(await eventsOf()).toEqual(['payment.settled 1'])
})

test('behavior: a single transfer to a splitter counts as the provider’s part and as the fee', async () => {
  const payment = await seedPayment(sql, { provider, splitter: randomHex(20) })
  const { blockNumber, txHash } = await settle(payment, { halves: [0] })
  expect(await confirm(blockNumber)).toBe(1)
  expect(await messages()).toMatchObject([{ txHash, data: { platformTxHash: txHash } }])
})

test('behavior: notifies that a payment was reverted by a reorg, and again when it is settled again', async () => {
  const [payment, untold] = [await seed(), await seed()]
  for (const occurrence of [1, 2]) {
    const { blockNumber, txHash } = await settle(payment)
    await settle(untold, { halves: [0], blockNumber })
    // No one was notified of unconfirmed blocks.
    expect(await readTold(sql, { chainId: seedChainId, network, block: blockOf(blockNumber) })).toEqual([])
    expect(await confirm(blockNumber)).toBe(1)
    expect(await readTold(sql, { chainId: seedChainId, network, block: blockOf(blockNumber) })).toEqual([
      { paymentId: payment.paymentId, hashes: [txHash] },
    ])
    expect(await revert(blockNumber)).toEqual([payment.paymentId])
    expect((await messages()).slice(-2)).toMatchObject([
      { event: 'payment.settled', occurrence, txHash },
      { event: 'payment.reverted', occurrence, txHash, data: { network } },
    ])
    // The notification is written once.
    await notifyReverted(sql, network, [payment.paymentId, untold.paymentId])
  }
  await notifyReverted(sql, network, [])
  expect(await eventsOf()).toEqual([
    ...['payment.settled 1', 'payment.reverted 1', 'payment.settled 2', 'payment.reverted 2'],
  ])
})

test('behavior: does not notify again about the same transaction in another block', async () => {
  const payment = await seed()
  const { blockNumber } = await settle(payment)
  expect(await confirm(blockNumber)).toBe(1)
  // The transaction is mined elsewhere, so nothing is notified as reverted.
  expect(await revert(blockNumber, [])).toEqual([payment.paymentId])
  const { blockNumber: again } = await settle(payment)
  expect(await confirm(again)).toBe(0)
  expect(await eventsOf()).toEqual(['payment.settled 1'])
  // A reorg of the new block still reverts the payment.
  expect(await revert(again)).toEqual([payment.paymentId])
  expect(await eventsOf()).toEqual(['payment.settled 1', 'payment.reverted 1'])
})

test('behavior: does not notify about a reversal if the payment is already recorded in another block when a reorg of its old block is detected', async () => {
  const payment = await seed()
  const { blockNumber } = await settle(payment)
  expect(await confirm(blockNumber)).toBe(1)
  const { blockNumber: again } = await settle(payment)
  expect(await revert(blockNumber)).toEqual([])
  expect(await confirm(again)).toBe(0)
  expect(await eventsOf()).toEqual(['payment.settled 1'])
})

test('behavior: notifies about a reversal if one reorg moves a payment to another block and the next reorg drops that block before it is confirmed', async () => {
  const payment = await seed()
  const { blockNumber } = await settle(payment)
  expect(await confirm(blockNumber)).toBe(1)
  const { blockNumber: again } = await settle(payment)
  expect(await revert(blockNumber)).toEqual([])
  expect(await revert(again)).toEqual([payment.paymentId])
  expect(await eventsOf()).toEqual(['payment.settled 1', 'payment.reverted 1'])
})

test('behavior: notifies about events that are found in an already confirmed block', async () => {
  const [known, late] = [await seed(), await seed()]
  const { blockNumber } = await settle(known)
  expect(await confirm(blockNumber)).toBe(1)
  await settle(late, { blockNumber })
  expect(await confirm(blockNumber)).toBe(1)
  expect(await eventsOf()).toEqual(['payment.settled 1', 'payment.settled 1'])
  const rows = await sql`select distinct payment_id from outbox where provider_id = ${provider.providerId}`
  expect(rows).toHaveLength(2)
})

test('behavior: sends `refund.settled` and `refund.reverted` to the provider who pays a refund', async () => {
  const { paymentId } = await seed()
  const half = seedHalf({ value: 10n })
  const candidate = toCandidate({ source: 'refund', payer: provider.wallet, halves: [half] })
  const refund: SeededPayment = {
    paymentId: candidate.id,
    payer: provider.wallet,
    nonces: [half.nonce, half.nonce],
  }
  const of = { paymentId, number: 1, providerId: provider.providerId }
  expect(await storeRefund(sql, of, candidate)).toBe('accepted')
  const { blockNumber, txHash } = await settle(refund)
  expect(await confirm(blockNumber)).toBe(1)
  await revert(blockNumber)
  const about = { network, paymentId, number: 1 }
  expect(await messages()).toEqual([
    {
      event: 'refund.settled',
      occurrence: 1,
      txHash,
      data: { ...about, blockNumber, settledAt, valueUsdc: '10' },
    },
    { event: 'refund.reverted', occurrence: 1, txHash, data: about },
  ])
})

test('behavior: writes no notification for payments without a provider', async () => {
  const payment = await seedTransfer(sql, { source: 'submission' })
  const { blockNumber } = await settle(payment)
  expect(await confirm(blockNumber)).toBe(0)
  expect(await sql`select from outbox where payment_id = ${payment.paymentId}`).toHaveLength(0)
})

const batchIn = (blockNumber: number, txHash: Hex, sequence: number | null) =>
  recordBatches(sql, scope, [
    {
      txHash,
      logIndex: 9,
      sequence,
      keeper: randomHex(20),
      triggerCode: 0,
      paymentCount: 0,
      providerTotal: 0n,
      feeTotal: 0n,
      gasUsed: 0n,
      gasCost: 0n,
      recipients: [],
      ...blockOf(blockNumber),
      blockTime: BigInt(blockTime),
    },
  ])

test('default: notifies each provider once about a confirmed batch, and again if it is confirmed in another block', async () => {
  const other = await seedProvider(sql)
  const payments = [await seed(), await seed(), await seedPayment(sql, { provider: other })]
  const txHash = randomHex(32)
  const blockNumber = ++height
  const settleAll = async (at: number, batchLogIndex = 9) => {
    for (const payment of payments)
      await seedSettlement(sql, payment, { txHash, blockNumber: at, blockTime, batchLogIndex })
    await sql`delete from indexer.authorization`
  }
  const batches = (after: number, upTo = height) =>
    notifyBatches(sql, { chainId: seedChainId, network, after: BigInt(after), upTo: BigInt(upTo) })
  await settleAll(blockNumber)
  await batchIn(blockNumber, txHash, null)
  await batches(-1)
  expect(await messages()).toEqual([])

  await confirm(blockNumber)
  // Our receipt shows the batch, but the index hasn't numbered it yet.
  await batches(-1)
  await batchIn(blockNumber, txHash, 7)
  await batches(blockNumber)
  await batches(-1, blockNumber - 1)
  expect(await eventsOf()).toEqual(['payment.settled 1', 'payment.settled 1'])
  await batches(blockNumber - 1)
  await batches(-1)
  const said = { network, batchId: 7, createdAt: settledAt, confirmedAt: '2026-11-21T13:00:00.000Z' }
  const told = async (of: SeedProvider) =>
    (await messages(of)).filter(({ event }) => event === 'batch.confirmed')
  expect(await told(provider)).toEqual([
    {
      event: 'batch.confirmed',
      occurrence: 1,
      txHash,
      data: { ...said, payments: 2, providerUsdc: '95000' },
    },
  ])
  expect(await told(other)).toMatchObject([{ data: { payments: 1, providerUsdc: '47500' } }])

  const moved = ++height
  await settleAll(moved)
  await dropBlock(sql, seedChainId, blockOf(blockNumber))
  await batchIn(moved, txHash, 7)
  await batches(-1)
  expect(await told(provider)).toHaveLength(1)
  await confirm(moved)
  await batches(-1)
  await batches(-1)
  expect((await told(provider)).map(({ occurrence }) => occurrence)).toEqual([1, 2])
  expect((await told(other)).map(({ occurrence }) => occurrence)).toEqual([1, 2])
})

test('behavior: distinguishes two batches in one transaction by the payments that settled in each', async () => {
  const payment = await seed()
  const txHash = randomHex(32)
  const blockNumber = ++height
  await seedSettlement(sql, payment, { txHash, blockNumber, blockTime, batchLogIndex: 20 })
  await batchIn(blockNumber, txHash, 8)
  await confirm(blockNumber)
  await notifyBatches(sql, { chainId: seedChainId, network, after: -1n, upTo: BigInt(height) })
  expect(await eventsOf()).toEqual(['payment.settled 1'])
})

test('behavior: a payment with only its fee in a batch counts as a payment of the batch, with no amount for the provider', async () => {
  const payment = await seed()
  const txHash = randomHex(32)
  const blockNumber = ++height
  await seedSettlement(sql, payment, { halves: [1], txHash, blockNumber, blockTime })
  await batchIn(blockNumber, txHash, 9)
  await confirm(blockNumber)
  await notifyBatches(sql, {
    chainId: seedChainId,
    network,
    after: BigInt(blockNumber - 1),
    upTo: BigInt(height),
  })
  expect(await messages()).toMatchObject([
    { event: 'batch.confirmed', txHash, data: { payments: 1, providerUsdc: '0' } },
  ])
})
