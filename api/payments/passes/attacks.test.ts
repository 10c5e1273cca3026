import { createHmac } from 'node:crypto'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { mintMacaroon, parseMacaroon, verifyMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import {
  decodePass,
  encodePassHeader,
  type PassClaims,
  passProofData,
  passType,
} from '@tollkeeper/sdk/protocol/pass'
import type { PassTerms } from '@tollkeeper/sdk/protocol/passTerms'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { refundNonce } from '@tollkeeper/sdk/protocol/refund'
import { type Address, createTestClient, http } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { afterEach, beforeAll, expect, test, vi } from 'vitest'
import {
  call,
  gatewayIssuer,
  openShop,
  type Shop,
  settleDirectly,
  sign,
} from '../../../test/support/gateway.ts'
import { openPassShop } from '../../../test/support/passShop.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { signAuthorization, validFor } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { rotateReceiptKeys, toReceiptKeys } from '../receipts/keys.ts'
import { signJws } from '../receipts/signReceipt.ts'
import { signPass } from './signPass.ts'

// These tests play thieves of passes, buyers who cheat, and sellers who promise too much. Each attempt is refused with its code, and the
// handler doesn't run.

const gateway = useGateway()
const shop = useShop(gateway)
const bearer = { within: '1h', boundTo: 'bearer' } as const
const hour: PassTerms = { seconds: 3_600, boundTo: 'bearer' }
let buyer: PrivateKeyAccount
beforeAll(async () => {
  buyer = await gateway.buyer(20_000_000n)
})
afterEach(() => {
  vi.useRealTimers()
})

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any

/** Buys a pass. */
async function buy(seller: ReturnType<typeof openPassShop>, account = buyer) {
  const { paymentId = '', headers, payment, receipt = '' } = await seller.buyer(account).request(shop.url)
  const pass = headers.get('service-pass') ?? ''
  return { paymentId, pass, payment, receipt, claims: decodePass(pass) as PassClaims }
}

/** Presents a pass, and returns the seller's answer: `served`, or the code of its refusal. */
async function present(
  seller: ReturnType<typeof openPassShop>,
  header: string,
  url = shop.url,
): Promise<string> {
  const before = seller.served()
  const response = await seller.fetch(url, { headers: { 'service-pass': header } })
  const { code } = (await response.json()) as { code?: string }
  expect(seller.served() - before).toBe(response.status === 200 ? 1 : 0)
  return response.status === 200 ? 'served' : `${response.status} ${code}`
}

async function prove(
  account: PrivateKeyAccount,
  proven: { origin: string; pass: string; expiresAt: number },
) {
  return {
    expiresAt: proven.expiresAt,
    signature: await account.signTypedData(passProofData(proven) as never),
  }
}

const seconds = () => Math.floor(Date.now() / 1000)

test('rejects a stolen payer-bound pass without a proof, with a proof for another origin, pass or time, or with a proof by another key', async () => {
  const seller = openPassShop(gateway, shop, '1h')
  const [{ pass, paymentId }, another] = [await buy(seller), await buy(seller)]
  const at = { origin: new URL(shop.url).origin, pass: paymentId, expiresAt: seconds() + 600 }
  const proofs = {
    none: undefined,
    'another origin': await prove(buyer, { ...at, origin: 'https://evil.example' }),
    'another pass': await prove(buyer, { ...at, pass: another.paymentId }),
    'another key': await prove(privateKeyToAccount(generatePrivateKey()), at),
    expired: await prove(buyer, { ...at, expiresAt: seconds() - 1 }),
    'too long': await prove(buyer, { ...at, expiresAt: seconds() + 3_600 }),
    'a later time than was signed': { ...(await prove(buyer, at)), expiresAt: at.expiresAt + 1 },
  }
  for (const [name, proof] of Object.entries(proofs))
    expect([name, await present(seller, encodePassHeader(pass, proof))]).toEqual([
      name,
      '402 pass_proof_invalid',
    ])
  expect(await present(seller, encodePassHeader(pass, await prove(buyer, at)))).toBe('served')
})

test('rejects a proof for the origin of another seller, even if the Host header names that origin', async () => {
  const seller = openPassShop(gateway, shop, '1h')
  const { pass, paymentId } = await buy(seller)
  const evil = await prove(buyer, {
    origin: 'https://evil.example',
    pass: paymentId,
    expiresAt: seconds() + 60,
  })
  const decision = await seller.gate.check({
    method: 'GET',
    url: 'https://evil.example/forecast',
    pass: encodePassHeader(pass, evil),
  })
  expect(decision.kind).toBe('answer')
})

test('serves anyone who presents a bearer pass, because such a pass is not bound to a payer', async () => {
  const seller = openPassShop(gateway, shop, bearer)
  const { pass, claims } = await buy(seller)
  expect(claims).toMatchObject({ boundTo: 'bearer' })
  expect(claims.payer).toBeUndefined()
  expect(await present(seller, pass)).toBe('served')
})

test('rejects a pass at another endpoint of the same provider or of another provider', async () => {
  const { pass } = await buy(openPassShop(gateway, shop, bearer))
  const other = await openShop(gateway.app)
  expect(await present(openPassShop(gateway, other, bearer), pass, other.url)).toBe('402 pass_invalid')
  const { body } = await call<Body>(gateway.app, 'POST', `/providers/${shop.providerId}/endpoints`, {
    json: {
      url: `${new URL(shop.url).origin}/expensive`,
      method: 'GET',
      pricing: { usdcPerUnit: '5' },
      walletId: shop.walletId,
    },
    key: shop.key,
  })
  expect(body.endpointId).toBeDefined()
  const expensive = openPassShop(gateway, shop, bearer, { pricing: { usdcPerUnit: '5', pass: bearer } })
  expect(await present(expensive, pass, `${new URL(shop.url).origin}/expensive`)).toBe('402 pass_invalid')
  expect(await present(expensive, pass)).toBe('served')
})

test('rejects a forged pass: without a signature, signed by another key, changed to more requests, or with another type', async () => {
  const seller = openPassShop(gateway, shop, { requests: 2, boundTo: 'bearer' })
  const { pass, receipt, claims } = await buy(seller)
  const [header = '', , signature = ''] = pass.split('.')
  const encode = (json: object) => Buffer.from(JSON.stringify(json)).toString('base64url')
  const more = encode({ ...claims, requests: 1_000_000 })
  const stranger = toReceiptKeys(rotateReceiptKeys(undefined)).current
  const forged = {
    'alg none': `${encode({ alg: 'none', typ: passType })}.${more}.${signature}`,
    'no signature': `${header}.${more}.`,
    'a forged count': `${header}.${more}.${signature}`,
    'the forger’s own key': signJws({ alg: 'ES256', typ: passType, kid: stranger.kid }, claims, stranger),
    'the forger’s own key in its header': `${encode({ alg: 'ES256', typ: passType, jwk: {} })}.${more}.${signature}`,
    'a receipt': receipt,
    'no JWS': 'tk_1',
    'a very long pass': 'a'.repeat(100_000),
  }
  for (const [name, one] of Object.entries(forged))
    expect([name, await present(seller, one)]).toEqual([name, '402 pass_invalid'])
  expect(await present(seller, pass)).toBe('served')
})

test('rejects pass claims under a receipt’s type, and a pass as a receipt', async () => {
  const file = rotateReceiptKeys(undefined)
  const keys = toReceiptKeys(file)
  const app = gateway.withOptions({ receiptKeys: keys })
  const seller = openPassShop({ ...gateway, app }, shop, bearer)
  const { claims, pass } = await buy(seller)
  const { kid } = keys.current
  for (const typ of ['JWT', 'x402-tab-line+jwt', undefined])
    expect(
      await present(seller, signJws({ alg: 'ES256', kid, ...(typ && { typ }) }, claims, keys.current)),
    ).toBe('402 pass_invalid')
  await expect(verifyReceipt(pass, keys.jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

test('accepts a pass signed by a rotated key, and rejects a pass whose key is no longer published', async () => {
  const first = rotateReceiptKeys(undefined)
  const keys = toReceiptKeys(first)
  const app = gateway.withOptions({ receiptKeys: keys })
  const seller = openPassShop({ ...gateway, app }, shop, bearer)
  const { pass, claims } = await buy(seller)
  expect(await present(seller, pass)).toBe('served')

  const second = rotateReceiptKeys(first, seconds() - 10_000)
  keys.replace(second)
  expect(keys.current.kid).not.toBe(first.keys[0]?.kid)
  // The seller doesn't know the key id, and requests it once.
  const sold = { ...hour, paymentId: claims.jti, providerId: shop.providerId, endpointId: shop.endpointId }
  const young = signPass(
    { ...sold, resource: shop.url, payer: buyer.address, startsAt: Date.now() },
    { issuer: gatewayIssuer, key: keys.current },
  )
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 31_000 })
  expect(await present(seller, young)).toBe('served')
  expect(await present(seller, pass)).toBe('served')

  const { kid } = first.keys[0] as { kid: string }
  keys.replace({ keys: second.keys.filter((key) => key.kid !== kid) })
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 301_000 })
  await present(seller, young)
  await vi.waitFor(async () => expect(await present(seller, pass)).toBe('402 pass_invalid'))
  expect(await present(seller, young)).toBe('served')
})

test('many passes with unknown keys cause a limited rate of key requests to the gateway', async () => {
  const seller = openPassShop(gateway, shop, bearer)
  const { claims } = await buy(seller)
  seller.asked.length = 0
  for (let i = 0; i < 20; i++) {
    const { current } = toReceiptKeys(rotateReceiptKeys(undefined))
    const pass = signJws({ alg: 'ES256', typ: passType, kid: current.kid }, claims, current)
    expect(await present(seller, pass)).toBe('402 pass_invalid')
  }
  expect(seller.asked.filter((one) => one.includes('jwks'))).toHaveLength(1)
})

test('if forty requests arrive at once, a pass with four requests left serves exactly four', async () => {
  const seller = openPassShop(gateway, shop, { requests: 5, boundTo: 'bearer' })
  const { pass, paymentId } = await buy(seller)
  const answers = await Promise.all(
    Array.from({ length: 40 }, () => seller.fetch(shop.url, { headers: { 'service-pass': pass } })),
  )
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(4)
  expect(seller.served()).toBe(5)
  const refused = answers.find(({ status }) => status !== 200)
  expect(await refused?.json()).toMatchObject({ code: 'pass_used_up' })
  const [row] = await gateway.database`select used, requests from pass where payment_id = ${paymentId}`
  expect(row).toEqual({ used: 5, requests: 5 })
  // Even without the gateway's check, the database rejects the use of more requests than were bought.
  await expect(gateway.database`update pass set used = 6 where payment_id = ${paymentId}`).rejects.toThrow(
    'pass_is_not_overused',
  )
})

test('a use of a pass is counted once per id, can be returned once, and is never counted again after its return', async () => {
  const seller = openPassShop(gateway, shop, { requests: 10, boundTo: 'bearer' })
  const { paymentId } = await buy(seller)
  const uses = `/providers/${shop.providerId}/passes/${paymentId}/uses`
  const post = async (path: string, json: object = {}, key = shop.key) => {
    const { status, body } = await call<Body>(gateway.app, 'POST', path, { json, key })
    return status === 200 ? body.left : body.code
  }
  const [one, late] = [crypto.randomUUID(), crypto.randomUUID()]
  expect(await Promise.all([1, 2, 3].map(() => post(uses, { useId: one })))).toEqual([8, 8, 8])
  expect(await post(`${uses}/${one}/void`)).toBe(9)
  expect(await post(`${uses}/${one}/void`)).toBe(9)
  expect(await post(uses, { useId: one })).toBe('payment_voided')
  // If the return arrives before the use, the use is never counted.
  expect(await post(`${uses}/${late}/void`)).toBe(9)
  expect(await post(uses, { useId: late })).toBe('payment_voided')
  const other = await openShop(gateway.app)
  expect(await post(uses, { useId: crypto.randomUUID() }, other.key)).toBe('forbidden')
  expect(
    await post(uses.replace(shop.providerId, other.providerId), { useId: crypto.randomUUID() }, other.key),
  ).toBe('unknown_pass')
})

test('a refund of the provider’s part ends the pass within a minute; a smaller refund does not', async () => {
  const wallet = await gateway.buyer(1_000_000n)
  await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, {
    json: { network: 'localhost', address: wallet.address },
    key: shop.key,
  })
  const [byTime, counted] = [
    openPassShop(gateway, shop, bearer),
    openPassShop(gateway, shop, { requests: 100, boundTo: 'bearer' }),
  ]
  for (const seller of [byTime, counted]) {
    const { pass, paymentId, payment } = await buy(seller)
    expect(await present(seller, pass)).toBe('served')
    for (const payload of payment?.payloads ?? []) await settleDirectly(gateway, payload)
    await gateway.served.client.request({ method: 'evm_mine', params: [] } as never)
    await gateway.index()
    const refund = async (number: number, value: bigint) => {
      const signed = await signAuthorization(gateway.served, wallet, {
        from: wallet.address.toLowerCase() as Address,
        to: buyer.address.toLowerCase() as Address,
        value,
        ...validFor(86_400),
        nonce: refundNonce(gatewayIssuer, paymentId, number),
      })
      const { status } = await call(
        gateway.app,
        'POST',
        `/providers/${shop.providerId}/payments/${paymentId}/refunds`,
        {
          json: { payload: encodePayload(signed) },
          key: shop.key,
        },
      )
      expect(status).toBe(201)
    }
    await refund(1, 10_000n)
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 60_000 })
    expect(await present(seller, pass)).toBe('served')
    await refund(2, 37_500n)
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 60_000 })
    expect(await present(seller, pass)).toBe('402 pass_ended')
    const { body } = await call<Body>(gateway.app, 'GET', `/payments/${paymentId}`)
    expect(body.pass).toMatchObject({ pass_state: 'ended', endReason: 'refunded' })
    vi.useRealTimers()
  }
})

test('suspends a pass while its payment has failed, and resumes it once the payment settles', async () => {
  const seller = openPassShop(gateway, shop, bearer)
  const { pass, paymentId, payment } = await buy(seller)
  const later = () => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 })
  await gateway.database.begin((tx) =>
    recordFailure(
      tx,
      { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false },
      { now: new Date() },
    ),
  )
  later()
  expect(await present(seller, pass)).toBe('402 pass_ended')
  const reason = async () =>
    (await gateway.database`select end_reason as reason from pass where payment_id = ${paymentId}`)[0]?.reason
  expect(await reason()).toBe('unpaid')
  // The keeper fails the payment, another keeper settles it anyway, and that becomes final.
  const end = (kind: 'failed' | 'settled', isFinal: boolean) =>
    endPayments(
      gateway.database,
      [{ paymentId, kind, code: kind === 'failed' ? 'insufficient_balance' : null, isFinal }],
      new Date(),
    )
  await end('failed', false)
  expect(await reason()).toBe('unpaid')
  for (const payload of payment?.payloads ?? []) await settleDirectly(gateway, payload)
  await end('settled', true)
  expect(await reason()).toBeNull()
  later()
  expect(await present(seller, pass)).toBe('served')
})

test('only an endpoint’s provider can request a challenge for a pass, and a payment buys exactly the pass of its challenge', async () => {
  const { providerId, endpointId } = shop
  const pricing = (pass?: PassTerms) => ({ usdcPerUnit: '0.05', ...(pass && { pass }) })
  const ask = (pass: PassTerms | undefined, key?: string) =>
    call<Body>(gateway.app, 'POST', '/challenge', {
      json: { providerId, endpointId, pricing: pricing(pass) },
      ...(key !== undefined && { key }),
    })
  const other = await openShop(gateway.app)
  expect((await ask(hour)).body.code).toBe('unauthorized')
  expect((await ask(hour, other.key)).body.code).toBe('forbidden')
  for (const seconds of [59, 366 * 86_400 + 1, 0.5])
    expect((await ask({ ...hour, seconds }, shop.key)).body.code).toMatch(/^invalid_(?:field|request)$/)
  const { body: challenge } = await ask(hour, shop.key)
  expect(challenge.pass).toEqual(hour)
  expect(challenge.tab).toBeUndefined()
  expect(parseMacaroon(challenge.macaroon).terms.pass).toEqual(hour)

  const verify = async (challenge: Body, pass: PassTerms | undefined, more: object = {}) => {
    const halves = await Promise.all(
      ([0, 1] as const).map((half) => sign(gateway.served, buyer, challenge, half)),
    )
    const json = {
      macaroon: challenge.macaroon,
      payloads: halves.map(encodePayload),
      providerId,
      endpointId,
      pricing: pricing(pass),
      ...more,
    }
    const { status, body } = await call<Body>(gateway.app, 'POST', '/verify', { json })
    return status === 200 ? (body.pass ?? 'no pass') : body.code
  }
  // A buyer asks the gateway directly for more than the challenge sells, or pays for a pass with a request's challenge.
  expect(await verify(challenge, { ...hour, seconds: 86_400 })).toBe('pass_mismatch')
  expect(await verify(challenge, { ...hour, requests: 5 })).toBe('pass_mismatch')
  expect(await verify(challenge, undefined)).toBe('pass_mismatch')
  const { body: ordinary } = await ask(undefined, undefined)
  expect(await verify(ordinary, hour)).toBe('pass_mismatch')
  // x402 v1 clients send no macaroon, so nothing that they signed says what was sold.
  const [one] = await Promise.all([sign(gateway.served, buyer, challenge, 0)])
  const { body } = await call<Body>(gateway.app, 'POST', '/verify', {
    json: { payloads: [encodePayload(one)], providerId, endpointId, pricing: pricing(hour), x402Version: 1 },
  })
  expect(body.code).toBe('macaroon_invalid')
  // On a tab, neither a pass's macaroon nor a request's macaroon buys a pass.
  const tab = openTab(gateway, buyer)
  const onTab = await tab.sign(shop)
  for (const [macaroon, pass] of [
    [challenge.macaroon, hour],
    [challenge.macaroon, undefined],
    [onTab.macaroon, hour],
  ] as const) {
    const json = { ...onTab, macaroon, pricing: pricing(pass) }
    const { status, body } = await call<Body>(gateway.app, 'POST', '/verify', { json })
    expect([status, body.code]).toEqual([
      402,
      macaroon === challenge.macaroon && pass ? 'tabs_off' : 'pass_mismatch',
    ])
  }
  // If the same purchase is sent twice at once, one of the two requests buys the pass.
  const twins = await Promise.all([verify(challenge, hour), verify(challenge, hour)])
  expect(twins.filter((one) => one === 'payment_replayed')).toHaveLength(1)
})

test('a holder can’t turn the macaroon for a single request into a macaroon for a pass by appending a caveat', () => {
  const hmac = (key: Uint8Array, data: Uint8Array) => createHmac('sha256', key).update(data).digest()
  const secret = { kid: 'test', key: Buffer.alloc(32, 7) }
  const terms = {
    mintedAt: 1_800_000_000,
    requestId: `req_${'0'.repeat(32)}`,
    chainId: 31_337,
    asset: gateway.served.token,
    payTo: shop.wallet,
    feePayTo: shop.wallet,
    amount: 1n,
    feeAmount: 1n,
  }
  const caveats = { providerId: 'prov_1', endpointId: 'ep_1', expiry: 1_800_000_300 }
  const macaroon = mintMacaroon({ secret, hmac, terms, caveats })
  const parsed = parseMacaroon(macaroon)
  // A holder can append a caveat with any text.
  const caveat = Buffer.from('pass = bearer 31622400')
  const bytes = Buffer.from(macaroon, 'base64')
  const tail = Buffer.concat([Buffer.from([0, 6, 32]), Buffer.from(parsed.signature)])
  const widened = Buffer.concat([
    bytes.subarray(0, bytes.length - tail.length),
    Buffer.from([2, caveat.length]),
    caveat,
    Buffer.from([0, 0, 6, 32]),
    hmac(parsed.signature, caveat),
  ]).toString('base64')
  const request = { providerId: 'prov_1', endpointId: 'ep_1', payer: shop.wallet, amount: 2n }
  const now = 1_800_000_000
  expect(verifyMacaroon(macaroon, { secrets: [secret], hmac, now, request }).terms.pass).toBeUndefined()
  expect(() => verifyMacaroon(widened, { secrets: [secret], hmac, now, request })).toThrow('unknown caveat')
})

test('refuses a payer-bound pass to a contract wallet, without charging it', async () => {
  const account = privateKeyToAccount(generatePrivateKey())
  const client = createTestClient({ mode: 'hardhat', transport: http(gateway.chain.url) })
  // The contract accepts any signature (ERC-1271).
  await client.setCode({ address: account.address, bytecode: `0x7f1626ba7e${'0'.repeat(56)}5f5260205ff3` })
  await gateway.chain.mintUsdc([account.address], 1_000_000n)
  const payer = {
    address: account.address,
    isContract: true,
    signTypedData: async () => `0x${'5a'.repeat(65)}` as const,
  }
  const bound = openPassShop(gateway, shop, '1h')
  const error = await bound
    .buyer(payer as never)
    .request(shop.url)
    .catch((one: unknown) => one)
  expect(error).toMatchObject({ code: 'pass_payer_unsupported', outcome: 'unknown', isAccepted: false })
  const rows = await gateway.database`select from payment where payer = ${account.address.toLowerCase()}`
  expect(rows).toHaveLength(0)
  const unbound = openPassShop(gateway, shop, bearer)
  const { headers } = await unbound.buyer(payer as never).request(shop.url)
  expect(headers.get('service-pass')).toBeTruthy()
})

test('the client pays nothing if the 402 promises a different pass than the macaroon in it', async () => {
  const seller = openPassShop(gateway, shop, '15m')
  const fetch: typeof globalThis.fetch = async (...args) => {
    const response = await seller.fetch(...args)
    if (response.status !== 402) return response
    const body = (await response.json()) as Body
    return Response.json({ ...body, pass: { ...body.pass, seconds: 86_400 } }, { status: 402 })
  }
  await expect(seller.buyer(buyer, { fetch }).request(shop.url)).rejects.toThrow(
    'the pass in the challenge differs from the pass in its macaroon',
  )
})

test('a provider sees only its own passes, page by page', async () => {
  const own: Shop = await openShop(gateway.app)
  const seller = openPassShop(gateway, own, bearer)
  const ids: string[] = []
  for (let i = 0; i < 3; i++) ids.unshift((await seller.buyer(buyer).request(own.url)).paymentId ?? '')
  const list = async (query: string, key = own.key) =>
    (await call<Body>(gateway.app, 'GET', `/providers/${own.providerId}/passes${query}`, { key })).body
  const first = await list('?limit=2')
  expect(first.passes.map(({ paymentId }: Body) => paymentId)).toEqual(ids.slice(0, 2))
  const second = await list(`?limit=2&cursor=${first.cursor}`)
  expect(second).toMatchObject({
    passes: [{ paymentId: ids[2], pass_state: 'valid', boundTo: 'bearer' }],
    cursor: null,
  })
  await call(gateway.app, 'POST', `/payments/${ids[0]}/void`, { key: own.key })
  expect((await list('?state=ended')).passes.map(({ paymentId }: Body) => paymentId)).toEqual([ids[0]])
  expect((await list('?state=valid')).passes).toHaveLength(2)
  expect((await list(`?payer=${shop.wallet}`)).passes).toEqual([])
  expect((await list('', shop.key)).code).toBe('forbidden')

  const ended = async (tag?: string) =>
    call<Body>(gateway.app, 'GET', `/providers/${own.providerId}/passes/ended`, {
      key: own.key,
      ...(tag !== undefined && { headers: { 'if-none-match': tag } }),
    })
  const { body, headers } = await ended()
  expect(body).toEqual({ ended: [{ paymentId: ids[0], reason: 'voided' }], cursor: null })
  expect((await ended(headers.get('etag') ?? '')).status).toBe(304)
  expect(
    (await call(gateway.app, 'GET', `/providers/${own.providerId}/passes/ended`, { key: shop.key })).status,
  ).toBe(403)
})
