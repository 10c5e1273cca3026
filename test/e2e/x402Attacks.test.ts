import { request as httpRequest } from 'node:http'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import type { PrivateKeyAccount } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseUsdc } from '#protocol/amount'
import { encodePaymentHeader, type PaymentRequired } from '#protocol/x402'
import { openShop, type Shop } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'

// The attacks on 402 systems of arXiv 2605.11781 (authorization, binding, replay, web-layer handling) and 2605.30998
// (cross-resource substitution, duplicate settlement, overdraft), as a buyer can mount them against the real middleware and
// gateway. The measure is theirs, the leak: how often a handler ran for which nobody can be charged.

let stack: TestStack
let cheap: Shop
let dear: Shop
beforeAll(async () => {
  stack = await startTestStack()
  cheap = await openShop(stack, { usdcPerUnit: '0.01' })
  dear = await openShop(stack, { usdcPerUnit: '0.50', framework: 'express' })
})
afterAll(async () => {
  for (const shop of [cheap, dear]) await shop?.close()
  await stack?.close()
})

type Payment = {
  x402Version: number
  accepted: Record<string, unknown> & { extra: Record<string, unknown> }
  payload: { signature: string; authorization: Record<string, string> }
}
type Headers = Record<string, string | string[]>

async function newAccount(usdc = '2'): Promise<PrivateKeyAccount> {
  const account = privateKeyToAccount(generatePrivateKey())
  await stack.chain.mintUsdc([account.address], parseUsdc(usdc))
  return account
}

async function offerOf(shop: Shop): Promise<PaymentRequired> {
  const header = (await fetch(shop.url)).headers.get('payment-required') ?? ''
  return JSON.parse(Buffer.from(header, 'base64').toString()) as PaymentRequired
}

/** Signs an offer as the reference's client does; `change` is what a thief makes of the offer first. */
async function sign(
  account: PrivateKeyAccount,
  offer: PaymentRequired,
  change: object = {},
): Promise<Payment> {
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account)).setSpendControls(false)
  const changed = { ...offer, accepts: [{ ...offer.accepts[0], ...change }] }
  return (await client.createPaymentPayload(changed as never)) as never
}

const header = (payment: object): Headers => ({ 'PAYMENT-SIGNATURE': encodePaymentHeader(payment) })

/** The same authorization in the form of v1, which carries no challenge. */
const asV1 = ({ payload }: Payment): Headers => ({
  'X-PAYMENT': encodePaymentHeader({ x402Version: 1, scheme: 'exact', network: 'localhost', payload }),
})

/** With headers exactly as given: `fetch` would join those that come twice. */
function send(shop: Shop, headers: Headers): Promise<number> {
  return new Promise((resolve, reject) => {
    httpRequest(shop.url, { headers }, (response) => {
      response.resume()
      response.on('end', () => resolve(response.statusCode ?? 0))
    })
      .on('error', reject)
      .end()
  })
}

/** Sends all at once, and tells what was answered and how often a handler ran. */
async function attack(...attempts: [Shop, Headers][]) {
  const before = cheap.served() + dear.served()
  const statuses = await Promise.all(attempts.map(([shop, headers]) => send(shop, headers)))
  return { statuses: statuses.sort(), served: cheap.served() + dear.served() - before }
}

const times = <Item>(count: number, item: Item): Item[] => Array.from({ length: count }, () => item)

describe('another resource', () => {
  test("error: a cheap offer's payment at a dear API", async () => {
    const payment = await sign(await newAccount(), await offerOf(cheap))
    expect(await attack([dear, header(payment)], [dear, asV1(payment)])).toEqual({
      statuses: [402, 402],
      served: 0,
    })
  })

  test("error: the dear API's offer, with the cheap one's macaroon, or at its price", async () => {
    const [account, cheapOffer, dearOffer] = [await newAccount(), await offerOf(cheap), await offerOf(dear)]
    const [{ extra, amount, payTo }] = cheapOffer.accepts
    const changes = [{ extra }, { amount }, { payTo }, { amount, payTo }, { amount, payTo, extra }]
    const payments = await Promise.all(changes.map((change) => sign(account, dearOffer, change)))
    const forms = payments.flatMap((payment): [Shop, Headers][] => [
      [dear, header(payment)],
      [dear, asV1(payment)],
    ])
    // Without its macaroon, the first is a good payment of the dear price.
    const first = forms[1] as [Shop, Headers]
    expect(await attack(...forms.filter((form) => form !== first))).toEqual({
      statuses: times(9, 402),
      served: 0,
    })
    expect(await attack(first)).toEqual({ statuses: [200], served: 1 })
  })
})

describe('what a buyer claims', () => {
  test.each([
    ['its own wallet as the payee', { payTo: 'own' }],
    ['one unit as the amount', { amount: '1' }],
    ['an amount of nothing', { amount: '0' }],
    ['a token of its own', { asset: `0x${'d'.repeat(40)}` }],
    ['another chain', { network: 'eip155:8453' }],
    ['another domain', { extra: { name: 'Dollar', version: '1' } }],
  ])('error: %s', async (_, change) => {
    const account = await newAccount()
    const offer = await offerOf(cheap)
    const own = 'payTo' in change ? { payTo: account.address } : change
    const extra = { ...offer.accepts[0].extra, ...('extra' in change ? change.extra : {}) }
    const payment = await sign(account, offer, { ...own, extra })
    const { served } = await attack([cheap, header(payment)], [cheap, asV1(payment)])
    expect(served).toBe(0)
  })

  test('behavior: claims beside a good authorization change nothing', async () => {
    const payment = await sign(await newAccount(), await offerOf(cheap))
    const claims = { payTo: `0x${'d'.repeat(40)}`, amount: '1', asset: `0x${'e'.repeat(40)}` }
    const lying = { ...payment, accepted: { ...payment.accepted, ...claims } }
    expect(await attack([cheap, header(lying)])).toEqual({ statuses: [200], served: 1 })
  })

  test('error: a signed field that was changed afterwards', async () => {
    const payment = await sign(await newAccount(), await offerOf(cheap))
    const changed = ['from', 'to', 'value', 'validAfter', 'validBefore', 'nonce'].map((field) => {
      const value = payment.payload.authorization[field] as string
      const other = value.startsWith('0x')
        ? `0x${value.slice(2).replace(/^./, (c) => (c === '1' ? '2' : '1'))}`.toLowerCase()
        : `${BigInt(value) + 1n}`
      const authorization = { ...payment.payload.authorization, [field]: other }
      return { ...payment, payload: { ...payment.payload, authorization } }
    })
    const forms = changed.flatMap((one): [Shop, Headers][] => [
      [cheap, header(one)],
      [cheap, asV1(one)],
    ])
    expect((await attack(...forms)).served).toBe(0)
  })
})

describe('twice', () => {
  test('behavior: one header ten times at once, in both forms, is served once', async () => {
    const payment = await sign(await newAccount(), await offerOf(cheap))
    const forms = [...times(10, header(payment)), ...times(10, asV1(payment))]
    const { statuses, served } = await attack(...forms.map((form): [Shop, Headers] => [cheap, form]))
    expect([served, statuses]).toEqual([1, [200, ...times(19, 409)]])
  })

  test('behavior: one authorization under ten challenges is served once', async () => {
    const account = await newAccount()
    const payment = await sign(account, await offerOf(cheap))
    const offers = await Promise.all(times(10, cheap).map(offerOf))
    const forms = offers.map(({ accepts }): [Shop, Headers] => [
      cheap,
      header({ ...payment, accepted: accepts[0] }),
    ])
    const { statuses, served } = await attack(...forms)
    expect([served, statuses]).toEqual([1, [200, ...times(9, 409)]])
  })

  test('behavior: ten payments at once on a balance for one are one', async () => {
    const account = await newAccount('0.50')
    const payments = await Promise.all(
      times(10, dear).map(async (shop) => sign(account, await offerOf(shop))),
    )
    const { statuses, served } = await attack(
      ...payments.map((payment, index): [Shop, Headers] => [
        dear,
        index % 2 ? header(payment) : asV1(payment),
      ]),
    )
    expect([served, statuses]).toEqual([1, [200, ...times(9, 402)]])
  })
})

describe('what is sent', () => {
  test.each(['payment-signature', 'PAYMENT-SIGNATURE', 'Payment-Signature'])(
    'behavior: the header %s',
    async (name) => {
      const payment = await sign(await newAccount(), await offerOf(dear))
      expect(await attack([dear, { [name]: encodePaymentHeader(payment) }])).toEqual({
        statuses: [200],
        served: 1,
      })
    },
  )

  test('error: two payments in one request, whichever is good', async () => {
    const account = await newAccount('5')
    for (const shop of [cheap, dear]) {
      const [first, second] = [
        await sign(account, await offerOf(shop)),
        await sign(account, await offerOf(shop)),
      ]
      const [one, two] = [first, second].map(encodePaymentHeader) as [string, string]
      const both = await attack(
        [shop, { 'PAYMENT-SIGNATURE': [one, one] }],
        [shop, { 'PAYMENT-SIGNATURE': [one, two] }],
        [shop, { ...header(first), ...asV1(second) }],
        [shop, { ...header(first), authorization: 'x402 mock:mock' }],
        [shop, { 'PAYMENT-SIGNATURE': `${one},${two}` }],
      )
      expect(both).toEqual({ statuses: times(5, 400), served: 0 })
    }
  })

  test('error: what is no payment', async () => {
    const payment = await sign(await newAccount(), await offerOf(cheap))
    const json = JSON.stringify(payment)
    const forms = [
      json,
      btoa('null'),
      btoa('[]'),
      btoa(json.slice(0, -1)),
      btoa(`${json}${json}`),
      `${btoa(json)}\t=`,
    ]
    const attempts = forms.map((form): [Shop, Headers] => [cheap, { 'PAYMENT-SIGNATURE': form }])
    expect(await attack(...attempts)).toEqual({ statuses: times(forms.length, 400), served: 0 })
  })

  test('behavior: neither offer nor paid answer is for a shared cache', async () => {
    const unpaid = await fetch(cheap.url)
    expect([unpaid.status, unpaid.headers.get('cache-control')]).toEqual([402, 'no-store'])
    const payment = await sign(await newAccount(), await offerOf(cheap))
    const paid = await fetch(cheap.url, { headers: header(payment) as Record<string, string> })
    expect([paid.status, paid.headers.get('cache-control')]).toEqual([200, 'private'])
  })
})

test('behavior: a payment of a handler that fails is voided, and neither receipt is given', async () => {
  const failing = await openShop(stack, { handler: () => new Response('failed', { status: 500 }) })
  try {
    const payment = await sign(await newAccount(), await offerOf(failing))
    const { status, headers } = await fetch(failing.url, {
      headers: header(payment) as Record<string, string>,
    })
    expect([status, headers.get('service-payment-status')]).toEqual([500, 'voided'])
    expect([headers.get('service-receipt'), headers.get('payment-response')]).toEqual([null, null])
  } finally {
    await failing.close()
  }
})
