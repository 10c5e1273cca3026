import { describe, expect, test } from 'vitest'
import { claimAs } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { positionOf } from '../../../test/support/paymentPosition.ts'
import {
  blockHashOf,
  type SeededPayment,
  seedPayment,
  seedProvider,
  seedScope,
  seedSettlement,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { recordEvents } from '../facts/record.ts'
import { voidPayment } from '../results/voids.ts'
import { lockUnbatched } from './claims.ts'

const sql = await useDatabase()
const provider = await seedProvider(sql)
const seed = () => seedPayment(sql, { provider })

/** Records that a half of a payment was cancelled, or used for a transfer to someone else. */
async function makeUnsettleable(
  { payer, nonces }: SeededPayment,
  half: 0 | 1,
  how: 'cancelled' | 'foreign_use',
): Promise<void> {
  const use =
    how === 'cancelled'
      ? ({ state: 'cancelled', recipient: null, value: null } as const)
      : ({ state: 'used', recipient: randomHex(20), value: 1n } as const)
  const event = {
    authorizer: payer,
    nonce: nonces[half],
    ...use,
    txHash: randomHex(32),
    logIndex: 1,
    blockNumber: 100n,
    blockHash: blockHashOf(100),
    blockTime: 1_795_262_400n,
    batchLogIndex: null,
  }
  await sql.begin((tx) => recordEvents(tx, seedScope, [event], 'index'))
}

describe('a claim', () => {
  test.each(['cancelled', 'foreign_use'] as const)(
    'error: leaves out a payment whose provider half has the state %s, so that its fee is never charged alone',
    async (how) => {
      const [payment, other] = [await seed(), await seed()]
      await makeUnsettleable(payment, 0, how)
      const ids = [payment.paymentId, other.paymentId]
      const { batch, unsettleable } = await claimAs(sql, 'shared', ids)
      expect(unsettleable).toEqual([payment.paymentId])
      const items = await sql`select payment_id as id from batch_item where batch_id = ${batch?.id ?? 0n}`
      expect(items.map(({ id }) => id)).toEqual([other.paymentId])
    },
  )

  test('behavior: claims only the fee once the provider’s half has moved', async () => {
    const payment = await seed()
    await seedSettlement(sql, payment, { halves: [0] })
    const { batch, unsettleable } = await claimAs(sql, 'shared', [payment.paymentId])
    expect([batch === null, unsettleable]).toEqual([false, []])
  })

  test('behavior: claims the provider’s half if the payment’s fee is cancelled', async () => {
    const payment = await seed()
    await makeUnsettleable(payment, 1, 'cancelled')
    const { batch, unsettleable } = await claimAs(sql, 'shared', [payment.paymentId])
    expect([batch === null, unsettleable]).toEqual([false, []])
  })
})

test('behavior: locks payments for a claim, but skips payments that are in a batch or that another transaction has locked', async () => {
  const ids = [(await seed()).paymentId, (await seed()).paymentId, (await seed()).paymentId]
  const [free = '', held = '', claimed = ''] = ids
  await claimAs(sql, 'shared', [claimed])
  await sql.begin(async (other) => {
    await other`select from queue where payment_id = ${held} for update`
    await sql.begin(async (tx) => expect(await lockUnbatched(tx, ids)).toEqual(new Set([free])))
  })
})

describe('a void', () => {
  const voidNow = (paymentId: string) =>
    voidPayment(sql, { paymentId, providerId: provider.providerId, now: new Date() })

  test('error: refuses to void a payment that a batch holds, because the batch may still settle it', async () => {
    const { paymentId } = await seed()
    await claimAs(sql, 'shared', [paymentId])
    expect(await voidNow(paymentId)).toBe('claimed')
    expect(await positionOf(sql, { paymentId })).toMatchObject({ stage: 'claimed', kind: null })
  })

  test.each([0, 1] as const)('error: refuses to void a payment once half %d has moved', async (half) => {
    const payment = await seed()
    await seedSettlement(sql, payment, { halves: [half] })
    expect(await voidNow(payment.paymentId)).toBe('claimed')
    expect(await positionOf(sql, payment)).toMatchObject({ stage: 'waiting', kind: null })
  })

  test('error: refuses to void another provider’s payment', async () => {
    const { paymentId } = await seed()
    const { providerId } = await seedProvider(sql)
    expect(await voidPayment(sql, { paymentId, providerId, now: new Date() })).toBe('forbidden')
  })
})
