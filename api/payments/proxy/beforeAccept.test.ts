import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { call } from '../../../test/support/gateway.ts'
import { startHook } from '../../../test/support/hookReceiver.ts'
import { paid, useProxiedSale } from '../../../test/support/proxiedSale.ts'
import { useGateway } from '../../../test/support/useGateway.ts'

// This provider sells through the gateway's proxy instead of our middleware. The gateway has the whole request, so the provider's hook can also serve
// it for free or offer another price.

const gateway = useGateway()
const { sale, own, at, payFor, buy, statusOf } = useProxiedSale(gateway)
let hook: Awaited<ReturnType<typeof startHook>>
beforeAll(async () => {
  hook = await startHook()
  await own('PUT', '/hook', { url: hook.url, headers: ['x-api-key'] })
})
beforeEach(() => {
  hook.clear()
  hook.state.decide = () => ({ accept: true })
})
afterAll(() => hook?.close())

const gold = { headers: { 'x-api-key': 'gold', 'x-other': 'private' } }
const priceOf = async (response: Response) => {
  const { accepts } = (await response.json()) as { accepts: { maxAmountRequired: string }[] }
  return accepts.reduce((sum, { maxAmountRequired }) => sum + Number(maxAmountRequired), 0)
}
const countPayments = async () => {
  const [row] = await gateway.database<[{ count: number }]>`
    select count(*)::int as count from payment where provider_id = ${sale.provider.providerId}`
  return row.count
}

test('the hook is called before each 402 and once for the payment, and gets the request headers that its registration names', async () => {
  const response = await fetch(at('/forecast?city=7'), gold)
  expect(response.status).toBe(402)
  const served = await fetch(at('/forecast?city=7'), {
    headers: { ...gold.headers, ...(await payFor('/forecast?city=7')) },
  })
  expect([served.status, await statusOf(served)]).toEqual([200, paid])
  const request = { method: 'GET', url: '/v2/forecast?city=7', headers: { 'x-api-key': 'gold' } }
  const asked = hook.asked().map(({ moment, source, payer, request }) => ({ moment, source, payer, request }))
  const payer = sale.buyer.address.toLowerCase()
  expect(asked).toEqual([
    { moment: 'offer', source: 'proxy', payer: null, request },
    { moment: 'offer', source: 'proxy', payer: null, request: { ...request, headers: {} } },
    { moment: 'payment', source: 'proxy', payer, request },
  ])
})

test('the hook can serve a request for free: without a payment, a sale or a receipt', async () => {
  hook.state.decide = ({ request }) => (request?.headers['x-api-key'] ? { free: true } : { accept: true })
  const before = await countPayments()
  const response = await fetch(at('/forecast'), gold)
  expect([response.status, await response.text(), response.headers.get('service-payment-status')]).toEqual([
    200,
    'served',
    'free',
  ])
  for (const name of ['service-payment-id', 'service-receipt']) expect(response.headers.has(name)).toBe(false)
  expect((await fetch(at('/forecast'))).status).toBe(402)
  expect(await countPayments()).toBe(before)
})

test('the hook can lower the price of a request, and the challenge for that price pays for no other request', async () => {
  hook.state.decide = ({ request }) => (request?.headers['x-api-key'] ? { price: '0.01' } : { accept: true })
  expect(await priceOf(await fetch(at('/forecast'), gold))).toBe(10_000)
  expect(await priceOf(await fetch(at('/forecast')))).toBe(50_000)
  const { authorization } = await payFor('/forecast', 'GET', gold.headers)
  const without = await fetch(at('/forecast'), { headers: { authorization } })
  expect([without.status, await without.json()]).toMatchObject([402, { code: 'challenge_price_too_low' }])
  const served = await fetch(at('/forecast'), { headers: { ...gold.headers, authorization } })
  expect([served.status, await statusOf(served)]).toEqual([200, paid])
})

test('the hook can refuse a request before it is paid for, and can refuse a payment, which is then not charged', async () => {
  hook.state.decide = () => ({ refuse: 'Not sold in your country', code: 'country' })
  const response = await fetch(at('/forecast'))
  expect([response.status, await response.json()]).toMatchObject([
    403,
    { code: 'payment_declined', detail: 'Not sold in your country', reason: 'country' },
  ])
  hook.state.decide = ({ payer }) => (payer === null ? { accept: true } : { refuse: 'Not you' })
  const before = await countPayments()
  expect((await buy('/forecast')).status).toBe(403)
  expect(await countPayments()).toBe(before)
})

test('fails closed: no request is passed on without a decision', async () => {
  sale.handler = () => expect.unreachable()
  hook.state.decide = (_, response) => void response.destroy()
  const response = await fetch(at('/forecast'))
  expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
  expect(await response.json()).toMatchObject({ code: 'decision_unavailable' })
})

test('the hook is also called for a payment sent to /verify directly, so the gateway can’t be used to bypass it', async () => {
  const { authorization } = await payFor('/forecast')
  const [macaroon, ...payloads] = authorization.replace(/^x402 /, '').split(/[:;]/)
  hook.clear()
  hook.state.decide = () => ({ refuse: 'Not you' })
  const { providerId } = sale.provider
  const [endpoint] = await gateway.database<[{ id: string }]>`
    select id from endpoint where provider_id = ${providerId} and method = 'GET' limit 1`
  const answer = await call<{ code?: string }>(sale.app, 'POST', '/verify', {
    json: { macaroon, payloads, providerId, endpointId: endpoint.id },
  })
  expect([answer.status, answer.body.code]).toEqual([403, 'payment_declined'])
  expect(hook.asked().map(({ source, request }) => [source, request])).toEqual([['verify', null]])
})
