import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { beforeEach, describe, expect, test } from 'vitest'
import { call, openShop } from '../../test/support/gateway.ts'
import { failPayments, voidNow } from '../../test/support/paymentPosition.ts'
import { type SeedPayment, seedPayment, seedSettlement } from '../../test/support/seedPayments.ts'
import { seedTab } from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { newOperatorKey } from '../http/operator.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any

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

test('default: requeues a failed payment with new attempts', async () => {
  const { paymentId } = await seedFailed()
  expect(await read(paymentId)).toMatchObject({ payment_status: 'failed', attempts: 6 })
  expect(await requeue(paymentId)).toMatchObject({ status: 202, body: { paymentId } })
  expect(await read(paymentId)).toMatchObject({ payment_status: 'verified', attempts: 0, failureCode: null })
})

test('behavior: requeues a payment of which only the fee is missing', async () => {
  const payment = await seedFailed()
  await seedSettlement(gateway.database, payment, { halves: [0] })
  expect((await requeue(payment.paymentId)).status).toBe(202)
})

test("behavior: a payment that was considered final leaves the provider's sums when it is requeued", async () => {
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

test('error: refuses a NUL character in any field as `invalid_request`', async () => {
  const refused = { status: 400, code: 'invalid_request' }
  expect((await call(gateway.app, 'GET', '/payments/pay_%00')).body).toMatchObject(refused)
  const json = { name: 'a\0b' }
  expect((await call(gateway.app, 'POST', '/providers', { json })).body).toMatchObject(refused)
})

test('error: rejects payments that are queued already, settled, used elsewhere, expired or voided', async () => {
  const { database } = gateway
  const refused = async (paymentId: string, detail: string) =>
    expect((await requeue(paymentId)).body).toMatchObject({ code: 'payment_not_requeueable', detail })

  const twice = await seedFailed()
  await requeue(twice.paymentId)
  await refused(twice.paymentId, 'It has not failed: it is queued, being settled or settled')

  const settled = await seedFailed()
  await seedSettlement(database, settled)
  const used = 'It can no longer settle: its authorization was used or cancelled'
  await refused(settled.paymentId, used)

  const diverted = await seedFailed()
  await seedSettlement(database, diverted, { halves: [0] })
  await database`update authorization_event set state = 'foreign_use' where payment_id = ${diverted.paymentId}`
  await refused(diverted.paymentId, used)

  const expired = await seedFailed({ validBefore: Math.floor(Date.now() / 1000) + 30 })
  await refused(expired.paymentId, 'Its authorization has expired')

  const voided = await seed()
  await voidNow(database, voided)
  await refused(voided.paymentId, 'It was voided, so the buyer is not charged')
})

test("error: rejects an unknown payment, another provider's payment, and a request without a key", async () => {
  const { paymentId } = await seedFailed()
  const other = await openShop(gateway.app)
  expect((await requeue(`pay_${'0'.repeat(32)}`)).body).toMatchObject({ code: 'unknown_payment' })
  expect((await requeue('pay_%00')).body).toMatchObject({ code: 'unknown_payment' })
  expect((await requeue(paymentId, other.key)).body).toMatchObject({ code: 'forbidden' })
  expect((await call(gateway.app, 'POST', `/payments/${paymentId}/requeue`)).body).toMatchObject({
    code: 'unauthorized',
  })
})

test("default: the operator can requeue any provider's payment, and stop a provider's sales", async () => {
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
  // Each change is logged once, as the operator's.
  expect(body.changes.slice(0, 2)).toMatchObject([
    { by: 'operator', after: { suspendedAt: null } },
    { by: 'operator', before: { suspendedAt: null } },
  ])
  expect(body.changes[2]).not.toMatchObject({ by: 'operator' })
  expect((await suspend(true, `prov_${'0'.repeat(32)}`)).body.code).toBe('unknown_provider')
})

describe('POST /providers/{id}/payments/requeue', () => {
  const requeueMany = (json: object, { providerId, key } = shop) =>
    call<Body>(gateway.app, 'POST', `/providers/${providerId}/payments/requeue`, { key, json })

  test('behavior: requeues failed payments by their ids, and gives a reason for each that it refuses', async () => {
    const [first, second, waiting] = [await seedFailed(), await seedFailed(), await seed()]
    const expired = await seedFailed({ validBefore: Math.floor(Date.now() / 1000) + 30 })
    const other = await openShop(gateway.app)
    const theirs = await seedFailed({ provider: { ...other, endpointIds: [other.endpointId] } })
    const tab = await seedTab(gateway.database, {
      sales: [{ provider: { ...shop, endpointIds: [shop.endpointId] } }],
    })
    const unknown = `pay_${'0'.repeat(32)}`
    const paymentIds = [first, second, waiting, expired, theirs, tab].map(({ paymentId }) => paymentId)
    const { status, body } = await requeueMany({
      paymentIds: [...paymentIds, unknown, 'pay_1', first.paymentId],
    })
    expect(status).toBe(200)
    const requeued = { requeued: true, code: null, detail: null }
    const refused = (paymentId: string, code: string, detail: unknown = expect.any(String)) => ({
      paymentId,
      requeued: false,
      code,
      detail,
    })
    expect(body).toEqual({
      results: [
        { paymentId: first.paymentId, ...requeued },
        { paymentId: second.paymentId, ...requeued },
        refused(waiting.paymentId, 'payment_not_requeueable', expect.stringContaining('It has not failed')),
        refused(expired.paymentId, 'payment_not_requeueable', 'Its authorization has expired'),
        refused(theirs.paymentId, 'forbidden'),
        refused(tab.paymentId, 'forbidden'),
        refused(unknown, 'unknown_payment'),
        refused('pay_1', 'unknown_payment'),
      ],
      cursor: null,
    })
    // The results equal those of requeueing one by one.
    for (const { paymentId, code, detail } of body.results.slice(2))
      expect((await requeue(paymentId)).body).toMatchObject({ code, ...(detail && { detail }) })
    expect(await read(first.paymentId)).toMatchObject({ payment_status: 'verified', attempts: 0 })
    expect(await read(theirs.paymentId)).toMatchObject({ payment_status: 'failed' })
  })

  test('behavior: requeues all payments that match a filter, page by page, even if some of them are refused', async () => {
    const payer = randomHex(20)
    const stays = { payer, validBefore: Math.floor(Date.now() / 1000) + 30 }
    const failed: string[] = []
    for (const options of [{ payer }, stays, stays, { payer }, { payer }])
      failed.unshift((await seedFailed(options)).paymentId)
    const another = await seedFailed()
    await seedTab(gateway.database, {
      payer,
      sales: [{ provider: { ...shop, endpointIds: [shop.endpointId] } }],
    }).then(({ paymentId }) => failPayments(gateway.database, [paymentId]))
    const results: Body[] = []
    let cursor: string | null | undefined
    do {
      const { body } = await requeueMany({ filter: { payer }, limit: 2, ...(cursor && { cursor }) })
      results.push(...body.results)
      cursor = body.cursor
    } while (cursor !== null)
    expect(results.map(({ paymentId }) => paymentId)).toEqual(failed)
    expect(results.map(({ requeued }) => requeued)).toEqual([true, true, false, false, true])
    expect(await read(another.paymentId)).toMatchObject({ payment_status: 'failed' })
    expect((await requeueMany({ filter: {} })).body.results).toMatchObject([
      { paymentId: another.paymentId, requeued: true },
      ...failed.slice(2, 4).map((paymentId) => ({ paymentId, requeued: false })),
    ])
  })

  test('error: rejects a request with neither payments nor a filter, with both, or with too many payments', async () => {
    const paymentIds = [`pay_${'0'.repeat(32)}`]
    for (const json of [
      {},
      { paymentIds, filter: {} },
      { paymentIds: [] },
      { paymentIds: Array(101).fill(paymentIds[0]) },
      { filter: { min_usdc: '1,5' } },
    ])
      expect((await requeueMany(json)).body.code).toMatch(/^invalid_(request|field)$/)
    expect((await requeueMany({ filter: {}, cursor: 'x' })).body.code).toBe('invalid_cursor')
  })

  test("behavior: requires the provider's own key, which must not be read-only", async () => {
    const other = await openShop(gateway.app)
    const json = { filter: {} }
    expect((await requeueMany(json, { ...shop, key: other.key })).body.code).toBe('forbidden')
    const { body } = await call<Body>(gateway.app, 'POST', `/providers/${shop.providerId}/keys`, {
      key: shop.key,
      json: { scope: 'read', label: 'books' },
    })
    expect((await requeueMany(json, { ...shop, key: body.apiKey })).status).toBe(403)
  })
})
