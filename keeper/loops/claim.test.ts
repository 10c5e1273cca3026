import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { createDueBatches } from '@tollkeeper/ledger/queue/dueBatches'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import { createLogger } from '@tollkeeper/runtime/log'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { leaseWallet } from '../../test/support/claim.ts'
import { useDatabase } from '../../test/support/database.ts'
import { seedHalf, seedProvider, seedToken, seedTransfer } from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { claimNext } from './claim.ts'
import { type Context, createMemory } from './context.ts'

const sql = await useDatabase()
const served = { network: networks.localhost, token: seedToken } as unknown as ServedNetwork

/** The parts of a keeper that a claim needs, on a clock that the test sets. */
function openKeeper() {
  let ms = 0
  const context = {
    sql,
    served,
    settings: {
      triggers: defaultTriggers,
      gasPerFee: 0n,
      dailyBudget: 0n,
      gasAllowance: 10n ** 12n,
      maxFeePerGas: 10n ** 12n,
      priorityFeePerGas: 0n,
      gasTokenUsd: 3_000_000_000n,
    },
    readDueBatches: createDueBatches(sql, served),
    meter: {
      read: async () => ({ baseFeePerGas: 1n, expected: 1n, most: 1n, dataFee: 0n, usdPerToken: 1n }),
    },
    // All that is seeded is due.
    now: () => new Date(Date.now() + 60_000),
    randomBytes32: () => randomHex(32),
    checkpoint() {},
    log: createLogger('keeper', 'silent'),
    metrics: createMetrics(),
    memory: createMemory(() => ms),
  } as unknown as Context
  return {
    /** The payments of the batch that a wallet claims at this time. */
    async claimAt(at: number, lease: Lease): Promise<string[]> {
      ms = at
      const batch = await claimNext(context, lease)
      if (batch === null) return []
      const rows = await sql<{ id: string }[]>`
        select payment_id as id from batch_item where batch_id = ${batch.id} order by position`
      return rows.map(({ id }) => id)
    },
    /** Lets a wallet's batch be mined. */
    async mineAt(at: number, block: bigint, lease: Lease): Promise<void> {
      ms = at
      await sql`update batch set state = 'mined' where wallet = ${lease.address}`
      context.memory.pace.noteMined(lease.address, block)
    },
  }
}

let arrivedAt = Date.now()

/** Payments that a key without a grant settles, each a millisecond after the one before. */
async function settle(providerId: string, count: number): Promise<string[]> {
  const ids: string[] = []
  for (let index = 0; index < count; index++) {
    const { paymentId } = await seedTransfer(sql, {
      source: 'facilitator',
      providerId,
      halves: [seedHalf()],
      first: { stage: 'due', since: arrivedAt++ },
      facilitation: { providerId, paymentIdentifier: null },
      gas: { providerId, amount: 1n, common: 10n ** 12n },
    })
    ids.push(paymentId)
  }
  return ids
}

test('behavior: whoever settles in the first half of a block’s interval is in the next block, beside a free key with a backlog', async () => {
  await sql`delete from queue`
  const keeper = openKeeper()
  const lease = await leaseWallet(sql)
  const [crowd, honest] = [await seedProvider(sql), await seedProvider(sql)]
  const backlog = await settle(crowd.providerId, 130)
  expect(await keeper.claimAt(0, lease)).toEqual(backlog.slice(0, 64))
  await keeper.mineAt(1_000, 10n, lease)
  expect(await keeper.claimAt(1_000, lease)).toEqual(backlog.slice(64, 128))
  await keeper.mineAt(3_000, 11n, lease)
  expect(await keeper.claimAt(3_000, lease)).toEqual([])
  const [late = ''] = await settle(honest.providerId, 1)
  expect(await keeper.claimAt(3_999, lease)).toEqual([])
  const next = await keeper.claimAt(4_000, lease)
  expect(next.toSorted()).toEqual([...backlog.slice(128), late].toSorted())
})

test('behavior: the backlog of a free key takes one wallet, and leaves the other one to those who come', async () => {
  await sql`delete from queue`
  const keeper = openKeeper()
  const [first, second] = [await leaseWallet(sql), await leaseWallet(sql)]
  const [crowd, honest] = [await seedProvider(sql), await seedProvider(sql)]
  const backlog = await settle(crowd.providerId, 130)
  expect(await keeper.claimAt(0, first)).toEqual(backlog.slice(0, 64))
  expect(await keeper.claimAt(0, second)).toEqual([])
  const late = await settle(honest.providerId, 1)
  expect(await keeper.claimAt(0, second)).toEqual(late)
  await keeper.mineAt(0, 10n, first)
  expect(await keeper.claimAt(0, first)).toEqual(backlog.slice(64, 128))
})
