import { createClient } from '@tollkeeper/sdk/client/createClient'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { splitterFactory } from '@tollkeeper/sdk/protocol/deployments'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { splitterOf } from '@tollkeeper/sdk/protocol/splitter'
import { verifyReceiptSignatureJWS } from '@x402/extensions/offer-receipt'
import type { Address, PrivateKeyAccount } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openProxiedShop, openShop, type Shop } from '../test/support/shop.ts'
import { startTestStack, type TestStack } from '../test/support/stack.ts'
import { trustAuthority } from '../test/support/tlsProxy.ts'
import { until } from '../test/support/until.ts'
import { tokenOf } from '../test/support/usdc.ts'
import { paymentResponseOf, type X402Buyer, x402Buyers, x402FetchV1 } from './x402Clients.ts'

// Third-party programs, unmodified, buy from APIs behind our middleware. The chain simulates Base Sepolia, because the programs know its USDC.

let stack: TestStack
let honoShop: Shop
let expressShop: Shop
let v1Shop: Shop
let v1ExpressShop: Shop
let proxiedShop: Shop
let distrustAuthority: (() => void) | undefined
beforeAll(async () => {
  stack = await startTestStack({
    chain: { network: 'base-sepolia' },
    env: { keeper: { TRIGGER_TIME_SECONDS: '1' }, api: { UPSTREAM_ALLOW_PRIVATE: 'true' } },
  })
  honoShop = await openShop(stack, { usdcPerUnit: '0.05' })
  expressShop = await openShop(stack, { usdcPerUnit: '0.05', framework: 'express', tls: true })
  proxiedShop = await openProxiedShop(stack, '0.05')
  // Make the challenge as long as it can get, because clients send all of it back.
  await describeInFull(honoShop)
  distrustAuthority = await trustAuthority()
  const v1 = { usdcPerUnit: '0.05', gate: { acceptX402V1: true, split: 'onchain' } } as const
  v1Shop = await openShop(stack, v1)
  v1ExpressShop = await openShop(stack, { ...v1, framework: 'express' })
})
afterAll(async () => {
  distrustAuthority?.()
  for (const shop of [honoShop, expressShop, v1Shop, v1ExpressShop, proxiedShop]) await shop?.close()
  await stack?.close()
})

/** Registers descriptions that make the challenge's header as long as possible. */
async function describeInFull({ providerId, apiKey, endpointIds: [endpointId] }: Shop): Promise<void> {
  const shape = (length: number) => ({ type: 'object', description: 'x'.repeat(length) })
  const send = async (path: string, body: object) => {
    const response = await fetch(new URL(`/providers/${providerId}${path}`, stack.api.url), {
      method: 'PATCH',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}`, 'if-match': '*' },
      body: JSON.stringify(body),
    })
    expect([response.status, await response.text()]).toEqual([200, expect.any(String)])
  }
  await send('', { serviceName: 'Weather', tags: ['weather'], iconUrl: 'https://weather.example/icon.png' })
  await send(`/endpoints/${endpointId}`, { inputSchema: shape(700), outputSchema: shape(500) })
}

async function newAccount(usdc = '1'): Promise<PrivateKeyAccount> {
  const account = privateKeyToAccount(generatePrivateKey())
  await stack.chain.mintUsdc([account.address], parseUsdc(usdc))
  return account
}

function splitterAt({ address }: Shop): Address | undefined {
  const payTo = address.toLowerCase() as Address
  const feePayTo = stack.platformWallet.toLowerCase() as Address
  return splitterOf({ payTo, feePayTo, amount: 47_500n, feeAmount: 2_500n }, splitterFactory)?.address
}

async function expectSettled(paymentId: string): Promise<void> {
  await until(`${paymentId} is settled`, async () => {
    const { body } = await stack.get(`/payments/${paymentId}`)
    return body.payment_status === 'settled'
  })
}

/**
 * Buys, and checks that the request was served once, that the answer reports the payment in both formats, and that it
 * settles.
 */
async function expectSale(buy: X402Buyer, shop: Shop, network: string): Promise<void> {
  const before = shop.served()
  const account = await newAccount()
  const bought = await buy(account, shop.url)
  expect([bought.status, shop.served()]).toEqual([200, before + 1])

  const claims = decodeReceipt(bought.headers.get('service-receipt') ?? '')
  expect(claims).toMatchObject({
    payer: account.address.toLowerCase(),
    totalUsdc: '50000',
    providerUsdc: '47500',
    platformUsdc: '2500',
    authorizations: [{ to: splitterAt(shop), value: '50000' }],
  })
  const paymentId = claims?.paymentId as string
  expect(bought.body).toMatchObject({ verified: true, paymentId })

  const response = paymentResponseOf(bought)
  expect(response).toMatchObject({ success: true, transaction: '', network, extra: { paymentId } })
  // x402's reference implementation finds the key over HTTP, through the DID.
  const { receipt } = response.extensions['offer-receipt'].info
  expect(await verifyReceiptSignatureJWS(receipt)).toMatchObject({
    version: 1,
    network: 'eip155:84532',
    resourceUrl: shop.url,
    payer: account.address.toLowerCase(),
  })
  await expectSettled(paymentId)
}

test('behavior: shortens long descriptions in the header of a 402, so that proxies accept it', async () => {
  const header = (await fetch(honoShop.url)).headers.get('payment-required') ?? ''
  const required = JSON.parse(Buffer.from(header, 'base64').toString())
  expect(JSON.stringify(required.extensions.bazaar.schema)).not.toContain('description')
  expect(required.extensions.bazaar.info.input).toMatchObject({ type: 'http' })
  expect(required.resource.serviceName).toBe('Weather')
  expect(header.length).toBeLessThanOrEqual(3_400)
})

describe.each(Object.entries(x402Buyers))('%s', (_, buy) => {
  test('default: pays an API behind Hono', () => expectSale(buy, honoShop, 'eip155:84532'))
  test('args: pays an API behind Express and a proxy that terminates TLS', () =>
    expectSale(buy, expressShop, 'eip155:84532'))
  test('args: pays a provider that sells through the gateway’s proxy', () =>
    expectSale(buy, proxiedShop, 'eip155:84532'))
  test('args: pays a provider that also serves v1', () => expectSale(buy, v1Shop, 'eip155:84532'))

  test('error: reports that the wallet has less USDC than the price, and gets no data', async () => {
    const before = honoShop.served()
    const outcome = await buy(await newAccount('0.04'), honoShop.url).catch((error: unknown) => error)
    const { status } =
      (outcome as { response?: { status: number } }).response ?? (outcome as { status: number })
    expect([status, honoShop.served()]).toEqual([402, before])
  })
})

describe('x402-fetch, a client of x402 v1', () => {
  test('default: pays an API behind Hono', () => expectSale(x402FetchV1, v1Shop, 'base-sepolia'))
  test('args: pays an API behind Express', () => expectSale(x402FetchV1, v1ExpressShop, 'base-sepolia'))

  test('behavior: signs nothing if the body of the 402 is a Tollkeeper challenge instead of x402 v1', async () => {
    let signatures = 0
    const account = await newAccount()
    const counting = {
      ...account,
      signTypedData: (data: never) => {
        signatures++
        return account.signTypedData(data)
      },
    } as PrivateKeyAccount
    await expect(x402FetchV1(counting, honoShop.url)).rejects.toThrow()
    expect(signatures).toBe(0)
  })
})

describe('our SDK', () => {
  const clientOf = (account: PrivateKeyAccount, split?: 'onchain' | 'separate') => {
    let signed = 0
    const client = createClient({
      tabs: false,
      gatewayUrl: stack.api.url,
      network: stack.chain.network,
      usdcAddress: tokenOf(stack.chain),
      facilitatorUrl: stack.keeper.url,
      limits: { perPayment: '1' },
      account: {
        address: account.address,
        signTypedData: (data) => {
          signed++
          return account.signTypedData(data)
        },
      },
      ...(split && { split }),
    })
    return { client, signed: () => signed }
  }

  test.each([
    ['onchain', 'hono', 1],
    ['onchain', 'v1', 1],
    [undefined, 'v1', 1],
    [undefined, 'hono', 2],
    [undefined, 'express', 2],
    ['onchain', 'proxied', 1],
    ['separate', 'v1', 2],
  ] as const)(
    'if the option `split` is %s, pays the %s shop (signatures: %i)',
    async (split, which, count) => {
      const shop = { v1: v1Shop, hono: honoShop, express: expressShop, proxied: proxiedShop }[which]
      const { client, signed } = clientOf(await newAccount(), split)
      const { paymentId, payment, receipt } = await client.request(shop.url)
      expect([signed(), payment?.payloads.length]).toEqual([count, count])
      expect(decodeReceipt(receipt ?? '')?.authorizations).toHaveLength(count)
      await expectSettled(paymentId as string)
    },
  )

  test('behavior: settleNow of a one-signature payment returns the transaction that settles it', async () => {
    const { client } = clientOf(await newAccount(), 'onchain')
    const { paymentId, payment } = await client.request(honoShop.url)
    if (!payment) throw new Error('expected a signed payment')
    const { paymentTxHash } = await client.settleNow(payment)
    await expectSettled(paymentId as string)
    const { body } = await stack.get(`/payments/${paymentId}`)
    expect(JSON.stringify(body)).toContain(paymentTxHash)
  })
})
