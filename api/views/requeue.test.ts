import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { beforeEach, expect, test } from 'vitest'
import { call, openShop } from '../../test/support/gateway.ts'
import { type SeedPayment, seedPayment, seedSettlement } from '../../test/support/seedPayments.ts'
import { voidNow } from '../../test/support/standing.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { newOperatorKey } from '../http/operator.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)

const seed = (options: Partial<SeedPayment> = {}) =>
  seedPayment(gateway.database, { provider: { ...shop, endpointIds: [shop.endpointId] }, ...options })

async function seedFailed(options: Partial<SeedPayment> = {}) {
  const payment = await seed(options)
  const { paymentId } = payment
  const failure = { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false }
  for (let attempt = 1; attempt <= 6; attempt++)
    await recordFailure(gateway.database, failure, { now: new Date() })
  return payment
}

const requeue = (paymentId: string, key: string | undefined = shop.key) =>
  call(gateway.app, 'POST', `/payments/${paymentId}/requeue`, key === undefined ? {} : { key })

const read = async (paymentId: string) => (await call(gateway.app, 'GET', `/payments/${paymentId}`)).body

test('default', async () => {
  const { paymentId } = await seedFailed()
  expect(await read(paymentId)).toMatchObject({ payment_status: 'failed', attempts: 6 })
  expect(await requeue(paymentId)).toMatchObject({ status: 202, body: { paymentId } })
  expect(await read(paymentId)).toMatchObject({ payment_status: 'verified', attempts: 0, failureCode: null })
})

test('behavior: only its fee is missing', async () => {
  const payment = await seedFailed()
  await seedSettlement(gateway.database, payment, { halves: [0] })
  expect((await requeue(payment.paymentId)).status).toBe(202)
})

test("behavior: one that was taken for over leaves the provider's sums", async () => {
  const { database } = gateway
  const { paymentId } = await seedFailed()
  const sums = () => database`
    select failed_payments as failed from revenue where provider_id = ${shop.providerId} and period = 'day'`
  expect(await sums()).toEqual([])
  await endPayments(database, [{ paymentId, kind: 'failed', code: null, isFinal: true }], new Date())
  expect(await sums()).toEqual([{ failed: 1 }])
  expect((await requeue(paymentId)).status).toBe(202)
  expect(await sums()).toEqual([{ failed: 0 }])
})

test("error: a NUL anywhere is the caller's mistake, not ours", async () => {
  const refused = { status: 400, code: 'invalid_request' }
  expect((await call(gateway.app, 'GET', '/payments/pay_%00')).body).toMatchObject(refused)
  const json = { name: 'a\0b' }
  expect((await call(gateway.app, 'POST', '/providers', { json })).body).toMatchObject(refused)
})

test('error: twice, settled, used otherwise, expired, voided', async () => {
  const { database } = gateway
  const refused = async (paymentId: string, detail: string) =>
    expect((await requeue(paymentId)).body).toMatchObject({ code: 'payment_not_requeueable', detail })

  const twice = await seedFailed()
  await requeue(twice.paymentId)
  await refused(twice.paymentId, 'It has not failed: it is queued, being settled, or settled')

  const settled = await seedFailed()
  await seedSettlement(database, settled)
  const used = 'Nothing of it can be settled any more: its authorization was used or cancelled'
  await refused(settled.paymentId, used)

  const diverted = await seedFailed()
  await seedSettlement(database, diverted, { halves: [0] })
  await database`update authorization_event set state = 'foreign_use' where payment_id = ${diverted.paymentId}`
  await refused(diverted.paymentId, used)

  const expired = await seedFailed({ validBefore: Math.floor(Date.now() / 1000) + 30 })
  await refused(expired.paymentId, 'Its authorization has run out')

  const voided = await seed()
  await voidNow(database, voided)
  await refused(voided.paymentId, 'It was voided: no service, no charge')
})

test("error: unknown, another provider's, no key", async () => {
  const { paymentId } = await seedFailed()
  const other = await openShop(gateway.app)
  expect((await requeue(`pay_${'0'.repeat(32)}`)).body).toMatchObject({ code: 'unknown_payment' })
  expect((await requeue('pay_%00')).body).toMatchObject({ code: 'unknown_payment' })
  expect((await requeue(paymentId, other.key)).body).toMatchObject({ code: 'forbidden' })
  expect((await call(gateway.app, 'POST', `/payments/${paymentId}/requeue`)).body).toMatchObject({
    code: 'unauthorized',
  })
})

test("default: the operator queues anybody's again, and stops a provider's sales", async () => {
  const operator = newOperatorKey()
  const app = gateway.another({ operatorKeyHashes: [Buffer.from(operator.hash, 'hex')] })
  const { key } = operator
  const { paymentId } = await seedFailed()
  const path = `/operator/payments/${paymentId}/requeue`
  expect((await call(app, 'POST', path, { key })).status).toBe(202)
  expect((await call(app, 'POST', path, { key })).body.code).toBe('payment_not_requeueable')
  expect((await call(app, 'POST', path.replace(paymentId, 'pay_1'), { key })).body.code).toBe(
    'unknown_payment',
  )

  const own = await openShop(gateway.app)
  const suspend = (suspended: boolean, providerId = own.providerId) =>
    call(app, 'PATCH', `/operator/providers/${providerId}`, { key, json: { suspended } })
  const { providerId, endpointId } = own
  const challenge = () => call(gateway.another(), 'POST', '/challenge', { json: { providerId, endpointId } })
  for (const twice of [true, true]) expect((await suspend(twice)).status).toBe(200)
  expect((await challenge()).body.code).toBe('provider_disabled')
  expect((await suspend(false)).body).toEqual({ providerId, suspended: false })
  expect((await challenge()).status).toBe(200)
  const { body } = await call<{ changes: object[] }>(app, 'GET', `/providers/${providerId}/changes`, {
    key: own.key,
  })
  // Each change once, and as the operator's.
  expect(body.changes.slice(0, 2)).toMatchObject([
    { by: 'operator', after: { suspendedAt: null } },
    { by: 'operator', before: { suspendedAt: null } },
  ])
  expect(body.changes[2]).not.toMatchObject({ by: 'operator' })
  expect((await suspend(true, `prov_${'0'.repeat(32)}`)).body.code).toBe('unknown_provider')
})
