import type { Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import { claimAs, failPayment, leaseWallet } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import {
  type SeededPayment,
  type SeedPayment,
  type SeedProvider,
  type StoredPayment,
  seedChainId,
  seedPayment,
  seedPlatform,
  seedProvider,
  seedScope,
  seedSettlement,
  seedTransfer,
} from '../../../test/support/seedPayments.ts'
import { until } from '../../../test/support/until.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { settleReserved } from '../acceptance/facilitations.ts'
import { closeBatch, setBatchState } from '../batches/batches.ts'
import { readBatchItems } from '../batches/items.ts'
import { LeaseLost, releaseLease } from '../batches/leases.ts'
import { unfinishPayments } from '../results/finalizations.ts'
import { unvoidPayments, voidPayment } from '../results/voids.ts'
import type { Queryable } from '../store/database.ts'
import { newId } from '../store/identifiers.ts'
import { isolatePayers } from './isolation.ts'
import type { Lane } from './lanes.ts'
import {
  deferPayments,
  type Ending,
  endIsolation,
  endPayments,
  holdPayments,
  isolatePayments,
  markSent,
  releasePayments,
  reopenPayments,
  returnDeferred,
  type Stage,
  stages,
} from './stages.ts'

const scope = seedScope
const now = new Date(Math.floor(Date.now() / 1000) * 1000)
const later = (ms: number) => new Date(now.getTime() + ms)

const sql = await useDatabase()
const provider = await seedProvider(sql)

const seed = (change: Partial<SeedPayment> = {}): Promise<SeededPayment> =>
  seedPayment(sql, { provider, ...change })

/** Accepts a payment that didn't come through the gateway. */
const accept = async (change: Partial<StoredPayment>) =>
  (await seedTransfer(sql, { acceptedAt: now, ...change })).paymentId

const facilitation = { providerId: null, paymentIdentifier: null }
const awaited = () =>
  accept({ facilitation, first: { stage: 'due', since: now.getTime() }, source: 'facilitator' })

type Queued = {
  stage: Stage
  nextAt: Date | null
  dueAt: Date | null
  submission: Hex | null
  attempts: number
  batchId: bigint | null
}

/** Returns the payment's row in the queue; null if there is none. */
async function queued(paymentId: string): Promise<Queued | null> {
  const [row] = await sql<Queued[]>`
    select stage, next_at as "nextAt", due_at as "dueAt", submission, attempts, batch_id as "batchId"
    from queue where payment_id = ${paymentId}`
  return row ?? null
}

/** Returns the payment's result; null if it has none. */
async function ended(paymentId: string) {
  const [row] = await sql`
    select kind, code, ended_at as "endedAt", final_at as "finalAt", attempts, arrived, settlement_seconds as seconds,
      is_partial as "isPartial"
    from payment_result where payment_id = ${paymentId}`
  return row ?? null
}

function end(paymentId: string, change: Partial<Ending> = {}, from?: bigint, at = now): Promise<string[]> {
  return endPayments(sql, [{ paymentId, kind: 'settled', code: null, isFinal: true, ...change }], at, from)
}

const fail = (paymentId: string, isFinal = false, at = now) =>
  failPayment(sql, paymentId, { isFinal, now: at })

const claim = (lane: Lane, ...paymentIds: string[]) => claimAs(sql, lane, paymentIds, { now })

async function claimed(lane: Lane, ...paymentIds: string[]): Promise<bigint> {
  const { batch } = await claim(lane, ...paymentIds)
  if (!batch) throw new Error('nothing was claimed')
  return batch.id
}

/** Moves a payment to a stage by the regular steps. */
async function bring(paymentId: string, stage: Stage): Promise<bigint> {
  if (stage === 'deferred') await deferPayments(sql, [paymentId], later(1_000))
  if (stage === 'retrying') await fail(paymentId)
  if (stage === 'isolated') await isolatePayments(sql, [paymentId])
  if (stage !== 'claimed' && stage !== 'sent') return 0n
  const batchId = await claimed('shared', paymentId)
  if (stage === 'sent') await setBatchState(sql, batchId, 'broadcast')
  return batchId
}

/** Creates one payment at each stage. */
async function oneOfEach(): Promise<Record<Stage, string>> {
  const reserved = await accept({
    source: 'facilitator',
    facilitation,
    first: { stage: 'reserved', until: later(60_000).getTime() },
  })
  const others = await Promise.all(
    stages.map(async (stage) => {
      if (stage === 'reserved') return [stage, reserved]
      const { paymentId } = await seed()
      await bring(paymentId, stage)
      return [stage, paymentId]
    }),
  )
  return Object.fromEntries(others) as Record<Stage, string>
}

async function stagesOf(each: Record<string, string>): Promise<Record<string, string | undefined>> {
  const rows = await Promise.all(
    Object.entries(each).map(async ([name, id]) => [name, (await queued(id))?.stage]),
  )
  return Object.fromEntries(rows)
}

const unmoved = Object.fromEntries(stages.map((stage) => [stage, stage]))

/** Reads a provider's sums of a day. */
async function sumsOf({ providerId }: SeedProvider) {
  const [row] = await sql`
    select sum(payments)::int as payments, sum(voided_payments)::int as voided, sum(settled_payments)::int as settled,
      sum(failed_payments)::int as failed, sum(gross) as gross, sum(fee) as fee, sum(settled_net) as net,
      sum(settled_fee) as "settledFee", sum(failed_net) as lost
    from revenue where provider_id = ${providerId} and period = 'day' having count(*) > 0`
  return row ?? null
}

const noSums = {
  payments: 0,
  voided: 0,
  settled: 0,
  failed: 0,
  gross: 0n,
  fee: 0n,
  net: 0n,
  settledFee: 0n,
  lost: 0n,
}

describe('acceptance', () => {
  const since = now.getTime()
  const submission = randomHex(32)
  const free = { nextAt: null, dueAt: null, submission: null, attempts: 0, batchId: null }

  test.each([
    ['waiting', { source: 'gateway' }, free],
    [
      'reserved until a given time',
      { source: 'facilitator', first: { stage: 'reserved', until: since + 500 } },
      { ...free, stage: 'reserved', nextAt: later(500) },
    ],
    [
      'due immediately',
      { source: 'facilitator', first: { stage: 'due', since } },
      { ...free, stage: 'waiting', dueAt: now },
    ],
    [
      'due with its submission',
      { source: 'submission', first: { stage: 'due', since, submission } },
      { ...free, stage: 'waiting', dueAt: now, submission },
    ],
  ] as const)('args: stores a new payment as %s', async (_, change, expected) => {
    const id =
      change.source === 'gateway'
        ? (await seed()).paymentId
        : await accept({ ...change, ...(change.source === 'facilitator' && { facilitation }) })
    expect(await queued(id)).toEqual({ stage: 'waiting', ...expected })
    expect(await ended(id)).toBeNull()
  })

  test('default: a reserved payment becomes due once, when its seller settles it', async () => {
    const id = await accept({
      source: 'facilitator',
      facilitation,
      first: { stage: 'reserved', until: later(-1).getTime() },
    })
    expect(await settleReserved(sql, [id], now)).toEqual(new Set([id]))
    expect(await queued(id)).toEqual({ ...free, stage: 'waiting', dueAt: now })
    expect(await settleReserved(sql, [id], later(1))).toEqual(new Set())
    expect((await queued(id))?.dueAt).toEqual(now)
  })
})

describe('waiting', () => {
  test('default: a deferred payment waits again once its time has come', async () => {
    const { paymentId } = await seed()
    const due = await awaited()
    await deferPayments(sql, [paymentId, due], later(1_000))
    expect(await queued(paymentId)).toMatchObject({ stage: 'deferred', nextAt: later(1_000), attempts: 0 })
    await returnDeferred(sql, scope, later(999))
    expect(await queued(paymentId)).toMatchObject({ stage: 'deferred' })
    await returnDeferred(sql, { ...scope, chainId: 1 }, later(1_000))
    await returnDeferred(sql, { ...scope, token: randomHex(20) }, later(1_000))
    expect(await queued(paymentId)).toMatchObject({ stage: 'deferred' })
    await returnDeferred(sql, scope, later(1_000))
    expect(await queued(paymentId)).toMatchObject({ stage: 'waiting', nextAt: null })
    expect(await queued(due)).toMatchObject({ stage: 'waiting', nextAt: null, dueAt: now })
  })

  test('behavior: defers only waiting payments; isolated payments and retries keep their stage until a later time', async () => {
    const each = await oneOfEach()
    await deferPayments(sql, Object.values(each), later(5_000))
    expect(await stagesOf(each)).toEqual({ ...unmoved, waiting: 'deferred' })
    expect(await queued(each.retrying)).toMatchObject({ nextAt: later(5_000), attempts: 1 })
    expect(await queued(each.isolated)).toMatchObject({ nextAt: later(5_000) })
    expect(await queued(each.reserved)).toMatchObject({ nextAt: later(60_000) })
    expect(await queued(each.sent)).toMatchObject({ nextAt: null })
    await deferPayments(sql, [], later(5_000))
  })

  test('behavior: while nothing pays for a payment’s gas, a waiting or failed payment is not attempted until it is checked again', async () => {
    const each = await oneOfEach()
    const held = Object.values(each).map((paymentId) => ({ paymentId, reason: 'gas_cost' as const }))
    await holdPayments(sql, held, { until: later(90_000), now })
    expect(await stagesOf(each)).toEqual({ ...unmoved, waiting: 'deferred' })
    for (const stage of ['waiting', 'retrying', 'isolated'] as const)
      expect([stage, await queued(each[stage])]).toMatchObject([stage, { nextAt: later(90_000) }])
    expect(await queued(each.sent)).toMatchObject({ nextAt: null })
    // A payment is checked no later than when it becomes urgent.
    const { paymentId } = await seed({ acceptedAt: now, validBefore: now.getTime() / 1000 + 100 })
    await holdPayments(sql, [{ paymentId, reason: 'gas_cost' }], {
      until: later(90_000),
      now,
    })
    expect(await queued(paymentId)).toMatchObject({ stage: 'deferred', nextAt: later(60_000) })
  })

  test('default: retries a failed payment later, and fails it after six attempts', async () => {
    const { paymentId } = await seed()
    await deferPayments(sql, [paymentId], later(5_000))
    expect(await fail(paymentId)).toBe(1)
    expect(await queued(paymentId)).toMatchObject({ stage: 'retrying', attempts: 1, nextAt: later(60_000) })
    expect(await fail(paymentId, false, later(60_000))).toBe(2)
    expect(await queued(paymentId)).toMatchObject({ stage: 'retrying', attempts: 2, nextAt: later(300_000) })
    for (let attempt = 3; attempt <= 6; attempt++) expect(await fail(paymentId)).toBe(attempt)
    expect(await queued(paymentId)).toBeNull()
    expect(await ended(paymentId)).toMatchObject({
      kind: 'failed',
      code: 'insufficient_balance',
      attempts: 6,
      finalAt: null,
    })
  })

  test('behavior: attempts a payment only once if a caller waits for it, and keeps an isolated payment isolated', async () => {
    const due = await awaited()
    const { paymentId } = await seed()
    await isolatePayments(sql, [paymentId])
    expect(await fail(due)).toBe(1)
    expect(await ended(due)).toMatchObject({ kind: 'failed', attempts: 1 })
    await fail(paymentId)
    expect(await queued(paymentId)).toMatchObject({
      stage: 'isolated',
      attempts: 1,
      nextAt: later(60_000),
    })
  })

  test('default: isolates unbatched payments, and the payments of a batch if that batch is given', async () => {
    const each = await oneOfEach()
    const submission = randomHex(32)
    const together = await accept({
      source: 'submission',
      first: { stage: 'due', since: now.getTime(), submission },
    })
    await isolatePayments(sql, [...Object.values(each), together])
    const apart = Object.fromEntries(stages.map((stage) => [stage, 'isolated']))
    const held = { reserved: 'reserved', claimed: 'claimed', sent: 'sent' }
    expect(await stagesOf(each)).toEqual({ ...apart, ...held })
    const [batch] = await sql<
      { id: bigint }[]
    >`select batch_id as id from queue where payment_id = ${each.sent}`
    await isolatePayments(sql, Object.values(each), batch?.id)
    expect(await stagesOf(each)).toEqual({ ...apart, ...held, sent: 'isolated' })
    expect(await queued(each.sent)).toMatchObject({ batchId: null })
    expect(await queued(each.retrying)).toMatchObject({ attempts: 1 })
    expect(await queued(together)).toMatchObject({ stage: 'waiting', submission })
  })

  test('default: the end of isolation returns payments to waiting, or to retrying if they failed before', async () => {
    const each = await oneOfEach()
    const [held, failed] = [(await seed()).paymentId, (await seed()).paymentId]
    await isolatePayments(sql, [held, failed])
    await holdPayments(sql, [{ paymentId: held, reason: 'gas_cost' }], { until: later(90_000), now })
    await fail(failed)
    const all = [...Object.values(each), held, failed]
    expect((await endIsolation(sql, all, now)).toSorted()).toEqual([each.isolated, held, failed].toSorted())
    expect(await stagesOf(each)).toEqual({ ...unmoved, isolated: 'waiting' })
    expect(await queued(held)).toMatchObject({ stage: 'waiting', nextAt: null })
    expect(await queued(failed)).toMatchObject({ stage: 'retrying', nextAt: later(60_000), attempts: 1 })
    expect(await endIsolation(sql, all, now)).toEqual([])
  })
})

describe('claims', () => {
  test('default: claims unbatched payments in order of urgency, and leaves other payments unchanged', async () => {
    const each = await oneOfEach()
    const over = await seed()
    await end(over.paymentId)
    const order = [each.retrying, each.sent, each.waiting, each.reserved, each.claimed, each.deferred]
    const { batch, unsettleable } = await claim('shared', ...order, each.isolated, over.paymentId)
    expect(unsettleable).toEqual([])
    expect(batch).toMatchObject({
      lane: 'shared',
      trigger: 'count',
      state: 'claimed',
      feeRecipient: seedPlatform,
    })
    expect(await stagesOf(each)).toEqual({
      ...unmoved,
      waiting: 'claimed',
      deferred: 'claimed',
      retrying: 'claimed',
    })
    const items = await sql`
      select position, payment_id as id from batch_item where batch_id = ${batch?.id ?? 0n} order by position`
    expect([...items]).toEqual(
      [each.retrying, each.waiting, each.deferred].map((id, position) => ({ position, id })),
    )
    const taken = { batchId: batch?.id, nextAt: null }
    expect(await queued(each.retrying)).toMatchObject({ ...taken, attempts: 1 })
    expect(await queued(each.deferred)).toMatchObject(taken)
  })

  test('behavior: reports and skips payments that have nothing left to settle or have expired', async () => {
    const seconds = now.getTime() / 1000
    const [done, half, soon] = [
      await seed(),
      await seed(),
      await seed({ acceptedAt: new Date(now.getTime() - 1_000), validBefore: seconds + 1 }),
    ]
    await seedSettlement(sql, done)
    await seedSettlement(sql, half, { halves: [0] })
    const { batch, unsettleable } = await claim('shared', done.paymentId, half.paymentId, soon.paymentId)
    expect(unsettleable.sort()).toEqual([done.paymentId, soon.paymentId].sort())
    expect(await queued(half.paymentId)).toMatchObject({ batchId: batch?.id })
    expect(await queued(done.paymentId)).toMatchObject({ stage: 'waiting' })

    const none = await claim('shared', done.paymentId)
    expect(none).toEqual({ batch: null, unsettleable: [done.paymentId] })
  })

  test('behavior: claims all payments of a submission or none', async () => {
    const [one, other] = [await seed(), await seed()]
    const batchId = await claimed('shared', other.paymentId)
    expect((await claim('submission', one.paymentId, other.paymentId)).batch).toBeNull()
    expect(await queued(one.paymentId)).toMatchObject({ stage: 'waiting' })
    await closeBatch(sql, batchId, 'released', now)
    const direct = await claimed('submission', one.paymentId, other.paymentId)
    expect(await queued(one.paymentId)).toMatchObject({ stage: 'claimed', batchId: direct })
    expect(await queued(other.paymentId)).toMatchObject({ stage: 'claimed', batchId: direct })
  })

  test('behavior: claims isolated payments only in their lane, and isolates the payments of a payer whose payment failed on chain in the meantime', async () => {
    const [honest, liar, apart] = [await seed(), await seed(), await seed()]
    await isolatePayers(sql, scope, [liar.payer])
    expect(await queued(liar.paymentId)).toMatchObject({ stage: 'isolated' })
    // Another payment of this payer was accepted in the meantime.
    const { paymentId: again } = await seed({ payer: liar.payer })
    await isolatePayments(sql, [apart.paymentId])
    const batchId = await claimed('shared', honest.paymentId, again, apart.paymentId)
    expect(await queued(honest.paymentId)).toMatchObject({ stage: 'claimed', batchId })
    expect(await queued(again)).toMatchObject({ stage: 'isolated', batchId: null })
    await closeBatch(sql, batchId, 'released', now)

    const isolated = await claimed('isolated', honest.paymentId, again, apart.paymentId)
    expect(await queued(honest.paymentId)).toMatchObject({ stage: 'waiting' })
    expect(await queued(again)).toMatchObject({ batchId: isolated })
    expect(await queued(apart.paymentId)).toMatchObject({ batchId: isolated })
  })

  test('behavior: skips a payment whose presentation was deleted, and settles the rest of its batch', async () => {
    const [whole, forgotten] = [await seed(), await seed()]
    await sql`delete from presentation where payment_id = ${forgotten.paymentId}`
    const { batch, unsettleable } = await claim('shared', forgotten.paymentId, whole.paymentId)
    expect(unsettleable).toEqual([forgotten.paymentId])
    const items = await readBatchItems(sql, batch?.id ?? 0n)
    expect(items.map(({ paymentId }) => paymentId)).toEqual([whole.paymentId])
  })

  test('error: a keeper that lost its wallet claims nothing', async () => {
    const { paymentId } = await seed()
    const lease = await leaseWallet(sql)
    await releaseLease(sql, lease)
    const claiming = claimAs(sql, 'shared', [paymentId], { now, lease })
    await expect(claiming).rejects.toThrow(LeaseLost)
    expect(await queued(paymentId)).toMatchObject({ stage: 'waiting', batchId: null })
  })

  test('behavior: storing a transaction marks exactly the claimed payments of its batch as sent', async () => {
    const [one, other] = [await seed(), await seed()]
    const batchId = await claimed('shared', one.paymentId)
    await claimed('shared', other.paymentId)
    await markSent(sql, batchId)
    expect(await queued(one.paymentId)).toMatchObject({ stage: 'sent', batchId })
    expect(await queued(other.paymentId)).toMatchObject({ stage: 'claimed' })
  })
})

describe('releases', () => {
  test.each(['claimed', 'sent'] as const)(
    'default: releasing a batch of %s payments returns them to their previous stages',
    async (stage) => {
      const [fresh, deferred, tried] = [await seed(), await seed(), await seed()]
      await bring(deferred.paymentId, 'deferred')
      await bring(tried.paymentId, 'retrying')
      const due = await awaited()
      const batchId = await claimed('shared', fresh.paymentId, deferred.paymentId, tried.paymentId, due)
      if (stage === 'sent') await setBatchState(sql, batchId, 'broadcast')
      const ids = [fresh.paymentId, deferred.paymentId, tried.paymentId, due]
      expect((await releasePayments(sql, batchId, later(9))).sort()).toEqual(ids.sort())
      const loose = {
        stage: 'waiting',
        nextAt: null,
        batchId: null,
        submission: null,
        dueAt: null,
        attempts: 0,
      }
      expect(await queued(fresh.paymentId)).toEqual(loose)
      expect(await queued(deferred.paymentId)).toEqual(loose)
      // The payment becomes a retry that is due immediately.
      const retried = { stage: 'retrying', attempts: 1, nextAt: later(9) }
      expect(await queued(tried.paymentId)).toEqual({ ...loose, ...retried })
      expect(await queued(due)).toEqual({ ...loose, dueAt: now })
      expect(await releasePayments(sql, batchId, now)).toEqual([])
    },
  )

  test('behavior: a payment that failed in its batch is retried at the scheduled time', async () => {
    const { paymentId } = await seed()
    const batchId = await claimed('shared', paymentId)
    await fail(paymentId)
    expect(await queued(paymentId)).toMatchObject({ stage: 'claimed', batchId, attempts: 1 })
    await releasePayments(sql, batchId, later(9))
    expect(await queued(paymentId)).toMatchObject({ stage: 'retrying', nextAt: later(60_000) })
  })

  test('behavior: a payment that leaves its batch is isolated if it was isolated before, or if its payer has failed on chain in the meantime', async () => {
    const [apart, liar, honest] = [await seed(), await seed(), await seed()]
    await bring(apart.paymentId, 'isolated')
    const isolated = await claimed('isolated', apart.paymentId)
    const shared = await claimed('shared', liar.paymentId, honest.paymentId)
    await isolatePayers(sql, scope, [liar.payer])
    expect(await queued(liar.paymentId)).toMatchObject({ stage: 'claimed' })
    await releasePayments(sql, isolated, now)
    await releasePayments(sql, shared, now)
    const stands = { stage: 'isolated', batchId: null, nextAt: now }
    expect(await queued(apart.paymentId)).toMatchObject(stands)
    expect(await queued(liar.paymentId)).toMatchObject(stands)
    expect(await queued(honest.paymentId)).toMatchObject({ stage: 'waiting', nextAt: null })
  })

  test('behavior: releases a batch’s payments at the given positions, and keeps the others', async () => {
    const [one, other] = [await seed(), await seed()]
    const batchId = await claimed('shared', one.paymentId, other.paymentId)
    expect(await releasePayments(sql, batchId, now, [])).toEqual([])
    expect(await releasePayments(sql, batchId, now, [1, 7])).toEqual([other.paymentId])
    expect(await queued(one.paymentId)).toMatchObject({ stage: 'claimed', batchId })
    expect(await queued(other.paymentId)).toMatchObject({ stage: 'waiting' })
  })

  test('behavior: splits up a released submission into separate payments', async () => {
    const submission = randomHex(32)
    const due = await accept({
      source: 'submission',
      first: { stage: 'due', since: now.getTime(), submission },
    })
    const batchId = await claimed('submission', due)
    expect(await queued(due)).toMatchObject({ stage: 'claimed', submission, dueAt: now })
    await closeBatch(sql, batchId, 'released', now)
    expect(await queued(due)).toMatchObject({ stage: 'waiting', submission: null, dueAt: null })
    const [batch] = await sql`select state, result from batch where id = ${batchId}`
    expect(batch).toEqual({ state: 'closed', result: 'released' })
  })
})

describe('ends', () => {
  test('behavior: finalizes unbatched payments that aren’t reserved, and payments in a batch only if that batch is given', async () => {
    const each = await oneOfEach()
    const { batchId } = (await queued(each.sent)) ?? {}
    const endAll = (from?: bigint) =>
      endPayments(
        sql,
        Object.values(each).map((paymentId) => ({ paymentId, kind: 'voided', code: null, isFinal: false })),
        now,
        from,
      )
    const loose = [each.waiting, each.deferred, each.retrying, each.isolated]
    expect((await endAll()).sort()).toEqual(loose.sort())
    for (const id of loose) {
      expect(await queued(id)).toBeNull()
      expect(await ended(id)).toMatchObject({ kind: 'voided', finalAt: null })
    }
    expect(await ended(each.retrying)).toMatchObject({ attempts: 1 })
    const left = { reserved: each.reserved, claimed: each.claimed, sent: each.sent }
    expect(await stagesOf(left)).toEqual({ reserved: 'reserved', claimed: 'claimed', sent: 'sent' })
    expect(await endAll(batchId ?? 0n)).toContain(each.sent)
    expect(await stagesOf(left)).toEqual({ reserved: 'reserved', claimed: 'claimed', sent: undefined })
    expect(await endPayments(sql, [], now)).toEqual([])
  })

  test('default: a final result is added to its provider’s sums once, regardless of how often it is written', async () => {
    const own = await seedProvider(sql)
    const acceptedAt = new Date('2026-11-21T10:00:00Z')
    const payment = await seed({ provider: own, acceptedAt })
    const settledAt = acceptedAt.getTime() / 1000 + 45
    await seedSettlement(sql, payment, { blockTime: settledAt, blockNumber: 200 })
    const { paymentId } = payment
    expect(await end(paymentId, { kind: 'spent', isFinal: false })).toEqual([paymentId])
    expect(await ended(paymentId)).toEqual({
      kind: 'spent',
      code: null,
      endedAt: now,
      finalAt: null,
      attempts: 0,
      arrived: null,
      seconds: null,
      isPartial: false,
    })
    expect(await sumsOf(own)).toBeNull()
    expect(await end(paymentId, {}, undefined, later(5))).toEqual([paymentId])
    expect(await ended(paymentId)).toMatchObject({
      kind: 'settled',
      endedAt: later(5),
      finalAt: later(5),
      arrived: 3,
      seconds: 45,
      isPartial: false,
    })
    const sums = {
      ...noSums,
      payments: 1,
      settled: 1,
      gross: 50_000n,
      fee: 2_500n,
      net: 47_500n,
      settledFee: 2_500n,
    }
    expect(await sumsOf(own)).toEqual(sums)
    expect(await end(paymentId)).toEqual([])
    expect(await end(paymentId, { kind: 'failed', code: 'late' })).toEqual([])
    expect(await sumsOf(own)).toEqual(sums)
    const times = await sql`
      select payments from settlement_time
      where chain_id = ${seedChainId} and day = '2026-11-21' and bucket = settlement_bucket(45)`
    expect([...times]).toEqual([{ payments: 1 }])
    const payers = await sql`
      select period, payments, gross, settled_net as net from payer_revenue where payer = ${payment.payer} order by period`
    const one = { payments: 1, gross: 50_000n, net: 47_500n }
    expect([...payers]).toEqual(['all', 'day', 'month'].map((period) => ({ period, ...one })))
  })

  const whole = { payments: 1, gross: 50_000n, fee: 2_500n }
  test.each([
    ['settled', 'settled', [0, 1], { settled: 1, net: 47_500n, settledFee: 2_500n, ...whole }, 3, false],
    ['settled without its fee', 'settled', [0], { settled: 1, net: 47_500n, ...whole }, 1, true],
    ['failed', 'failed', [], { failed: 1, lost: 47_500n, ...whole }, 0, false],
    [
      'failed, and settled by someone else',
      'failed',
      [0, 1],
      { settled: 1, net: 47_500n, settledFee: 2_500n, ...whole },
      3,
      false,
    ],
    [
      'failed, and only the fee was sent',
      'failed',
      [1],
      { failed: 1, lost: 47_500n, settledFee: 2_500n, ...whole },
      2,
      true,
    ],
    ['voided', 'voided', [], { voided: 1 }, 0, false],
    ['voided, and only the fee was sent', 'voided', [1], { voided: 1, settledFee: 2_500n }, 2, true],
  ] as const)(
    'args: updates the provider’s sums for a payment that is %s',
    async (_, kind, moved, expected, arrived, isPartial) => {
      const own = await seedProvider(sql)
      const payment = await seed({ provider: own })
      if (moved.length > 0) await seedSettlement(sql, payment, { halves: [...moved], blockNumber: 300 })
      const code = kind === 'failed' ? 'insufficient_balance' : null
      if (kind !== 'settled') {
        expect(await end(payment.paymentId, { kind, code, isFinal: false })).toHaveLength(1)
        expect(await sumsOf(own)).toBeNull()
      }
      // The code and time of its failure are kept.
      expect(await end(payment.paymentId, { kind, code: null }, undefined, later(5))).toHaveLength(1)
      expect(await ended(payment.paymentId)).toMatchObject({
        kind,
        code,
        arrived,
        isPartial,
        finalAt: later(5),
      })
      if (kind !== 'settled') expect(await ended(payment.paymentId)).toMatchObject({ endedAt: now })
      expect(await sumsOf(own)).toEqual({ ...noSums, ...expected })
    },
  )

  test('behavior: a result that is no longer final is subtracted from the sums; other changes of a result don’t change the sums', async () => {
    const own = await seedProvider(sql)
    const { paymentId } = await seed({ provider: own })
    await end(paymentId, { kind: 'failed', code: 'insufficient_balance' })
    const sums = { ...noSums, ...whole, failed: 1, lost: 47_500n }
    expect(await sumsOf(own)).toEqual(sums)
    await sql`update payment_result set attempts = 2 where payment_id = ${paymentId}`
    expect(await sumsOf(own)).toEqual(sums)
    await unfinishPayments(sql, [paymentId])
    await unfinishPayments(sql, [paymentId])
    expect(await sumsOf(own)).toEqual(noSums)
    expect(await ended(paymentId)).toMatchObject({ kind: 'failed', finalAt: null, arrived: null })
    expect(await end(paymentId, { kind: 'failed' })).toEqual([paymentId])
    expect(await sumsOf(own)).toEqual(sums)
  })

  test('behavior: payments without a provider are in no sum', async () => {
    const before = await sql`select count(*)::int as count from revenue`
    expect(await end(await awaited())).toHaveLength(1)
    expect([...(await sql`select count(*)::int as count from revenue`)]).toEqual([...before])
  })

  test('behavior: ignores unknown payments', async () => {
    expect(await end(newId('pay'))).toEqual([])
  })
})

describe('reopening', () => {
  test('default: reopens a final payment, subtracts it from the sums, and keeps its attempts', async () => {
    const own = await seedProvider(sql)
    const payment = await seed({ provider: own })
    const { paymentId } = payment
    await fail(paymentId)
    await seedSettlement(sql, payment, { blockNumber: 400 })
    await end(paymentId)
    expect(await sumsOf(own)).toMatchObject({ payments: 1, settled: 1 })
    expect(await reopenPayments(sql, [paymentId, newId('pay')])).toEqual([paymentId])
    expect(await sumsOf(own)).toEqual(noSums)
    expect(await ended(paymentId)).toBeNull()
    expect(await queued(paymentId)).toMatchObject({ stage: 'retrying', attempts: 1, batchId: null })
    expect(await reopenPayments(sql, [paymentId])).toEqual([])
    expect(await end(paymentId)).toEqual([paymentId])
    expect(await sumsOf(own)).toMatchObject({ payments: 1, settled: 1 })
  })

  test('behavior: a reopened payment waits again as a new payment if it had no failed attempts, or if its attempts are reset', async () => {
    const [fresh, given] = [await seed(), await seed()]
    await end(fresh.paymentId, { kind: 'spent', isFinal: false })
    await reopenPayments(sql, [fresh.paymentId])
    const waiting = { stage: 'waiting', attempts: 0, nextAt: null, dueAt: null }
    expect(await queued(fresh.paymentId)).toMatchObject(waiting)
    await fail(given.paymentId, true)
    expect(await ended(given.paymentId)).toMatchObject({ kind: 'failed', attempts: 1 })
    await reopenPayments(sql, [given.paymentId], 'forgotten')
    expect(await queued(given.paymentId)).toMatchObject(waiting)
    expect(await claim('shared', given.paymentId)).toMatchObject({ unsettleable: [] })
    expect(await reopenPayments(sql, [])).toEqual([])
  })

  test('behavior: if a provider settles a voided payment anyway, the payment is queued again, and one violation of the provider is counted', async () => {
    const own = await seedProvider(sql)
    const payment = await seed({ provider: own })
    const { paymentId } = payment
    const by = { paymentId, providerId: own.providerId, now }
    expect(await voidPayment(sql, by)).toBe('voided')
    expect(await voidPayment(sql, by)).toBe('voided')
    expect(await ended(paymentId)).toMatchObject({ kind: 'voided', finalAt: null })
    await unvoidPayments(sql, [paymentId])
    expect(await queued(paymentId)).toMatchObject({ stage: 'waiting' })
    expect(await ended(paymentId)).toBeNull()
    await unvoidPayments(sql, [paymentId])
    const [row] = await sql`select void_violations as count from provider where id = ${own.providerId}`
    expect(row).toEqual({ count: 1 })
  })

  test('behavior: a finalization that races with a reopening has no effect', async () => {
    const { paymentId } = await seed()
    await end(paymentId, { kind: 'failed', code: 'insufficient_balance', isFinal: false })
    const [reopened, ended] = await raced(
      (tx) => reopenPayments(tx, [paymentId], 'forgotten'),
      () => end(paymentId, { kind: 'failed', code: 'late' }),
    )
    expect([reopened, ended]).toEqual([[paymentId], []])
    expect(await placesOf(paymentId)).toEqual({ queue: 1, outcome: 0 })
  })

  test('behavior: if two calls finalize or reopen the same payment, only one has an effect', async () => {
    const { paymentId } = await seed()
    const failed = { kind: 'failed', code: 'insufficient_balance', isFinal: false } as const
    const first = await raced(
      (tx) => endPayments(tx, [{ paymentId, ...failed }], now),
      () => end(paymentId, { ...failed, kind: 'voided' }),
    )
    expect(first).toEqual([[paymentId], []])
    expect(await placesOf(paymentId)).toEqual({ queue: 0, outcome: 1 })
    const again = await raced(
      (tx) => reopenPayments(tx, [paymentId]),
      () => reopenPayments(sql, [paymentId]),
    )
    expect(again).toEqual([[paymentId], []])
    expect(await placesOf(paymentId)).toEqual({ queue: 1, outcome: 0 })
  })
})

/** Runs `first` in a transaction, and starts `second` before that transaction commits, so that `second` waits for its locks. */
async function raced<First, Second>(
  first: (tx: Queryable) => Promise<First>,
  second: () => Promise<Second>,
): Promise<[First, Second]> {
  let after: Promise<Second> | undefined
  const done = (await sql.begin(async (tx) => {
    const result = await first(tx)
    after = second()
    after.catch(() => {})
    await until('the second waits for the first', async () => {
      const waiting = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      return waiting.length > 0
    })
    return result
  })) as First
  if (!after) throw new Error('the second was never begun')
  return [done, await after]
}

async function placesOf(paymentId: string) {
  const [row] = await sql`
    select (select count(*)::int from queue where payment_id = ${paymentId}) as queue,
      (select count(*)::int from payment_result where payment_id = ${paymentId}) as outcome`
  return row
}

describe('constraints', () => {
  const refused = (change: Promise<unknown>, message: RegExp) => expect(change).rejects.toThrow(message)

  test('error: rejects a change of a payment', async () => {
    const { paymentId } = await seed()
    await refused(sql`update payment set price = 1 where id = ${paymentId}`, /it is never changed/)
    await refused(sql`update payment set resource = resource`, /a row of payment is a fact/)
  })

  test('error: rejects a stage without its required columns', async () => {
    const { paymentId } = await seed()
    const batchId = await claimed('shared', (await seed()).paymentId)
    const set = (change: Record<string, unknown>) =>
      refused(sql`update queue set ${sql(change)} where payment_id = ${paymentId}`, /check constraint/)
    await set({ stage: 'elsewhere' })
    await set({ stage: 'claimed' })
    await set({ stage: 'sent' })
    await set({ batch_id: batchId })
    await set({ stage: 'deferred' })
    await set({ stage: 'reserved' })
    await set({ next_at: now })
    await set({ stage: 'retrying', next_at: now })
    await set({ attempts: 1 })
    await set({ attempts: 7, first_failed_at: now })
    await set({ first_failed_at: now })
    await set({ submission: randomHex(32) })
    expect(await queued(paymentId)).toMatchObject({ stage: 'waiting', batchId: null })
    await refused(
      sql`update queue set stage = 'claimed', batch_id = 1000000 where payment_id = ${paymentId}`,
      /foreign key/,
    )
  })

  test('error: rejects a result with missing or additional columns for its kind', async () => {
    const refusedEnd = async (ending: Partial<Ending>) => {
      const { paymentId } = await seed()
      await refused(end(paymentId, ending), /check constraint/)
      expect(await queued(paymentId)).toMatchObject({ stage: 'waiting' })
    }
    await refusedEnd({ kind: 'spent', isFinal: true })
    await refusedEnd({ kind: 'settled', isFinal: false })
    await refusedEnd({ kind: 'failed', isFinal: false })
    const { paymentId } = await seed()
    await end(paymentId)
    const set = (change: Record<string, unknown>) =>
      refused(
        sql`update payment_result set ${sql(change)} where payment_id = ${paymentId}`,
        /check constraint/,
      )
    await set({ final_at: null })
    await set({ arrived: null })
    await set({ arrived: 4 })
  })

  test('error: rejects a second row of a payment in the queue or in the results', async () => {
    const [waiting, over] = [await seed(), await seed()]
    await end(over.paymentId)
    // A generated column can't be inserted.
    const [row] = await sql<[{ columns: string }]>`
      select string_agg(column_name, ', ') as columns from information_schema.columns
      where table_name = 'queue' and is_generated = 'NEVER'`
    await refused(
      sql`
        insert into queue (${sql.unsafe(row.columns)})
        select ${sql.unsafe(row.columns)} from queue where payment_id = ${waiting.paymentId}`,
      /queue_pkey/,
    )
    await refused(
      sql`insert into payment_result select * from payment_result where payment_id = ${over.paymentId}`,
      /payment_result_pkey/,
    )
  })
})
