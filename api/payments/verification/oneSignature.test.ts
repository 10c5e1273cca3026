import { setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { boundNonce, maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { encodePayload, parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { splitterOf } from '@tollkeeper/sdk/protocol/splitter'
import {
  encodePaymentHeader,
  type PaymentRequired,
  type PaymentResponse,
  parsePaymentHeader,
} from '@tollkeeper/sdk/protocol/x402'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { verifyReceiptSignatureJWS } from '@x402/extensions/offer-receipt'
import type { Address, PrivateKeyAccount } from 'viem'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  call,
  fetchChallenge,
  openShop,
  platformWallet,
  type Shop,
  settleDirectly,
  type TestGateway,
} from '../../../test/support/gateway.ts'
import { sendDirectly, setBlacklisted, signAuthorization, validFor } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import type { App } from '../../http/app.ts'

// A payment with one authorization, to a splitter for provider and platform: from our own SDK, and from clients of x402 v2 (which send the
// macaroon) and v1 (which don't).

const gateway = useGateway()
const shop = useShop(gateway)
/** An endpoint of the same provider at twice the price. */
let expensive: Shop
let splitter: Address

beforeAll(async () => {
  const url = `${shop.url}/expensive`
  const { body } = await call<{ endpointId: string }>(
    gateway.app,
    'POST',
    `/providers/${shop.providerId}/endpoints`,
    {
      json: { url, method: 'GET', pricing: { usdcPerUnit: '0.10' }, walletId: shop.walletId },
      key: shop.key,
    },
  )
  expensive = { ...shop, url, endpointId: body.endpointId }
  splitter = splitterAt(gateway)
})

/** The shop's splitter for prices with a fee of 5%. */
function splitterAt({ served }: TestGateway): Address {
  const parts = { payTo: shop.wallet, feePayTo: platformWallet, amount: 19n, feeAmount: 1n }
  return splitterOf(parts, served.deployment.splitterFactory)?.address as Address
}

type Body = {
  macaroon?: string | undefined
  payloads: string[]
  providerId: string
  endpointId: string
  network?: string
  pricing?: { usdcPerUnit: string }
  x402Version?: 1 | 2
}
type Verified = {
  verified: boolean
  paymentId: string
  receipt: string
  code?: string
  paymentResponse?: PaymentResponse
}

const verify = (json: Body, options: { app?: App; key?: string; headers?: Record<string, string> } = {}) =>
  call<Verified>(options.app ?? gateway.app, 'POST', '/verify', { json, ...options })

/** Creates a payment with one signature, like our own SDK. `change` replaces fields of the authorization before it is signed. */
async function signedBody(
  payer: PrivateKeyAccount,
  change: Partial<SignedAuthorization> = {},
  at = shop,
): Promise<Body> {
  const { issuer, requestId, macaroon, accepts } = await fetchChallenge(gateway.app, at)
  const signed = await signAuthorization(gateway.served, payer, {
    from: payer.address.toLowerCase() as Address,
    to: splitter,
    value: accepts.reduce((sum, { maxAmountRequired }) => sum + BigInt(maxAmountRequired), 0n),
    ...validFor(maxTimeoutSeconds),
    nonce: boundNonce(issuer, requestId),
    ...change,
  })
  const { providerId, endpointId } = at
  return { macaroon, payloads: [encodePayload(signed)], providerId, endpointId }
}

/** Creates a payment with x402's reference client, and reads it from the header that this client sends. */
async function standardBody(payer: PrivateKeyAccount, at = shop): Promise<Body> {
  const { providerId, endpointId } = at
  const { body } = await call<{ paymentRequired: PaymentRequired }>(gateway.app, 'POST', '/challenge', {
    json: { providerId, endpointId, x402Version: 2 },
  })
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(payer)).setSpendControls(false)
  const payment = await client.createPaymentPayload(body.paymentRequired as never)
  const read = parsePaymentHeader(encodePaymentHeader(payment))
  if (read.scheme !== 'exact') throw new Error('A payment by `exact` was expected')
  const { macaroon, payload, x402Version } = read
  return { macaroon, payloads: [payload], providerId, endpointId, x402Version }
}

/** The same payment from a client that doesn't send the macaroon. */
function withoutMacaroon({ macaroon: _, ...body }: Body): Body {
  return { ...body, network: 'localhost', x402Version: 1 }
}

const randomNonce = () =>
  `0x${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('hex')}` as const
/** Reads which amount is reserved for a payment's gas, and whose allowance it is reserved from. */
async function drawOf(paymentId: unknown) {
  const [row] = await gateway.database<{ drawer: string | null; reserved: bigint }[]>`
    select gas_drawer as drawer, gas_reserved as reserved from queue where payment_id = ${`${paymentId}`}`
  return row
}
const codesOf = (answers: { body: Verified }[]) => answers.map(({ body }) => body.code ?? 'verified').sort()

async function storedOf(paymentId: string) {
  const [row] = await gateway.database`
    select p.splitter, p.payee, p.fee_recipient, p.provider_amount, p.fee_amount, p.price, count(*)::int as authorizations,
      min(a.recipient) as recipient, sum(a.value)::bigint as value, max(a.accepted_block) as accepted_block
    from payment p join signed_authorization a on a.payment_id = p.id where p.id = ${paymentId} group by p.id`
  return row
}

describe('one authorization for both parts', () => {
  test('default: is stored with both parts, and its receipt names both', async () => {
    const payer = await gateway.buyer(50_000n)
    const { status, body } = await verify(await signedBody(payer))
    expect(status).toBe(200)
    expect(await storedOf(body.paymentId)).toEqual({
      splitter,
      payee: shop.wallet,
      fee_recipient: platformWallet,
      provider_amount: 47_500n,
      fee_amount: 2_500n,
      price: 50_000n,
      authorizations: 1,
      recipient: splitter,
      value: 50_000n,
      accepted_block: null,
    })
    expect(decodeReceipt(body.receipt)).toMatchObject({
      totalUsdc: '50000',
      providerUsdc: '47500',
      platformUsdc: '2500',
      authorizations: [{ to: splitter, value: '50000' }],
      split: { provider: shop.wallet, platform: platformWallet },
    })
    expect(body.paymentResponse).toBeUndefined()
  })

  test('behavior: accepts a payment of x402’s reference client, which has a random nonce, and returns a receipt that x402’s verifier accepts', async () => {
    const payer = await gateway.buyer(50_000n)
    const { status, body } = await verify(await standardBody(payer))
    expect(status).toBe(200)
    // The nonce was checked on chain.
    expect((await storedOf(body.paymentId))?.accepted_block).not.toBeNull()

    const { paymentResponse } = body
    expect(paymentResponse).toMatchObject({
      success: true,
      transaction: '',
      network: 'eip155:31337',
      payer: payer.address.toLowerCase(),
      extra: { paymentId: body.paymentId },
    })
    const receipt = paymentResponse?.extensions['offer-receipt'].info.receipt as never
    const { body: did } = await call<{ verificationMethod: { id: string; publicKeyJwk: JsonWebKey }[] }>(
      gateway.app,
      'GET',
      '/.well-known/did.json',
    )
    const header = JSON.parse(atob((receipt as { signature: string }).signature.split('.')[0] as string))
    const method = did.verificationMethod.find(({ id }) => id === header.kid)
    expect(header.kid).toMatch(/^did:web:gateway\.example#receipt-/)
    expect(await verifyReceiptSignatureJWS(receipt, method?.publicKeyJwk as never)).toEqual({
      version: 1,
      network: 'eip155:31337',
      resourceUrl: shop.url,
      payer: payer.address.toLowerCase(),
      issuedAt: expect.any(Number),
    })
  })

  test('behavior: a client that sends no macaroon pays the endpoint’s current price', async () => {
    const payer = await gateway.buyer(50_000n)
    const { status, body } = await verify(withoutMacaroon(await standardBody(payer)))
    expect([status, body.paymentResponse?.network]).toEqual([200, 'localhost'])
    expect(await storedOf(body.paymentId)).toMatchObject({
      splitter,
      provider_amount: 47_500n,
      fee_amount: 2_500n,
    })
  })

  test('behavior: the same Idempotency-Key and body get the same answer', async () => {
    const bodies = [
      await standardBody(await gateway.buyer(50_000n)),
      withoutMacaroon(await standardBody(await gateway.buyer(50_000n))),
    ]
    for (const body of bodies) {
      const headers = { 'idempotency-key': crypto.randomUUID() }
      const answers = await Promise.all([1, 2, 3].map(() => verify(body, { headers })))
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
      const [claims, ...repeated] = answers.map(({ body: { receipt } }) => decodeReceipt(receipt))
      expect(claims?.split).toEqual({ provider: shop.wallet, platform: platformWallet })
      expect(repeated).toEqual([claims, claims])
    }
  })
})

describe('the amount, the payee and the window', () => {
  test('behavior: an authorization may be valid for just 5 minutes as long as today’s gas allowance pays what the fee doesn’t cover; a longer validity is always accepted', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const pay = async (app: App, seconds: number) => {
      const validBefore = BigInt(Math.floor(Date.now() / 1000) + seconds)
      const { status, body } = await verify(await signedBody(payer, { validBefore, nonce: randomNonce() }), {
        app,
      })
      return status === 200 ? body.paymentId : [status, body.code]
    }
    // On test networks, fees are considered to cover their gas.
    expect(await drawOf(await pay(gateway.app, 300))).toEqual({ drawer: null, reserved: 0n })
    const expensive = { gasPerFee: 10n, gasTokenUsd: 10n ** 15n }
    const rich = gateway.another(expensive)
    expect(await drawOf(await pay(rich, 1_900))).toEqual({ drawer: null, reserved: 0n })
    const { drawer, reserved = 0n } = (await drawOf(await pay(rich, 300))) ?? {}
    expect([drawer, reserved > 0n]).toEqual(['common:test', true])
    // Two concurrent payments: the allowance is enough for one of them.
    const scarce = gateway.another({ ...expensive, gasAllowance: 2n * reserved + reserved / 2n })
    const answers = await Promise.all([pay(scarce, 300), pay(scarce, 300)])
    expect(answers.filter((one) => Array.isArray(one))).toEqual([[402, 'authorization_expires_too_soon']])
    expect(await pay(scarce, 1_900)).toMatch(/^pay_/)
    // The provider's grant is separate.
    await setGasGrant(gateway.database, shop.providerId, 2n * reserved)
    expect(await drawOf(await pay(scarce, 300))).toMatchObject({ drawer: `${shop.providerId}:test` })
  })

  test.each([
    ['one base unit less', { value: 49_999n }, 'amount_mismatch'],
    ['one base unit more, which the splitter can’t divide', { value: 50_001n }, 'amount_mismatch'],
    ["only the provider's part", { value: 47_500n }, 'amount_mismatch'],
    [
      'an authorization with four minutes left',
      { validBefore: BigInt(Math.floor(Date.now() / 1000) + 240) },
      'authorization_expires_too_soon',
    ],
    [
      'an authorization that isn’t valid yet',
      { validAfter: BigInt(Math.floor(Date.now() / 1000) + 600) },
      'authorization_not_yet_valid',
    ],
  ])('error: rejects %s', async (_, change, code) => {
    const payer = await gateway.buyer(100_000n)
    for (const shape of [(body: Body) => body, withoutMacaroon]) {
      const { status, body } = await verify(
        shape(await signedBody(payer, { ...change, nonce: randomNonce() })),
      )
      expect([status, body.code]).toEqual([402, code])
    }
  })

  test('error: rejects an authorization to the provider itself or to a splitter with other shares', async () => {
    const payer = await gateway.buyer(100_000n)
    const parts = { payTo: shop.wallet, feePayTo: platformWallet, amount: 9n, feeAmount: 1n }
    const other = splitterOf(parts, gateway.served.deployment.splitterFactory)?.address as Address
    for (const to of [shop.wallet, platformWallet, other, payer.address.toLowerCase() as Address]) {
      const body = await signedBody(payer, { to, nonce: randomNonce() })
      for (const shape of [body, withoutMacaroon(body)]) {
        expect((await verify(shape)).body.code).toBe('payees_mismatch')
      }
    }
  })

  test('error: rejects a payment if USDC has blacklisted the splitter or the payee', async () => {
    const payer = await gateway.buyer(50_000n)
    const other = await openShop(gateway.app)
    const body = await standardBody(payer, other)
    const { to } = parsePayload(body.payloads[0] ?? '')
    expect(to).not.toBe(other.wallet)
    await setBlacklisted(gateway.chain, to, true)
    const { status, body: problem } = await verify(body)
    expect([status, problem.code]).toEqual([422, 'payee_refused'])
    expect(await gateway.database`select from payment where payer = ${payer.address.toLowerCase()}`).toEqual(
      [],
    )
  })

  test('error: rejects a signature for another value, payer or chain', async () => {
    const payer = await gateway.buyer(100_000n)
    const body = await signedBody(payer)
    const [payload = ''] = body.payloads
    const signed = parsePayload(payload)
    const elsewhere = { ...gateway.served, network: { ...gateway.served.network, chainId: 8453 } }
    const forged = [
      { ...signed, nonce: randomNonce() },
      { ...signed, from: `0x${'e'.repeat(40)}` as Address },
      await signAuthorization(elsewhere, payer, signed),
    ]
    for (const one of forged) {
      const attempt = { ...body, payloads: [encodePayload(one)] }
      expect((await verify(attempt)).body.code).toBe('invalid_signature')
      expect((await verify(withoutMacaroon(attempt))).body.code).toBe('invalid_signature')
    }
  })
})

describe('another resource', () => {
  test('error: rejects a cheap endpoint’s macaroon at an expensive endpoint', async () => {
    const payer = await gateway.buyer(200_000n)
    const cheap = await signedBody(payer)
    expect((await verify({ ...cheap, endpointId: expensive.endpointId })).body.code).toBe('caveat_mismatch')
    // The two endpoints have the same splitter, so only the price distinguishes them.
    expect((await verify(withoutMacaroon({ ...cheap, endpointId: expensive.endpointId }))).body.code).toBe(
      'amount_mismatch',
    )
  })

  test('error: rejects a payment for another provider’s endpoint', async () => {
    const other = await openShop(gateway.app)
    const payer = await gateway.buyer(200_000n)
    const { payloads } = await signedBody(payer)
    const { providerId, endpointId } = other
    const attempt = withoutMacaroon({ payloads, providerId, endpointId })
    expect((await verify(attempt)).body.code).toBe('payees_mismatch')
    expect((await verify({ ...attempt, providerId: shop.providerId })).body.code).toBe('unknown_endpoint')
  })

  test('error: without a macaroon, rejects a price below the registered price unless the request has the provider’s key', async () => {
    const payer = await gateway.buyer(200_000n)
    const cheap = withoutMacaroon(await signedBody(payer, { value: 20_000n }))
    const attempt = { ...cheap, pricing: { usdcPerUnit: '0.02' } }
    const stranger = await openShop(gateway.app)
    for (const key of [undefined, stranger.key])
      expect((await verify(attempt, key === undefined ? {} : { key })).body.code).toBe(
        'price_below_registered',
      )
    expect((await verify(attempt, { key: shop.key })).status).toBe(200)
  })

  test('error: without a macaroon, rejects a network that the endpoint is not paid on', async () => {
    const payer = await gateway.buyer(200_000n)
    const { status, body } = await verify({ ...withoutMacaroon(await signedBody(payer)), network: 'base' })
    expect([status, body.code]).toEqual([422, 'network_not_served'])
  })
})

describe('replay', () => {
  test('behavior: one authorization buys once, with any macaroon or without one', async () => {
    const payer = await gateway.buyer(500_000n)
    const body = await standardBody(payer)
    const { macaroon } = await fetchChallenge(gateway.app, shop)
    const forms = [body, { ...body, macaroon }, withoutMacaroon(body)]
    const answers = await Promise.all([...forms, ...forms, ...forms].map((form) => verify(form)))
    expect(codesOf(answers)).toEqual([...Array(8).fill('payment_replayed'), 'verified'])
  })

  test('behavior: a challenge buys only once, even if it is signed again', async () => {
    const payer = await gateway.buyer(500_000n)
    const first = await signedBody(payer)
    const signed = parsePayload(first.payloads[0] as string)
    const again = await signAuthorization(gateway.served, payer, { ...signed, nonce: randomNonce() })
    const answers = await Promise.all([verify(first), verify({ ...first, payloads: [encodePayload(again)] })])
    expect(codesOf(answers)).toEqual(['payment_replayed', 'verified'])
  })

  test('behavior: if the balance is enough for one payment, one of ten is accepted, with and without a macaroon', async () => {
    const payer = await gateway.buyer(50_000n)
    const bodies = await Promise.all(Array.from({ length: 10 }, () => standardBody(payer)))
    const apps = [gateway.app, gateway.another()]
    const answers = await Promise.all(
      bodies.map((body, index) =>
        verify(index % 2 ? body : withoutMacaroon(body), { app: apps[index % 3 ? 0 : 1] as App }),
      ),
    )
    expect(codesOf(answers)).toEqual([...Array(9).fill('insufficient_balance'), 'verified'])
  })

  test('behavior: an authorization used on chain buys nothing', async () => {
    const payer = await gateway.buyer(500_000n)
    const body = await standardBody(payer)
    const hash = await sendDirectly(gateway, parsePayload(body.payloads[0] as string))
    await gateway.served.client.waitForTransactionReceipt({ hash })
    for (const form of [body, withoutMacaroon(body)]) {
      expect((await verify(form)).body.code).toBe('authorization_used')
    }
  })

  test('behavior: a caller that copies a settled payment from the chain gets no service, and learns nothing about the payment', async () => {
    const payer = await gateway.buyer(500_000n)
    const body = withoutMacaroon(await standardBody(payer))
    expect((await verify(body)).status).toBe(200)
    await settleDirectly(gateway, body.payloads[0] as string)
    const { status, body: answer } = await verify(body)
    expect([status, answer.code, answer.paymentId]).toEqual([409, 'payment_replayed', undefined])
  })
})

describe('without a macaroon', () => {
  test('error: rejects a payment that is served only after it has settled, because its signature is public by then', async () => {
    const payer = await gateway.buyer(500_000n)
    const app = gateway.another({ settleBeforeServe: 50_000n })
    const { status, body } = await verify(withoutMacaroon(await standardBody(payer)), { app })
    expect([status, body.code]).toEqual([402, 'macaroon_invalid'])
  })

  test('error: rejects a payment that may have been accepted before a restore', async () => {
    const payer = await gateway.buyer(500_000n)
    const macaroonNotBefore = Math.floor(Date.now() / 1000) - 60
    const app = gateway.another({ macaroonNotBefore })
    const old = withoutMacaroon(await signedBody(payer))
    expect((await verify(old, { app })).body.code).toBe('macaroon_invalid')
    const recent = withoutMacaroon(await signedBody(payer, { validAfter: BigInt(macaroonNotBefore) }))
    expect((await verify(recent, { app })).status).toBe(200)
  })
})
