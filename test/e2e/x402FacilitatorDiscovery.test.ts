import { findProviderPayments } from '@tollkeeper/api/views/providerPaymentQueries'
import { findKeyOwner } from '@tollkeeper/ledger/registry/apiKeys'
import { audit } from '@tollkeeper/sdk/audit/audit'
import { beforeAll, describe, expect, test } from 'vitest'
import { facilitator, useFacilitator } from '../support/facilitator.ts'
import { createStackGateway } from '../support/keeperGateway.ts'
import { mine, untilIndexed } from '../support/keeperScenes.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'
import { ask, toV1 } from '../support/x402.ts'

// The facilitator of the x402 standard as sellers' middlewares use it, on a real chain, Postgres and Ponder:
// `GET /supported`, `POST /accepts`, keys, the declarations in payments, and the provider's views.

const { stack, keeper, pay } = useFacilitator()
let key: string
beforeAll(() => {
  key = stack.apiKey
})

describe('GET /supported', () => {
  test('default: lists both versions of every served network, the extensions, and the wallets that send the transactions', async () => {
    const { status, body } = await ask(keeper, '/supported')
    expect(status).toBe(200)
    const extra = { name: 'USD Coin', version: '2', decimals: 6, primaryType: 'TransferWithAuthorization' }
    expect(body).toEqual({
      kinds: [
        { x402Version: 2, scheme: 'exact', network: 'eip155:31337', extra },
        { x402Version: 1, scheme: 'exact', network: 'localhost', extra },
      ],
      extensions: ['payment-identifier', 'bazaar'],
      signers: { 'eip155:*': [expect.stringMatching(/^0x[0-9a-fA-F]{40}$/)] },
    })
  })
})

describe('the key of a seller that can’t send our header', () => {
  const basic = (pair: string) => `Basic ${Buffer.from(pair).toString('base64')}`

  test('default: identifies the same caller by a key in the path or in Basic auth, and returns 401 for a wrong key', async () => {
    const { body } = await pay(await stack.buyer())
    const url = `/k/${key}` as const
    expect((await ask(keeper, `${url}/supported`)).body).toEqual((await ask(keeper, '/supported')).body)
    expect(await ask(keeper, `${url}/verify`, { body })).toMatchObject({ body: { isValid: true } })
    const settled = await ask(keeper, '/settle', { body, authorization: basic(`seller:${key}`) })
    expect(settled.body).toMatchObject({ success: true })
    const again = await pay(await stack.buyer())
    expect(await ask(keeper, '/verify', { body: again.body, authorization: basic(`${key}:`) })).toMatchObject(
      {
        body: { isValid: true },
      },
    )
    const [row] = await stack.database`
      select count(distinct provider_id)::int as callers, count(*)::int as payments from facilitation
      where payment_id in (select payment_id from signed_authorization where nonce in ${stack.database(
        [body, again.body].map(
          (one) =>
            (one.paymentPayload as { payload: { authorization: { nonce: string } } }).payload.authorization
              .nonce,
        ),
      )})`
    expect(row).toEqual({ callers: 1, payments: 2 })
    const wrong = key.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))
    for (const path of [`/k/${wrong}/verify`, '/k/x/settle', `/k/${wrong}/accepts`] as const)
      expect((await ask(keeper, path, { body })).status).toBe(401)
    for (const authorization of [basic(`seller:${wrong}`), basic(''), 'Basic !', `Basic ${key}`])
      expect((await ask(keeper, '/verify', { body, authorization })).status).toBe(401)
    // The Authorization header of another program doesn't override the key in the path.
    expect((await ask(keeper, `${url}/verify`, { body, authorization: 'Bearer theirs' })).status).toBe(200)
  })
})

describe('POST /accepts', () => {
  test('default: /accepts responds in the form of the request, and rejects an unknown form or network with 400', async () => {
    const asked = { scheme: 'exact', network: 'eip155:31337', amount: '10000', payTo: randomHex(20) }
    const body = { x402Version: 2, resource: { url: 'https://seller.example/' }, accepts: [asked] }
    expect(await ask(keeper, '/accepts', { body, key })).toMatchObject({
      status: 200,
      body: { accepts: [{ ...asked, asset: stack.served.token, extra: { name: 'USD Coin' } }] },
    })
    const priced = { resourceUrl: 'https://seller.example/', network: 'eip155:31337', price: '$0.01' }
    const withWallet = { ...priced, serverWalletAddress: asked.payTo }
    expect(await ask(keeper, `/k/${key}/accepts`, { body: withWallet })).toMatchObject({
      status: 402,
      body: { accepts: [{ maxAmountRequired: '10000' }] },
    })
    const elsewhere = { ...withWallet, network: 'eip155:1' }
    const statuses = [priced, '{', elsewhere].map(
      async (one) => (await ask(keeper, '/accepts', { body: one, key })).status,
    )
    expect(await Promise.all(statuses)).toEqual([400, 400, 400])
    expect((await ask(keeper, '/accepts', { body })).status).toBe(401)
  })
})

describe('the declaration in a payment', () => {
  const resource = 'https://tides.example/today'
  const declaration = {
    info: {
      input: { type: 'http', method: 'GET', queryParams: { sea: 'Baltic' } },
      output: { type: 'json', example: {} },
    },
    schema: {
      type: 'object',
      properties: { input: { type: 'object', required: ['type', 'method'] }, output: { type: 'object' } },
      required: ['input'],
    },
  }
  const declare = async (bazaar: unknown, more: object = {}) => {
    const payTo = randomHex(20)
    const { body } = await pay(await stack.buyer(), { payTo, resource })
    const { paymentPayload } = body as { paymentPayload: { resource: object } }
    Object.assign(paymentPayload, { extensions: { bazaar } })
    Object.assign(paymentPayload.resource, { description: 'Tides', mimeType: 'application/json', ...more })
    return { payTo, body }
  }
  const send = async (path: '/verify' | '/settle', body: unknown) => {
    const response = await keeper.app.request(path, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    })
    const header = response.headers.get('extension-responses')
    return {
      body: (await response.json()) as Record<string, unknown>,
      listing: header === null ? null : JSON.parse(Buffer.from(header, 'base64').toString()),
    }
  }
  const sold = async (payTo: string) => {
    const response = await stack.keeper({ facilitator }).app.request(`/discovery/merchant?payTo=${payTo}`)
    return ((await response.json()) as { resources: object[] }).resources
  }

  test('default: lists a resource only once a payment for it has settled, under the wallet that was paid', async () => {
    const { payTo, body } = await declare(declaration, {
      serviceName: 'Tides',
      tags: ['sea', 'x'.repeat(33)],
    })
    expect(await send('/verify', body)).toMatchObject({
      body: { isValid: true },
      listing: { bazaar: { status: 'processing' } },
    })
    expect(await sold(payTo)).toEqual([])
    expect(await send('/settle', body)).toMatchObject({
      body: { success: true },
      listing: { bazaar: { status: 'success' } },
    })
    expect(await sold(payTo)).toMatchObject([
      {
        resource,
        type: 'http',
        x402Version: 2,
        description: 'Tides',
        serviceName: 'Tides',
        tags: ['sea'],
        accepts: [
          { scheme: 'exact', network: 'eip155:31337', amount: '10000', payTo, maxTimeoutSeconds: 300 },
        ],
        extensions: { bazaar: declaration },
        quality: { proven: false },
      },
    ])
    const found = await keeper.app.request('/discovery/search?query=tides')
    expect(await found.json()).toMatchObject({ resources: [{ resource }] })
  })

  test.each([
    [{ ...declaration, info: { input: { type: 'ftp' } } }, {}, 'info.input.type'],
    [{ ...declaration, info: { input: { type: 'http' } } }, {}, 'info does not match schema'],
    [{ ...declaration, schema: { $ref: 'https://internal.example/' } }, {}, 'references are not followed'],
    ['text', {}, 'info.input.type'],
    [{ ...declaration, info: { input: { type: 'http', method: { toString: 1 } } } }, {}, 'info.input.method'],
    [JSON.parse(`${'['.repeat(2_000)}${']'.repeat(2_000)}`), {}, 'at most 64 levels'],
    [declaration, { description: 'x'.repeat(501) }, 'at most 500 characters'],
    [{ ...declaration, padding: 'x'.repeat(17_000) }, {}, 'at most 16384 bytes'],
  ])(
    'error: accepts the payment for a resource that can’t be listed, and reports the reason to the seller (declaration %#)',
    async (bazaar, more, why) => {
      const { payTo, body } = await declare(bazaar, more)
      const rejected = { bazaar: { status: 'rejected', rejectedReason: expect.stringContaining(why) } }
      expect(await send('/verify', body)).toMatchObject({ body: { isValid: true }, listing: rejected })
      expect(await send('/settle', body)).toMatchObject({ body: { success: true }, listing: rejected })
      expect(await sold(payTo)).toEqual([])
    },
  )

  test('args: in x402 version 1, reads the declaration from `outputSchema`', async () => {
    const payTo = randomHex(20)
    const body = toV1(await pay(await stack.buyer(), { payTo })) as { paymentRequirements: object }
    const input = { type: 'http', method: 'POST', discoverable: true, bodyFields: { sea: 'Baltic' } }
    Object.assign(body.paymentRequirements, {
      outputSchema: { input, output: { tide: 'low' } },
      maxTimeoutSeconds: 60,
    })
    expect(await send('/settle', body)).toMatchObject({
      body: { success: true },
      listing: { bazaar: { status: 'success' } },
    })
    expect(await sold(payTo)).toMatchObject([
      {
        x402Version: 1,
        accepts: [{ network: 'localhost', maxAmountRequired: '10000', maxTimeoutSeconds: 60 }],
        extensions: {
          bazaar: { info: { input: { method: 'POST', bodyType: 'json', body: { sea: 'Baltic' } } } },
        },
      },
    ])
  })

  test('behavior: omits the discovery report for a payment without a declaration, and lists no resource if discovery is off', async () => {
    const { body } = await pay(await stack.buyer())
    expect((await send('/verify', body)).listing).toBeNull()
    const silent = stack.keeper({ facilitator, discovery: null })
    expect((await silent.app.request('/discovery/resources')).status).toBe(404)
    expect(await (await silent.app.request('/supported')).json()).toMatchObject({
      extensions: ['payment-identifier'],
    })
  })
})

describe('the provider’s views', () => {
  test('behavior: revenue, statement, export, status and webhooks include facilitator payments', async () => {
    // A seller that has sold nothing yet.
    const otherKey = stack.grantedKey
    const providerId = await findKeyOwner(stack.database, otherKey)
    const payTo = randomHex(20)
    const gateway = createStackGateway(stack)
    const get = async (path: string) => {
      const answer = await gateway.request(path, { headers: { authorization: `Bearer ${otherKey}` } })
      expect(answer.status, path).toBe(200)
      const text = await answer.text()
      return text.startsWith('{') ? JSON.parse(text) : text
    }
    const today = new Date().toISOString().slice(0, 10)
    const { body } = await pay(await stack.buyer(), { payTo, value: 77_777n })
    const { transaction } = (await ask(keeper, '/settle', { body, key: otherKey })).body
    await untilIndexed(stack)
    const own = {
      payments: 1,
      settledPayments: 1,
      gross_usdc: '0.077777',
      fee_usdc: '0.000000',
      net_usdc: '0.077777',
    }
    const { revenue } = await get(`/providers/${providerId}/revenue`)
    expect(revenue).toMatchObject([own])
    expect(await get(`/providers/${providerId}/statement?month=${today.slice(0, 7)}`)).toMatchObject({
      networks: [own],
    })
    const csv = await get(`/providers/${providerId}/statement?month=${today.slice(0, 7)}&format=csv`)
    expect(csv).toContain(`${transaction}`)
    expect(await get(`/settlements/export?wallet=${payTo}&start=${today}&end=2100-01-01`)).toContain(
      `,0.077777,`,
    )
    expect(await get(`/settlements/batches?wallet=${payTo}`)).toMatchObject({
      batches: [{ payment_count: 1, total_usdc: '0.077777', tx_hash: transaction }],
    })
    await mine(stack, 3)
    await until('the webhook is queued', async () => {
      const rows = await stack.database<
        { event: string }[]
      >`select event from outbox where tx_hash = ${String(transaction)}`
      return rows.some(({ event }) => event === 'payment.settled')
    })
  })

  test('behavior: an audit lists a payment without a receipt as unreceipted', async () => {
    const payTo = randomHex(20)
    const buyer = await stack.buyer()
    const { body } = await pay(buyer, { payTo })
    const { transaction, extra } = (await ask(keeper, '/settle', { body, key })).body
    const report = await audit({
      receipts: [],
      jwks: { keys: [] },
      rpcUrls: [stack.chain.url],
      deployments: stack.chain.deployments,
      confirmations: 0,
      wallets: [payTo],
    })
    const { nonce } = extra as { nonce: string }
    const found = { direction: 'in', from: buyer.address.toLowerCase(), value: 10_000n, nonce }
    expect(report).toMatchObject({
      reconciled: false,
      wallets: [
        { transfers: 1, plainTransfers: 0, unreceipted: [{ ...found, transactionHash: transaction }] },
      ],
    })
  })

  test('behavior: views list facilitator payments with the source `facilitator`', async () => {
    const buyer = await stack.buyer()
    const { body } = await pay(buyer)
    const reserved = await pay(buyer)
    const settled = await ask(keeper, '/settle', { body, key })
    expect((await ask(keeper, '/verify', { body: reserved.body, key })).body.isValid).toBe(true)
    const [{ providerId }] = await stack.database<[{ providerId: string }]>`
      select provider_id as "providerId" from facilitation where payer = ${buyer.address.toLowerCase()} limit 1`
    const payer = buyer.address.toLowerCase() as `0x${string}`
    const { payments } = await findProviderPayments(stack.database, {
      providerId,
      payer,
      after: null,
      limit: 10,
      now: new Date(),
    })
    // A payment that is only reserved isn't listed yet.
    expect(payments).toHaveLength(1)
    expect(payments[0]).toMatchObject({
      source: 'facilitator',
      endpointId: null,
      payment_status: 'settled',
      transactionHash: settled.body.transaction,
      providerUsdc: 10_000n,
      platformUsdc: 0n,
    })
  })
})
