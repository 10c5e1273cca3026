import { randomBytes } from 'node:crypto'
import { requirePayment } from '@tollkeeper/sdk/fetch'
import { Webhook } from 'standardwebhooks'
import { expect, test } from 'vitest'
import { createHook } from './receiver.ts'
import { decideBy, freeCallsADay, priceByTier, refuseListed } from './rules.ts'

const mock = { authorization: 'x402 mock:mock' }
/** The payer of every mock payment. */
const zero = `0x${'0'.repeat(40)}` as const

/** Returns an API in mock mode that decides by these rules. */
function openShop(decide: ReturnType<typeof decideBy>) {
  const paid = requirePayment({
    gatewayUrl: 'https://gateway.example',
    providerId: 'prov_1',
    pricing: '$0.05',
    mockPayments: true,
    beforeAccept: decide,
  })
  const serve = paid(() => new Response('sunny'))
  return (headers: Record<string, string> = {}) =>
    serve(new Request('https://api.example/weather', { headers }))
}

async function priceOf(response: Response): Promise<number> {
  const { accepts } = (await response.json()) as { accepts: { maxAmountRequired: string }[] }
  return accepts.reduce((sum, { maxAmountRequired }) => sum + Number(maxAmountRequired), 0)
}

test('refuses a listed payer before charging anything', async () => {
  const ask = openShop(decideBy(refuseListed([zero.toUpperCase().replace('X', 'x')])))
  expect((await ask()).status).toBe(402)
  const refused = await ask(mock)
  expect([refused.status, await refused.json()]).toMatchObject([
    403,
    { code: 'payment_declined', reason: 'sanctioned' },
  ])
})

test('serves ten free calls a day to each key, and charges for the eleventh', async () => {
  let now = new Date('2026-11-29T23:00:00Z')
  const ask = openShop(decideBy(freeCallsADay(10, new Set(['one', 'two']), () => now)))
  const statuses = async (key: string, calls: number) => {
    const answers = []
    for (let call = 0; call < calls; call++) answers.push((await ask({ 'x-api-key': key })).status)
    return answers
  }
  expect(await statuses('one', 11)).toEqual([...Array(10).fill(200), 402])
  expect(await statuses('two', 1)).toEqual([200])
  expect(await statuses('unknown', 1)).toEqual([402])
  // A call that is paid doesn't count as a free call.
  expect((await ask({ 'x-api-key': 'one', ...mock })).headers.get('service-payment-status')).toBe('verified')
  now = new Date('2026-11-30T00:00:00Z')
  expect(await statuses('one', 1)).toEqual([200])
})

test('charges the price of each tier', async () => {
  const rule = priceByTier(new Map([['key', 'gold']]), { gold: '0.01' })
  const ask = openShop(decideBy(rule))
  expect(await priceOf(await ask({ 'x-api-key': 'key' }))).toBe(10_000)
  expect(await priceOf(await ask({ 'x-api-key': 'gold' }))).toBe(50_000)
})

test('applies the same rules to a signed question of the gateway, and rejects a question with another signature', async () => {
  const secret = `whsec_${randomBytes(32).toString('base64')}`
  const hook = createHook(
    secret,
    decideBy(refuseListed([zero]), priceByTier(new Map([['key', 'gold']]), { gold: '0.01' })),
  )
  const ask = async (payer: string | null, headers: Record<string, string> = {}, key = secret) => {
    const at = new Date()
    const request = { method: 'GET', url: '/weather', headers }
    const body = JSON.stringify({ type: 'payment.before_accept', data: { payer, request } })
    const response = await hook.request('/before-accept', {
      method: 'POST',
      body,
      headers: {
        'webhook-id': 'msg_1',
        'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
        'webhook-signature': new Webhook(key).sign('msg_1', at, body),
      },
    })
    return response.status === 200 ? response.json() : response.status
  }
  expect(await ask(zero)).toMatchObject({ code: 'sanctioned' })
  expect(await ask(null, { 'x-api-key': 'key' })).toEqual({ price: '0.01' })
  expect(await ask(null)).toEqual({ accept: true })
  expect(await ask(null, {}, `whsec_${randomBytes(32).toString('base64')}`)).toBe(401)
})
