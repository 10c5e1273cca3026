import type { Hex } from 'viem'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { createDatabaseInOtherZone } from '../../../test/support/database.ts'
import {
  blockHashOf,
  seedChainId,
  seedHalf,
  seedPayment,
  seedProvider,
  seedScope,
  toCandidate,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { acceptPayments, type Verdict } from '../acceptance/acceptPayments.ts'
import { releaseReservations } from '../acceptance/facilitations.ts'
import { storeRefund } from '../acceptance/refunds.ts'
import { storeSubmission } from '../acceptance/submissions.ts'
import { recordEvents } from '../facts/record.ts'
import { setGasGrant } from '../registry/apiKeys.ts'
import { openDatabase } from '../store/database.ts'
import { bookGas, coverSubmission, drawGas, isInBudget, readRefundGas, readRefundPool } from './gasDraws.ts'
import { endPayments } from './stages.ts'

const noon = new Date('2026-11-23T12:00:00Z')
const tomorrow = new Date('2026-11-24T00:00:00Z')
const lastMoment = new Date(tomorrow.getTime() - 1)
const [cost, common] = [30n, 100n]
const limits = { budget: 50n, common }

const url = await createDatabaseInOtherZone()
const sql = openDatabase({ url, applicationName: 'test' })
const twin = openDatabase({ url, applicationName: 'test twin' })
const provider = await seedProvider(sql)
afterAll(() => Promise.all([sql.end(), twin.end()]))
beforeEach(async () => {
  await sql`truncate queue, gas_draw, batch_item cascade`
  await setGasGrant(sql, provider.providerId, 0n)
})

type Options = { at?: Date; amount?: bigint; providerId?: string | null; nonce?: Hex; reservedUntil?: Date }

/** Creates a facilitator payment, which pays no fee. */
function candidateOf({
  at = noon,
  amount = cost,
  providerId = null,
  nonce = randomHex(32),
  reservedUntil,
}: Options = {}) {
  return toCandidate({
    source: 'facilitator',
    providerId,
    feeAmount: 0n,
    halves: [seedHalf({ value: 1n, nonce })],
    acceptedAt: at,
    first: reservedUntil
      ? { stage: 'reserved', until: reservedUntil.getTime() }
      : { stage: 'due', since: at.getTime() },
    facilitation: { providerId, paymentIdentifier: null },
    gas: { providerId, amount, common },
  })
}

const accept = async (options: Options = {}, database = sql) => {
  const candidate = candidateOf(options)
  const [verdict] = await acceptPayments(database, [candidate])
  return { verdict, paymentId: candidate.id }
}

const drawn = async () =>
  (
    await sql<{ row: string }[]>`
      select to_char(day, 'DD') || ' ' || drawer || ' ' || drawn as row from gas_draw where drawn > 0 order by day, drawer`
  ).map(({ row }) => row)

describe('submissions', () => {
  const platform: Hex = `0x${'fe'.repeat(20)}`
  /** Submits one transfer. */
  const submit = (value: bigint, recipient: Hex, gasPerFee: bigint, left: bigint, at = noon) =>
    sql.begin(async (tx) => {
      const key = randomHex(32)
      const candidate = toCandidate({
        source: 'submission',
        feeRecipient: platform,
        acceptedAt: noon,
        halves: [seedHalf({ recipient, value })],
      })
      await storeSubmission(tx, { key, candidates: [candidate], known: [] }, noon)
      const paid = { cost: { expected: cost, most: 2n * cost }, gasPerFee, providerId: null, common: left }
      await coverSubmission(tx, key, paid, at)
    })

  test.each([
    ['covers its expected cost', cost, 10n, 0n, []],
    ['is too small, so the allowance pays its maximum cost', cost - 1n, 10n, 100n, ['23 common:test 31']],
    ['is below its expected cost, if the operator requires no minimum', 1n, 0n, 0n, []],
  ])('default: submits a lone fee that %s', async (_, fee, gasPerFee, left, expected) => {
    await submit(fee, platform, gasPerFee, left)
    expect(await drawn()).toEqual(expected)
  })

  test('behavior: a submission draws from the allowance of the UTC day on which it arrives', async () => {
    await submit(1n, randomHex(20), 10n, 100n, lastMoment)
    await submit(1n, randomHex(20), 10n, 100n, tomorrow)
    expect(await drawn()).toEqual(['23 common:test 60', '24 common:test 60'])
  })

  test.each([
    ['a lone fee that is too small', cost - 1n, platform, 10n],
    ['a lone fee of one base unit', 1n, platform, 10n],
    ['a transfer that is not a fee', 1_000n, randomHex(20), 0n],
  ])('error: rejects %s if too little of the allowance is left', async (_, value, recipient, gasPerFee) => {
    await expect(submit(value, recipient, gasPerFee, 30n)).rejects.toMatchObject({ code: 'gas_not_covered' })
    expect(await sql`select from queue`).toHaveLength(0)
  })
})

describe('acceptance', () => {
  test('default: the common allowance is never overdrawn, and a refused payment leaves no rows', async () => {
    const verdicts: (Verdict | undefined)[] = []
    for (let i = 0; i < 4; i++) verdicts.push((await accept()).verdict)
    expect(verdicts).toEqual(['accepted', 'accepted', 'accepted', 'gas_not_covered'])
    expect(await drawn()).toEqual(['23 common:test 90'])
    const refused = candidateOf()
    expect(await acceptPayments(sql, [refused, candidateOf({ amount: 10n })])).toEqual([
      'gas_not_covered',
      'accepted',
    ])
    expect(await sql`select from payment where id = ${refused.id}`).toHaveLength(0)
    const totals = await sql`select accepted_total as total from payer where address = ${refused.payer}`
    expect([...totals]).toEqual([{ total: 0n }])
  })

  test('behavior: accepts only as many concurrent payments as the remaining allowance covers', async () => {
    const raced = await Promise.all(
      Array.from({ length: 40 }, (_, i) => accept({}, i % 2 === 0 ? sql : twin)),
    )
    expect(raced.filter(({ verdict }) => verdict === 'accepted')).toHaveLength(3)
    expect(await drawn()).toEqual(['23 common:test 90'])
  })

  test('behavior: a grant serves only its provider, and keys without a grant share the common allowance', async () => {
    const { providerId } = provider
    for (const by of [null, providerId, null])
      expect((await accept({ providerId: by })).verdict).toBe('accepted')
    expect((await accept({ providerId })).verdict).toBe('gas_not_covered')
    await setGasGrant(sql, providerId, 40n)
    expect((await accept({ providerId })).verdict).toBe('accepted')
    expect((await accept({ providerId })).verdict).toBe('gas_not_covered')
    expect(await drawn()).toEqual(['23 common:test 90', `23 ${providerId}:test 30`])
  })

  test('behavior: test networks have separate allowances and grants with the same limits', async () => {
    const { providerId } = provider
    await setGasGrant(sql, providerId, 40n)
    const sources = await sql`
      select chain, of_provider, source.* from (values (8453), (84532)) network (chain)
      cross join (values (null), (${providerId}), (${`${providerId}:test`})) asked (of_provider)
      cross join lateral gas_source(of_provider, 100, chain, 'common') source order by chain, of_provider nulls first`
    expect(sources.map(({ chain, drawer, most }) => `${chain} ${drawer} ${most}`)).toEqual([
      '8453 common 100',
      `8453 ${providerId} 40`,
      `8453 ${providerId} 40`,
      '84532 common:test 100',
      `84532 ${providerId}:test 40`,
      `84532 ${providerId}:test 40`,
    ])
  })

  test('behavior: each UTC day has a separate allowance', async () => {
    for (let i = 0; i < 3; i++) await accept()
    expect((await accept({ at: lastMoment })).verdict).toBe('gas_not_covered')
    expect((await accept({ at: tomorrow })).verdict).toBe('accepted')
    expect(await drawn()).toEqual(['23 common:test 90', '24 common:test 30'])
  })

  test('behavior: a replay draws nothing, and a payment that lapses or ends unsent returns its whole reservation', async () => {
    const nonce = randomHex(32)
    const [first, copy] = [candidateOf({ nonce }), candidateOf({ nonce })]
    expect(await acceptPayments(sql, [first])).toEqual(['accepted'])
    expect(await acceptPayments(sql, [{ ...copy, payer: first.payer }])).toEqual(['replayed'])
    expect(await drawn()).toEqual(['23 common:test 30'])
    await accept({ reservedUntil: noon })
    expect(await drawn()).toEqual(['23 common:test 60'])
    expect(await releaseReservations(sql, new Date(noon.getTime() + 1))).toBe(1)
    expect(await drawn()).toEqual(['23 common:test 30'])
    await endPayments(sql, [{ paymentId: first.id, kind: 'failed', code: 'x', isFinal: false }], noon)
    expect(await drawn()).toEqual([])
  })
})

describe('refunds', () => {
  const share = 25n

  async function refund(of: { providerId: string }, { amount = 5n, at = noon, database = sql } = {}) {
    const { paymentId } = await seedPayment(sql, { provider: of as typeof provider })
    const candidate = toCandidate({
      source: 'refund',
      providerId: null,
      feeAmount: 0n,
      halves: [seedHalf({ value: 1n })],
      acceptedAt: at,
      first: { stage: 'waiting' },
      gas: { providerId: of.providerId, amount, common },
    })
    const verdict = await storeRefund(
      database,
      { paymentId, number: 1, providerId: of.providerId },
      candidate,
    )
    return { verdict, paymentId: candidate.id }
  }
  const left = (of: { providerId: string }) =>
    readRefundGas(sql, { providerId: of.providerId, chainId: seedChainId, common, now: noon })

  test('behavior: one provider’s refunds get at most a quarter of the pool, so that other providers still get their shares', async () => {
    const other = await seedProvider(sql)
    expect(await left(provider)).toEqual({ hasGrant: false, most: common, left: common })
    const verdicts = await Promise.all(
      Array.from({ length: 12 }, (_, i) => refund(provider, { database: i % 2 === 0 ? sql : twin })),
    )
    expect(verdicts.filter(({ verdict }) => verdict === 'accepted')).toHaveLength(5)
    expect(await drawn()).toEqual(['23 refunds:test 25'])
    expect(await left(provider)).toEqual({ hasGrant: false, most: share, left: 0n })
    expect((await refund(other)).verdict).toBe('accepted')
    expect((await left(other)).left).toBe(20n)
    const at = { chainId: seedChainId, common, now: noon }
    expect(await readRefundPool(sql, at)).toBe(70n)
  })

  test('behavior: accepts a provider’s first refund of a day even if it costs more than a share of the pool, and rejects the second', async () => {
    expect((await refund(provider, { amount: common + 1n })).verdict).toBe('gas_not_covered')
    expect((await refund(provider, { amount: share + 16n })).verdict).toBe('accepted')
    expect((await left(provider)).left).toBe(0n)
    expect((await refund(provider, { amount: 1n })).verdict).toBe('gas_not_covered')
    const other = await seedProvider(sql)
    expect((await left(other)).left).toBe(common - share - 16n)
    expect((await refund(other, { amount: share })).verdict).toBe('accepted')
  })

  test('behavior: using up the common allowance doesn’t reduce the pool for refunds', async () => {
    for (let i = 0; i < 3; i++) await accept()
    expect((await accept()).verdict).toBe('gas_not_covered')
    expect((await refund(provider)).verdict).toBe('accepted')
  })

  test('behavior: counts the cost of a refund, and releases the unused part of its reservation', async () => {
    const { paymentId } = await refund(provider, { amount: 20n })
    expect((await left(provider)).left).toBe(5n)
    await bookGas(sql, await claim([paymentId]), { cost: 12n, isOver: true, now: noon })
    expect((await left(provider)).left).toBe(13n)
    await sql`delete from queue where payment_id = ${paymentId}`
    expect((await left(provider)).left).toBe(13n)
    expect((await refund(provider, { amount: 14n })).verdict).toBe('gas_not_covered')
    expect((await refund(provider, { amount: 13n })).verdict).toBe('accepted')
    expect((await refund(provider, { amount: 25n, at: tomorrow })).verdict).toBe('accepted')
  })

  test('behavior: a refund draws more if gas became more expensive, within its provider’s share', async () => {
    const [one, other] = [await refund(provider, { amount: 10n }), await refund(provider, { amount: 10n })]
    const want = ({ paymentId }: { paymentId: string }, amount: bigint) => ({
      paymentId,
      amount,
      fromBudget: false,
    })
    const draw = async (...wants: ReturnType<typeof want>[]) =>
      (await drawGas(sql, seedChainId, wants, limits, noon)).size
    expect(await draw(want(one, 16n))).toBe(0)
    expect(await draw(want(one, 15n), want(other, 11n))).toBe(1)
    expect(await drawn()).toEqual(['23 refunds:test 25'])
  })

  test('behavior: a provider’s grant pays for its refunds instead of the pool, without the limit of a quarter', async () => {
    await setGasGrant(sql, provider.providerId, 90n)
    expect((await refund(provider, { amount: 80n })).verdict).toBe('accepted')
    expect(await left(provider)).toEqual({ hasGrant: true, most: 90n, left: 10n })
    expect(await drawn()).toEqual([`23 ${provider.providerId}:test 80`])
  })
})

/** Puts payments into a batch, like a claim. */
async function claim(ids: readonly string[]): Promise<bigint> {
  const [batch] = await sql<[{ id: bigint }]>`
    insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence)
    values (${randomHex(32)}, ${seedChainId}, ${randomHex(20)}, ${randomHex(20)}, 'time', 'shared', ${randomHex(20)}, 1)
    returning id`
  await sql`update queue set stage = 'claimed', batch_id = ${batch.id} where payment_id in ${sql([...ids])}`
  await sql`
    insert into batch_item (batch_id, position, payment_id)
    select ${batch.id}, place, id from unnest(${[...ids]}::text[]) with ordinality as item (id, place)`
  return batch.id
}

describe('a transaction', () => {
  test('default: charges a transaction’s cost to the allowance that the transaction’s payments drew from, and releases the unused part of their reservations', async () => {
    const [one, other] = [await accept(), await accept()]
    const sold = await seedPayment(sql, { provider })
    const batch = await claim([one.paymentId, other.paymentId, sold.paymentId])
    // The payment bought at the gateway has two of the batch's four authorizations, so half of the cost counts for the other two payments.
    await bookGas(sql, batch, { cost: 41n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 common:test 22'])
    await sql`delete from queue`
    expect(await drawn()).toEqual(['23 common:test 22'])
  })

  test('behavior: a reverted transaction leaves the unused part of the reservation for the next transaction', async () => {
    const { paymentId } = await accept()
    await bookGas(sql, await claim([paymentId]), { cost: 12n, isOver: false, now: noon })
    expect(await drawn()).toEqual(['23 common:test 30'])
    await bookGas(sql, await claim([paymentId]), { cost: 30n, isOver: true, now: noon })
    // The transaction cost more than its first estimate, so less is left for other payments.
    expect(await drawn()).toEqual(['23 common:test 42'])
  })

  test('behavior: gas that a fee doesn’t cover is drawn from the network’s budget, regardless of draws from other allowances', async () => {
    for (let i = 0; i < 3; i++) await accept()
    const [first, second] = [await seedPayment(sql, { provider }), await seedPayment(sql, { provider })]
    const want = ({ paymentId }: { paymentId: string }) => ({ paymentId, amount: 30n, fromBudget: true })
    expect(await drawGas(sql, seedChainId, [want(first), want(second)], limits, noon)).toEqual(
      new Set([first.paymentId]),
    )
    // The payment draws a larger amount, which replaces its first draw.
    const more = { ...want(first), amount: 45n }
    expect(await drawGas(sql, seedChainId, [more], limits, noon)).toEqual(new Set([first.paymentId]))
    expect(await drawn()).toEqual(['23 budget:31337 45', '23 common:test 90'])
    expect((await drawGas(sql, seedChainId, [{ ...more, amount: 51n }], limits, noon)).size).toBe(0)
    expect(await drawn()).toEqual(['23 budget:31337 45', '23 common:test 90'])
    expect((await drawGas(sql, seedChainId, [want(second)], { ...limits, budget: null }, noon)).size).toBe(1)
  })

  test('behavior: books the part of a payment’s cost that its fee doesn’t cover, whether the payment drew more or less than that part', async () => {
    const draw = async (amount: bigint) => {
      const { paymentId } = await seedPayment(sql, { provider, feeAmount: 100n })
      const wants = [{ paymentId, amount, fromBudget: true }]
      expect((await drawGas(sql, seedChainId, wants, limits, noon)).size).toBe(1)
      return paymentId
    }
    // Each of the batch's two payments costs 120. The second payment's fee covers that; the first payment's fee is 100, which leaves 20.
    const cheaper = [await draw(50n), (await seedPayment(sql, { provider })).paymentId]
    await bookGas(sql, await claim(cheaper), { cost: 240n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 20'])
    const reverted = [await draw(15n)]
    await bookGas(sql, await claim(reverted), { cost: 110n, isOver: false, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 35'])
    await bookGas(sql, await claim(reverted), { cost: 160n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 90'])
  })

  test('behavior: books costs that neither fees nor draws cover, such as sweeps, to the network’s budget', async () => {
    const sold = [await seedPayment(sql, { provider, feeAmount: 100n })]
    sold.push(await seedPayment(sql, { provider, feeAmount: 100n }))
    const ids = sold.map(({ paymentId }) => paymentId)
    await bookGas(sql, await claim(ids), { cost: 200n, isOver: true, now: noon })
    expect(await drawn()).toEqual([])
    await bookGas(sql, await claim(ids), { cost: 230n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 30'])
    const left = (amount: bigint, now = noon) => isInBudget(sql, seedChainId, { amount, budget: 50n, now })
    expect([await left(20n), await left(21n)]).toEqual([true, false])
    // Nothing has been drawn yet on the next day.
    expect([await left(50n, tomorrow), await left(51n, tomorrow)]).toEqual([true, false])
  })

  test('behavior: costs that neither fees nor draws cover count on the day the transaction is mined', async () => {
    for (const [now, spent] of [
      [lastMoment, 30n],
      [tomorrow, 40n],
    ] as const) {
      const { paymentId } = await seedPayment(sql, { provider, feeAmount: 1n })
      await bookGas(sql, await claim([paymentId]), { cost: spent + 1n, isOver: true, now })
    }
    expect(await drawn()).toEqual(['23 budget:31337 30', '24 budget:31337 40'])
    const isCovered = (now: Date, amount: bigint) =>
      isInBudget(sql, seedChainId, { amount, budget: 50n, now })
    expect([await isCovered(lastMoment, 20n), await isCovered(lastMoment, 21n)]).toEqual([true, false])
    expect([await isCovered(tomorrow, 10n), await isCovered(tomorrow, 11n)]).toEqual([true, false])
  })

  test('behavior: a fee that its payer has cancelled covers no gas', async () => {
    const payment = await seedPayment(sql, { provider })
    const wants = [{ paymentId: payment.paymentId, amount: 40n, fromBudget: true }]
    expect((await drawGas(sql, seedChainId, wants, limits, noon)).size).toBe(1)
    const cancelled = {
      authorizer: payment.payer,
      nonce: payment.nonces[1],
      state: 'cancelled' as const,
      recipient: null,
      value: null,
      txHash: randomHex(32),
      logIndex: 0,
      batchLogIndex: null,
      blockNumber: 100n,
      blockHash: blockHashOf(100),
      blockTime: 1_795_262_400n,
    }
    await sql.begin((tx) => recordEvents(tx, seedScope, [cancelled], 'index'))
    await bookGas(sql, await claim([payment.paymentId]), { cost: 30n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 30'])
  })

  test('behavior: draws yesterday’s reservation again from today’s allowance', async () => {
    const { paymentId } = await accept()
    const want = { paymentId, amount: 40n, fromBudget: false }
    expect((await drawGas(sql, seedChainId, [want], limits, tomorrow)).size).toBe(1)
    expect(await drawn()).toEqual(['24 common:test 40'])
  })

  test('behavior: concurrent draws together get no more than the allowance has left', async () => {
    const payments = await Promise.all(Array.from({ length: 12 }, () => seedPayment(sql, { provider })))
    const counts = await Promise.all(
      payments.map(async ({ paymentId }, i) => {
        const wants = [{ paymentId, amount: 20n, fromBudget: true }]
        return (await drawGas(i % 2 === 0 ? sql : twin, seedChainId, wants, limits, noon)).size
      }),
    )
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(2)
    expect(await drawn()).toEqual(['23 budget:31337 40'])
  })
})
