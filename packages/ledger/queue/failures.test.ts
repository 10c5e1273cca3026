import { expect, test } from 'vitest'
import { failPayment } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { requeuePayment } from '../results/requeue.ts'

const sql = await useDatabase()

async function seed() {
  const provider = await seedProvider(sql)
  const { paymentId } = await seedPayment(sql, { provider })
  return { paymentId, providerId: provider.providerId }
}

const fail = (paymentId: string, isFinal: boolean) => failPayment(sql, paymentId, { isFinal })

async function told(paymentId: string) {
  return sql<{ event: string; occurrence: number }[]>`
    select event, occurrence from outbox where payment_id = ${paymentId} order by id`
}

test('behavior: notifies the provider once about a failed payment', async () => {
  const { paymentId } = await seed()
  expect(await fail(paymentId, true)).toBe(1)
  expect(await fail(paymentId, true)).toBeNull()
  expect(await told(paymentId)).toEqual([{ event: 'settlement.failed', occurrence: 1 }])
})

test('behavior: notifies the provider again if the payment is requeued and fails once more', async () => {
  const { paymentId, providerId } = await seed()
  const failAll = async () => {
    for (let attempt = 1; attempt <= 6; attempt++) expect(await fail(paymentId, false)).toBe(attempt)
  }
  await failAll()
  expect(await requeuePayment(sql, { paymentId, providerId, now: new Date() })).toBe('requeued')
  await failAll()
  expect(await told(paymentId)).toEqual([
    { event: 'settlement.failing', occurrence: 1 },
    { event: 'settlement.failed', occurrence: 1 },
    { event: 'settlement.failing', occurrence: 2 },
    { event: 'settlement.failed', occurrence: 2 },
  ])
})
