import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { createDueBatches } from '@tollkeeper/ledger/queue/dueBatches'
import { isolatePayers } from '@tollkeeper/ledger/queue/isolation'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import { createLogger } from '@tollkeeper/runtime/log'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { refuseWrites } from '../../test/support/badRows.ts'
import { leaseWallet } from '../../test/support/claim.ts'
import { useDatabase } from '../../test/support/database.ts'
import {
  seedChainId,
  seedHalf,
  seedPayment,
  seedProvider,
  seedScope,
  seedSettlement,
  seedToken,
  seedTransfer,
} from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { createFeeCoveredPolicy } from '../settler/gasPolicy.ts'
import { claimNext } from './claim.ts'
import { type Context, createMemory } from './context.ts'
import { failBlocked } from './failBlocked.ts'

const sql = await useDatabase()
const served = { network: networks.localhost, token: seedToken } as unknown as ServedNetwork

/** Creates the parts of a keeper that a claim needs, with a clock that the test sets. */
function openKeeper({
  gasPerFee = 0n,
  gas = 1n,
  isNodeDown = false,
}: {
  gasPerFee?: bigint
  gas?: bigint
  isNodeDown?: boolean
} = {}) {
  let ms = 0
  const context = {
    sql,
    served,
    finalityBlocks: 10n,
    settings: {
      triggers: defaultTriggers,
      dailyBudget: 0n,
      gasAllowance: 10n ** 12n,
      maxFeePerGas: 10n ** 12n,
      priorityFeePerGas: 0n,
      gasTokenUsd: 3_000_000_000n,
    },
    gasPolicy: createFeeCoveredPolicy({ maxFeePerGas: 10n ** 12n, gasPerFee }),
    readDueBatches: createDueBatches(sql, served),
    meter: {
      read: async () => {
        if (isNodeDown) throw new Error('no node answers')
        return { baseFeePerGas: 1n, expected: gas, most: gas, dataFee: 0n, usdPerToken: 10n ** 9n }
      },
    },
    // All seeded payments are due.
    now: () => new Date(Date.now() + 60_000),
    randomBytes32: () => randomHex(32),
    checkpoint() {},
    log: createLogger('keeper', 'silent'),
    metrics: createMetrics(),
    memory: createMemory(() => ms),
  } as unknown as Context
  return {
    context,
    /** Returns the payments of the batch that a wallet claims at this time. */
    async claimAt(at: number, lease: Lease): Promise<string[]> {
      ms = at
      const batch = await claimNext(context, lease)
      if (batch === null) return []
      const rows = await sql<{ id: string }[]>`
        select payment_id as id from batch_item where batch_id = ${batch.id} order by position`
      return rows.map(({ id }) => id)
    },
    /** Mines a wallet's batch. */
    async mineAt(at: number, block: bigint, lease: Lease): Promise<void> {
      ms = at
      await sql`update batch set state = 'mined' where wallet = ${lease.address}`
      context.memory.pace.noteMined(lease.address, block)
    },
  }
}

let arrivedAt = Date.now()

/** Creates payments of an API key without a grant, one millisecond apart. */
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

test('behavior: callers of /settle who arrive in the first half of the interval between blocks get into the next block, despite another API key’s backlog', async () => {
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

test('behavior: the backlog of one API key occupies only one of two wallets, so the other wallet serves new callers', async () => {
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

test('behavior: a claim that fails writes nothing, not even holds for gas', async () => {
  await sql`delete from queue`
  // Only the larger payment's fee covers its gas, about two cents.
  const keeper = openKeeper({ gasPerFee: 1n, gas: 100_000_000n })
  const provider = await seedProvider(sql)
  const old = { provider, acceptedAt: new Date(Date.now() - 3_600_000) }
  const { paymentId: small } = await seedPayment(sql, { ...old, feeAmount: 2_500n })
  const { paymentId: large } = await seedPayment(sql, { ...old, feeAmount: 100_000n })
  const readHeld = () => sql`
    select payment_id as id, held_by as "heldBy", stage from queue order by array_position(${[small, large]}::text[], payment_id)`
  const allow = await refuseWrites(sql, 'batch', 'insert', 'true')
  await expect(keeper.claimAt(0, await leaseWallet(sql))).rejects.toThrow('refused for a test')
  const readHolds = async () => (await keeper.context.metrics.holds.get()).values.map(({ value }) => value)
  expect(await readHeld()).toEqual([
    { id: small, heldBy: null, stage: 'waiting' },
    { id: large, heldBy: null, stage: 'waiting' },
  ])
  expect(await readHolds()).toEqual([])
  await allow()
  expect(await keeper.claimAt(0, await leaseWallet(sql))).toEqual([large])
  expect(await readHeld()).toEqual([
    { id: small, heldBy: 'gas_cost', stage: 'deferred' },
    { id: large, heldBy: null, stage: 'claimed' },
  ])
  expect(await readHolds()).toEqual([1])
})

test('behavior: skips payments that another keeper is claiming, without waiting for that keeper', async () => {
  await sql`delete from queue`
  const keeper = openKeeper()
  const { providerId } = await seedProvider(sql)
  const [taken = '', free = ''] = await settle(providerId, 2)
  await sql.begin(async (other) => {
    await other`select from queue where payment_id = ${taken} for update`
    expect(await keeper.claimAt(0, await leaseWallet(sql))).toEqual([free])
  })
  expect(await keeper.claimAt(0, await leaseWallet(sql))).toEqual([taken])
})

/** Creates a payment of a submission, one millisecond after the previous payment. */
const submit = (submission: `0x${string}`) =>
  seedTransfer(sql, {
    source: 'submission',
    halves: [seedHalf()],
    first: { stage: 'due', since: arrivedAt++, submission },
  })

/** Gives the record a head block, because nothing is finalized without one. */
const recordHead = () => sql`
  insert into record_head (chain_id, block_number, read_number, block_time)
  values (${seedChainId}, 1000, 1000, 1795263400) on conflict do nothing`

const old = { acceptedAt: new Date(Date.now() - 3_600_000) }
const endOf = async (paymentId: string) => {
  const [row] =
    await sql`select kind, final_at is not null as "isFinal" from payment_result where payment_id = ${paymentId}`
  return row
}

test('behavior: finalizes a payment that a stranger settled, and claims other payments even if finalizing fails', async () => {
  await sql`delete from queue`
  await recordHead()
  const keeper = openKeeper()
  const provider = await seedProvider(sql)
  const bad = await seedPayment(sql, { provider, ...old })
  const settled = await seedPayment(sql, { provider, ...old })
  const { paymentId: open } = await seedPayment(sql, { provider, ...old })
  for (const one of [bad, settled]) await seedSettlement(sql, one)
  const allow = await refuseWrites(sql, 'payment_result', 'insert', `new.payment_id = '${bad.paymentId}'`)
  expect(await keeper.claimAt(0, await leaseWallet(sql))).toEqual([open])
  await allow()
  expect(await endOf(settled.paymentId)).toEqual({ kind: 'settled', isFinal: true })
  expect(await endOf(bad.paymentId)).toBeUndefined()
  expect(await sql`select stage from queue where payment_id = ${bad.paymentId}`).toEqual([
    { stage: 'deferred' },
  ])
  expect(keeper.context.memory.unfinalized.waiting()).toEqual([bad.paymentId])
})

test('behavior: marks payments of blocked payers as failed even if no node answers', async () => {
  await sql`delete from queue`
  const blocked = await seedPayment(sql, { provider: await seedProvider(sql), ...old })
  for (let times = 0; times < 2; times++) await isolatePayers(sql, seedScope, [blocked.payer])
  await failBlocked(openKeeper({ isNodeDown: true }).context)
  expect(await endOf(blocked.paymentId)).toMatchObject({ kind: 'failed' })
})

test('behavior: does not claim the submission of a blocked payer; if that submission can’t be marked as failed, claims from other lanes', async () => {
  await sql`delete from queue`
  const [first, second] = [await submit(randomHex(32)), await submit(randomHex(32))]
  for (let times = 0; times < 2; times++) await isolatePayers(sql, seedScope, [first.payer])
  const shared = await seedPayment(sql, { provider: await seedProvider(sql), ...old })
  const allow = await refuseWrites(sql, 'payment_result', 'insert', `new.payment_id = '${first.paymentId}'`)
  const { context, claimAt } = openKeeper()
  await failBlocked(context)
  expect(await claimAt(0, await leaseWallet(sql))).toEqual([shared.paymentId])
  await allow()
  await failBlocked(context)
  expect(await endOf(first.paymentId)).toMatchObject({ kind: 'failed' })
  expect(await claimAt(0, await leaseWallet(sql))).toEqual([second.paymentId])
})

test('behavior: fails a whole submission if one of its payments was cancelled, and claims the next submission in the same step', async () => {
  await sql`delete from queue`
  await recordHead()
  const key = randomHex(32)
  const [cancelled, partner, next] = [await submit(key), await submit(key), await submit(randomHex(32))]
  await seedSettlement(sql, cancelled)
  await sql`update authorization_event set state = 'cancelled' where payment_id = ${cancelled.paymentId}`
  const refuse = () =>
    refuseWrites(sql, 'payment_result', 'insert', `new.payment_id = '${partner.paymentId}'`)
  const allow = await refuse()
  expect(await openKeeper().claimAt(0, await leaseWallet(sql))).toEqual([])
  await allow()
  expect(await endOf(cancelled.paymentId)).toBeUndefined()
  expect(await openKeeper().claimAt(0, await leaseWallet(sql))).toEqual([next.paymentId])
  expect(await endOf(partner.paymentId)).toMatchObject({ kind: 'failed' })
})
