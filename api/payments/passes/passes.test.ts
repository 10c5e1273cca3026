import { createRetention } from '@tollkeeper/ledger/results/retention'
import { decodePass } from '@tollkeeper/sdk/protocol/pass'
import { afterEach, expect, test, vi } from 'vitest'
import { call } from '../../../test/support/gateway.ts'
import { openPassShop } from '../../../test/support/passShop.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

// These tests buy passes from the real middleware and gateway. Thieves and cheats are in attacks.test.ts.

const gateway = useGateway()
const shop = useShop(gateway)
afterEach(() => {
  vi.useRealTimers()
})

type Handled = {
  paymentId: string
  receipt: string
  pass: { paymentId: string; expiresAt: string; left?: number }
}

/** Moves the clock of the seller and its buyers. */
function passTime(ms: number): void {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms })
}

const viewOf = async (paymentId: string) => {
  const { body } = await call<{ payment_status: string; pass: Record<string, unknown> }>(
    gateway.app,
    'GET',
    `/payments/${paymentId}`,
  )
  return body
}

test('one payment buys any number of requests for an hour, without a call to the gateway per request', async () => {
  const seller = openPassShop(gateway, shop, '1h')
  const payments: unknown[] = []
  const buyer = seller.buyer(await gateway.buyer(1_000_000n), {
    limits: { onPayment: (payment) => void payments.push(payment), perDay: '0.05' },
  })
  const first = await buyer.request<Handled>(shop.url)
  expect(first.receipt).toBeDefined()
  expect(first.data.pass.paymentId).toBe(first.paymentId)
  expect(payments).toMatchObject([{ amount: 50_000n, pass: { seconds: 3_600, boundTo: 'payer' } }])
  seller.asked.length = 0

  for (let i = 0; i < 5; i++) {
    const next = await buyer.request<Handled>(`${shop.url}?city=${i}`)
    expect(next.data).toMatchObject({ paymentId: first.paymentId, receipt: '' })
    expect(next.receipt).toBeUndefined()
    expect(next.headers.get('service-payment-id')).toBe(first.paymentId)
    expect(next.headers.get('cache-control')).toBe('private')
  }
  expect(seller.served()).toBe(6)
  expect(payments).toHaveLength(1)
  expect(seller.asked).toEqual([
    'GET /.well-known/jwks.json',
    `GET /providers/${shop.providerId}/passes/ended`,
  ])

  // An hour later the pass has expired, and the daily limit refuses another one.
  passTime(3_600_000)
  await expect(buyer.request(shop.url)).rejects.toMatchObject({ code: 'spending_limit_exceeded' })
})

test('a pass for three requests serves three requests, and for the fourth request the client buys another pass', async () => {
  const seller = openPassShop(gateway, shop, 3)
  const buyer = seller.buyer(await gateway.buyer(1_000_000n))
  const bought: (string | null)[] = []
  for (let i = 0; i < 5; i++) {
    const { headers } = await buyer.request(shop.url)
    bought.push(headers.get('service-pass-left'))
  }
  expect(bought).toEqual([null, '1', '0', null, '1'])
})

test('a failed request is returned to the pass; a failed purchase is voided and ends the pass', async () => {
  const seller = openPassShop(gateway, shop, 2)
  const buyer = seller.buyer(await gateway.buyer(1_000_000n))
  const { paymentId = '' } = await buyer.request(shop.url)
  seller.answerWith(503)
  await expect(buyer.request(shop.url)).rejects.toMatchObject({ status: 503 })
  expect((await viewOf(paymentId)).pass).toMatchObject({ requests: 2, used: 1, pass_state: 'valid' })
  seller.answerWith(200)
  expect((await buyer.request(shop.url)).headers.get('service-pass-left')).toBe('0')
  expect((await viewOf(paymentId)).pass).toMatchObject({ used: 2, pass_state: 'used_up' })

  seller.answerWith(500)
  const failed = await buyer.request(shop.url).catch((error: unknown) => error as Record<string, string>)
  expect(failed).toMatchObject({ status: 500 })
  const view = await viewOf((failed as { paymentId: string }).paymentId)
  expect(view).toMatchObject({ payment_status: 'voided', pass: { pass_state: 'ended', endReason: 'voided' } })
})

test('a seller that stops selling passes, or sells different ones, still honors the passes already sold', async () => {
  const account = await gateway.buyer(1_000_000n)
  const sold = await openPassShop(gateway, shop, { within: '1h', boundTo: 'bearer' })
    .buyer(account)
    .request(shop.url)
  const pass = sold.headers.get('service-pass') ?? ''
  for (const next of [undefined, '15m', 10] as const) {
    const { fetch, served } = openPassShop(gateway, shop, next)
    expect((await fetch(shop.url, { headers: { 'service-pass': pass } })).status).toBe(200)
    expect(served()).toBe(1)
  }
})

test('while the gateway is down, time-based passes work for an hour, and counted passes are refused with 503', async () => {
  const account = await gateway.buyer(1_000_000n)
  const [seller, counting] = [openPassShop(gateway, shop, '1d'), openPassShop(gateway, shop, 10)]
  const [buyer, other] = [seller.buyer(account), counting.buyer(account)]
  for (const one of [buyer, other, buyer, other]) await one.request(shop.url)
  seller.setAway(true)
  counting.setAway(true)
  await expect(other.request(shop.url)).rejects.toMatchObject({ status: 503, code: 'dependency_unavailable' })
  for (const minutes of [10, 45]) {
    passTime(minutes * 60_000)
    expect((await buyer.request(shop.url)).status).toBe(200)
  }
  passTime(10 * 60_000)
  await expect(buyer.request(shop.url)).rejects.toMatchObject({ status: 503 })
  seller.setAway(false)
  passTime(6_000)
  expect((await buyer.request(shop.url)).status).toBe(200)
})

test('repeating a purchase returns the same pass', async () => {
  const seller = openPassShop(gateway, shop, '1h', { answers: false })
  const { payment, headers } = await seller.buyer(await gateway.buyer(1_000_000n)).request(shop.url)
  if (!payment?.macaroon) throw new Error('nothing was signed')
  const verify = (key: string) =>
    call<{ pass?: string; code?: string }>(gateway.app, 'POST', '/verify', {
      json: {
        macaroon: payment.macaroon,
        payloads: payment.payloads,
        providerId: shop.providerId,
        endpointId: shop.endpointId,
        pricing: { usdcPerUnit: '0.05', pass: { seconds: 3_600, boundTo: 'payer' } },
      },
      headers: { 'idempotency-key': key },
    })
  expect((await verify('another')).body.code).toBe('payment_replayed')
  expect(decodePass(headers.get('service-pass') ?? '')).toMatchObject({ endpointId: shop.endpointId })
})

test('the uses counted on a pass are deleted some time after it ends, but their number is kept', async () => {
  const seller = openPassShop(gateway, shop, { requests: 9, within: '1h' })
  const buyer = seller.buyer(await gateway.buyer(1_000_000n))
  const { paymentId = '' } = await buyer.request(shop.url)
  for (let i = 0; i < 3; i++) await buyer.request(shop.url)
  const count = async () =>
    (
      await gateway.database`
        select p.used, (select count(*)::int from pass_use u where u.payment_id = p.payment_id) as uses
        from pass p where payment_id = ${paymentId}`
    )[0]
  const forgetAt = async (ms: number) => {
    const now = () => Date.now() + ms
    const step = createRetention(gateway.database, { days: 30, now, limit: 2, onBadRow: () => {} })
    // These are enough pages to go through the whole table more than once, although it also contains rows of the other tests.
    for (let page = 0; page < 30; page++) await step()
  }
  await forgetAt(86_400_000)
  expect(await count()).toEqual({ used: 4, uses: 3 })
  await forgetAt(31 * 86_400_000)
  expect(await count()).toEqual({ used: 4, uses: 0 })
})
