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
import { storeSubmission } from '../acceptance/submissions.ts'
import { recordEvents } from '../facts/record.ts'
import { setGasGrant } from '../registry/apiKeys.ts'
import { openDatabase } from '../store/database.ts'
import { bookGas, coverSubmission, drawGas, isInBudget } from './gasDraws.ts'
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
  await sql`truncate queue, gas_draw cascade`
  await setGasGrant(sql, provider.providerId, 0n)
})

type Options = { at?: Date; amount?: bigint; providerId?: string | null; nonce?: Hex; reservedUntil?: Date }

/** A facilitator's payment, which pays no fee. */
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

describe('a submission', () => {
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
    ['covers what it is expected to cost', cost, 10n, 0n, []],
    ['is too small, and the allowance adds what it may cost', cost - 1n, 10n, 100n, ['23 common:test 31']],
    ['is any, where the operator asks for no more', 1n, 0n, 0n, []],
  ])('default: a lone fee that %s', async (_, fee, gasPerFee, left, expected) => {
    await submit(fee, platform, gasPerFee, left)
    expect(await drawn()).toEqual(expected)
  })

  test('behavior: draws from the day on which it is submitted', async () => {
    await submit(1n, randomHex(20), 10n, 100n, lastMoment)
    await submit(1n, randomHex(20), 10n, 100n, tomorrow)
    expect(await drawn()).toEqual(['23 common:test 60', '24 common:test 60'])
  })

  test.each([
    ['a lone fee that is too small', cost - 1n, platform, 10n],
    ['the least', 1n, platform, 10n],
    ['a transfer that is no fee', 1_000n, randomHex(20), 0n],
  ])('error: %s, and too little is left', async (_, value, recipient, gasPerFee) => {
    await expect(submit(value, recipient, gasPerFee, 30n)).rejects.toMatchObject({ code: 'gas_not_covered' })
    expect(await sql`select from queue`).toHaveLength(0)
  })
})

describe('acceptance', () => {
  test('default: what all share is never overdrawn, and who is refused is nowhere', async () => {
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

  test('behavior: twins that race for the last of it: as many are taken as it covers', async () => {
    const raced = await Promise.all(
      Array.from({ length: 40 }, (_, i) => accept({}, i % 2 === 0 ? sql : twin)),
    )
    expect(raced.filter(({ verdict }) => verdict === 'accepted')).toHaveLength(3)
    expect(await drawn()).toEqual(['23 common:test 90'])
  })

  test('behavior: a grant is its provider’s alone, and keys without one share what strangers have', async () => {
    const { providerId } = provider
    for (const by of [null, providerId, null])
      expect((await accept({ providerId: by })).verdict).toBe('accepted')
    expect((await accept({ providerId })).verdict).toBe('gas_not_covered')
    await setGasGrant(sql, providerId, 40n)
    expect((await accept({ providerId })).verdict).toBe('accepted')
    expect((await accept({ providerId })).verdict).toBe('gas_not_covered')
    expect(await drawn()).toEqual(['23 common:test 90', `23 ${providerId}:test 30`])
  })

  test('behavior: test networks have drawers of their own, of the same limits', async () => {
    const { providerId } = provider
    await setGasGrant(sql, providerId, 40n)
    const sources = await sql`
      select chain, of_provider, source.* from (values (8453), (84532)) network (chain)
      cross join (values (null), (${providerId}), (${`${providerId}:test`})) asked (of_provider)
      cross join lateral gas_source(of_provider, 100, chain) source order by chain, of_provider nulls first`
    expect(sources.map(({ chain, drawer, most }) => `${chain} ${drawer} ${most}`)).toEqual([
      '8453 common 100',
      `8453 ${providerId} 40`,
      `8453 ${providerId} 40`,
      '84532 common:test 100',
      `84532 ${providerId}:test 40`,
      `84532 ${providerId}:test 40`,
    ])
  })

  test('behavior: each UTC day has its own', async () => {
    for (let i = 0; i < 3; i++) await accept()
    expect((await accept({ at: lastMoment })).verdict).toBe('gas_not_covered')
    expect((await accept({ at: tomorrow })).verdict).toBe('accepted')
    expect(await drawn()).toEqual(['23 common:test 90', '24 common:test 30'])
  })

  test('behavior: a copy draws nothing, and what lapses or ends unsent gives all of it back', async () => {
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

/** Puts payments into a batch, as a claim does. */
async function claim(ids: readonly string[]): Promise<bigint> {
  const [batch] = await sql<[{ id: bigint }]>`
    insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence)
    values (${randomHex(32)}, ${seedChainId}, ${randomHex(20)}, ${randomHex(20)}, 'time', 'shared', ${randomHex(20)}, 1)
    returning id`
  await sql`update queue set stage = 'claimed', batch_id = ${batch.id} where payment_id in ${sql([...ids])}`
  return batch.id
}

describe('a transaction', () => {
  test('default: its cost is booked to whoever drew for it, and the rest is free at once', async () => {
    const [one, other] = [await accept(), await accept()]
    const sold = await seedPayment(sql, { provider })
    const batch = await claim([one.paymentId, other.paymentId, sold.paymentId])
    // Of its four authorizations, two were bought.
    await bookGas(sql, batch, { cost: 41n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 common:test 22'])
    await sql`delete from queue`
    expect(await drawn()).toEqual(['23 common:test 22'])
  })

  test('behavior: one that reverted leaves the rest of the reservation for the next', async () => {
    const { paymentId } = await accept()
    await bookGas(sql, await claim([paymentId]), { cost: 12n, isOver: false, now: noon })
    expect(await drawn()).toEqual(['23 common:test 30'])
    await bookGas(sql, await claim([paymentId]), { cost: 30n, isOver: true, now: noon })
    // It cost more than was first offered, so others find less.
    expect(await drawn()).toEqual(['23 common:test 42'])
  })

  test('behavior: what a fee lacks is drawn from the network’s budget, whatever others have used up', async () => {
    for (let i = 0; i < 3; i++) await accept()
    const [first, second] = [await seedPayment(sql, { provider }), await seedPayment(sql, { provider })]
    const want = ({ paymentId }: { paymentId: string }) => ({ paymentId, amount: 30n, fromBudget: true })
    expect(await drawGas(sql, seedChainId, [want(first), want(second)], limits, noon)).toEqual(
      new Set([first.paymentId]),
    )
    // It draws again, and more: that replaces its first draw.
    const more = { ...want(first), amount: 45n }
    expect(await drawGas(sql, seedChainId, [more], limits, noon)).toEqual(new Set([first.paymentId]))
    expect(await drawn()).toEqual(['23 budget:31337 45', '23 common:test 90'])
    expect((await drawGas(sql, seedChainId, [{ ...more, amount: 51n }], limits, noon)).size).toBe(0)
    expect(await drawn()).toEqual(['23 budget:31337 45', '23 common:test 90'])
    expect((await drawGas(sql, seedChainId, [want(second)], { ...limits, budget: null }, noon)).size).toBe(1)
  })

  test('behavior: what was added to a fee is what its share cost beyond it, dearer or cheaper than was planned', async () => {
    const draw = async (amount: bigint) => {
      const { paymentId } = await seedPayment(sql, { provider, feeAmount: 100n })
      const wants = [{ paymentId, amount, fromBudget: true }]
      expect((await drawGas(sql, seedChainId, wants, limits, noon)).size).toBe(1)
      return paymentId
    }
    // With one that carries itself, each of the two costs 120.
    const cheaper = [await draw(50n), (await seedPayment(sql, { provider })).paymentId]
    await bookGas(sql, await claim(cheaper), { cost: 240n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 20'])
    const reverted = [await draw(15n)]
    await bookGas(sql, await claim(reverted), { cost: 110n, isOver: false, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 35'])
    await bookGas(sql, await claim(reverted), { cost: 160n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 90'])
  })

  test('behavior: what neither fees nor drawers cover of a transaction, as of sweeps, is the network’s budget', async () => {
    const sold = [await seedPayment(sql, { provider, feeAmount: 100n })]
    sold.push(await seedPayment(sql, { provider, feeAmount: 100n }))
    const ids = sold.map(({ paymentId }) => paymentId)
    await bookGas(sql, await claim(ids), { cost: 200n, isOver: true, now: noon })
    expect(await drawn()).toEqual([])
    await bookGas(sql, await claim(ids), { cost: 230n, isOver: true, now: noon })
    expect(await drawn()).toEqual(['23 budget:31337 30'])
    const left = (amount: bigint, now = noon) => isInBudget(sql, seedChainId, { amount, budget: 50n, now })
    expect([await left(20n), await left(21n)]).toEqual([true, false])
    // Nothing is drawn yet on a new day.
    expect([await left(50n, tomorrow), await left(51n, tomorrow)]).toEqual([true, false])
  })

  test('behavior: costs that neither fees nor drawers cover count on the day on which the transaction is mined', async () => {
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

  test('behavior: a fee that its payer has cancelled carries none of it', async () => {
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

  test('behavior: a reservation of yesterday is drawn anew of today’s', async () => {
    const { paymentId } = await accept()
    const want = { paymentId, amount: 40n, fromBudget: false }
    expect((await drawGas(sql, seedChainId, [want], limits, tomorrow)).size).toBe(1)
    expect(await drawn()).toEqual(['24 common:test 40'])
  })

  test('behavior: twins that plan at once draw no more than there is', async () => {
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
