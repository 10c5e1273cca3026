import { once } from 'node:events'
import { createServer, request as forward, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { reservePort } from '@tollkeeper/runtime/port'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import type { SignedExactPayment } from '@tollkeeper/sdk/client/signedPayment'
import { createSpendingMemory } from '@tollkeeper/sdk/client/spending'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import type { Challenge } from '@tollkeeper/sdk/protocol/challenge'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { describe, expect, onTestFinished, test } from 'vitest'
import { newBuyer, openShop, present, signOnly } from '../support/shop.ts'
import { openSmartAccount } from '../support/smartAccount.ts'
import { useTestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { readBalance, tokenOf } from '../support/usdc.ts'

const stack = useTestStack()

test('default: returns a 402, and after the payment the data with a receipt', async () => {
  const shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const unpaid = await fetch(shop.url)
  expect(unpaid.status).toBe(402)
  expect(unpaid.headers.get('content-type')).toMatch(/^application\/json/)
  const challenge = (await unpaid.json()) as Challenge
  expect(challenge).toMatchObject({
    x402Version: 1,
    providerId: shop.providerId,
    endpointId: shop.endpointIds[0],
  })
  expect(
    challenge.accepts.map(({ scheme, network, maxAmountRequired, resource, payTo }) => ({
      scheme,
      network,
      maxAmountRequired,
      resource,
      payTo,
    })),
  ).toEqual([
    {
      scheme: 'exact',
      network: 'localhost',
      maxAmountRequired: '47500',
      resource: shop.url,
      payTo: shop.address.toLowerCase(),
    },
    {
      scheme: 'exact',
      network: 'localhost',
      maxAmountRequired: '2500',
      resource: shop.url,
      payTo: stack.platformWallet.toLowerCase(),
    },
  ])

  const buyer = await newBuyer(stack, '1')
  const { data, receipt, paymentTxHash, paymentId } = await buyer.client.request<{ verified: boolean }>(
    shop.url,
  )
  expect(data).toEqual({ verified: true, receipt, paymentId })
  expect(paymentTxHash).toBeUndefined()
  const { body: jwks } = await stack.get('/.well-known/jwks.json')
  const claims = await verifyReceipt(receipt as string, jwks as never)
  expect(claims).toMatchObject({
    paymentId,
    providerId: shop.providerId,
    totalUsdc: '50000',
    providerUsdc: '47500',
    platformUsdc: '2500',
    tier: 'micropayment',
    effectiveRate: '0.05',
    transactionHash: zeroHash,
    payer: buyer.address.toLowerCase(),
    iss: stack.api.url,
  })
  expect((await stack.get(`/payments/${paymentId}`)).body).toMatchObject({ payment_status: 'verified' })
  await shop.close()
})

test.each(['hono', 'express', 'fastify', 'fetch'] as const)(
  'behavior: a shop that uses %s rejects a used payment',
  async (framework) => {
    const shop = await openShop(stack, { framework })
    const buyer = await newBuyer(stack, '1')
    const { payment, paymentId } = await buyer.client.request(shop.url)
    const again = await present(shop, payment as SignedExactPayment)
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, 'true'])
    expect(await again.json()).toMatchObject({ verified: true, paymentId })
    const other = await present({ ...shop, url: `${shop.url}?other` }, payment as SignedExactPayment)
    expect(other.status).toBe(409)
    expect(other.headers.get('content-type')).toMatch(/^application\/problem\+json/)
    expect(await other.json()).toMatchObject({ code: 'payment_replayed', paymentId })
    expect(shop.served()).toBe(1)
    await shop.close()
  },
)

test('behavior: if a paid request is sent ten times simultaneously, the shop serves the request once', async () => {
  const shop = await openShop(stack)
  const buyer = await newBuyer(stack, '1')
  const payment = await signOnly(stack, shop, buyer)
  const answers = await Promise.all(Array.from({ length: 10 }, () => present(shop, payment)))
  // The other requests get the same response; if too many wait for it, some of them get a 409 or 503 and may retry.
  expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(9)
  expect(
    answers.filter(
      ({ headers }) => headers.get('idempotent-replayed') === null && headers.get('retry-after') === null,
    ).length,
  ).toBe(1)
  expect(shop.served()).toBe(1)
  await shop.close()
})

test('behavior: pays exactly 10 of 100 simultaneous requests if the budget is for 10', async () => {
  const shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const buyer = await newBuyer(stack, '10', { limits: { perDay: '0.54' } })
  const requests = Array.from({ length: 100 }, () =>
    buyer.client.request(shop.url).then(
      () => 'paid',
      ({ code }) => code,
    ),
  )
  const answers = await Promise.all(requests)
  expect(answers.sort()).toEqual([...Array(10).fill('paid'), ...Array(90).fill('spending_limit_exceeded')])
  expect(shop.served()).toBe(10)
  const { body } = await stack.get(`/settlements/status?wallet=${shop.address}`)
  expect(body).toMatchObject({ payment_count: 10, accumulated_usdc: '0.475000' })
  await shop.close()
})

test('behavior: limits a wrapped fetch to the budget that a client with the same store has left', async () => {
  const shop = await openShop(stack, { usdcPerUnit: '0.05', framework: 'express' })
  const limits = { limits: { perDay: '0.10' }, stores: { spending: createSpendingMemory() } }
  const { client, privateKey } = await newBuyer(stack, '1', limits)
  const payingFetch = wrapFetch(fetch, {
    gatewayUrl: stack.api.url,
    network: stack.chain.network,
    usdcAddress: tokenOf(stack.chain),
    walletPrivateKey: privateKey,
    tabs: false,
    ...limits,
  })
  await client.request(shop.url)
  const response = await payingFetch(new URL(shop.url))
  const receipt = response.headers.get('service-receipt') as string
  const paymentId = decodeReceipt(receipt)?.paymentId
  expect([response.status, await response.json()]).toEqual([200, { verified: true, receipt, paymentId }])
  await expect(payingFetch(shop.url)).rejects.toMatchObject({ code: 'spending_limit_exceeded' })
  expect(shop.served()).toBe(2)
  await shop.close()
})

test('behavior: a smart account can pay by ERC-1271 once it is deployed, and signs nothing before it is deployed', async () => {
  const shop = await openShop(stack, { usdcPerUnit: '12' })
  const { account, deploy, asked } = await openSmartAccount(stack)
  await stack.chain.mintUsdc([account.address], 25_000_000n)
  const clientOf = (split: 'onchain' | 'separate') =>
    createClient({
      gatewayUrl: stack.api.url,
      network: stack.chain.network,
      usdcAddress: tokenOf(stack.chain),
      account,
      limits: { perPayment: '12' },
      timeout: 60_000,
      split,
    })
  const refused = clientOf('separate').request(shop.url)
  await expect(refused).rejects.toMatchObject({ code: 'smart_account_not_deployed' })
  await expect(refused).rejects.toThrow(`${account.address} is not deployed`)
  expect(asked()).toBe(0)
  await deploy()
  for (const split of ['onchain', 'separate'] as const) {
    const client = clientOf(split)
    const { paymentId } = await client.request(shop.url)
    await client.waitForSettlement(paymentId as string, { pollingInterval: 100 })
  }
  expect(await readBalance(stack.rpc, tokenOf(stack.chain), account.address)).toBe(1_000_000n)
  await shop.close()
})

test.each([
  ['answers 500', () => new Response('broken', { status: 500 })],
  [
    'throws',
    () => {
      throw new Error('broken')
    },
  ],
])('behavior: voids the payment if the handler %s', async (_, handler) => {
  const shop = await openShop(stack, { handler })
  const buyer = await newBuyer(stack, '1')
  const error = await buyer.client.request(shop.url).catch((reason) => reason)
  expect(error).toMatchObject({ status: 500, message: expect.stringContaining('voided') })
  expect((await stack.get(`/payments/${error.paymentId}`)).body).toMatchObject({ payment_status: 'voided' })
  const again = await present(shop, error.payment)
  expect(again.status).toBe(409)
  expect(again.headers.get('service-receipt')).toBeNull()
  await shop.close()
})

test.each(['Bearer abc', 'Basic dXNlcjpwYXNz'])(
  'args: ignores the authorization %s and answers 402',
  async (authorization) => {
    const shop = await openShop(stack)
    const answer = await fetch(shop.url, { headers: { authorization } })
    expect(answer.status).toBe(402)
    const body = await answer.json()
    expect(body).toHaveProperty('macaroon')
    expect(body).not.toHaveProperty('code')
    await shop.close()
  },
)

test('error: refuses a payment for another endpoint', async () => {
  const [shop, other] = [await openShop(stack), await openShop(stack)]
  const payment = await signOnly(stack, shop, await newBuyer(stack, '1'))
  const answer = await present(other, payment)
  expect(answer.status).toBe(402)
  const body = await answer.json()
  expect(body).toMatchObject({ code: 'caveat_mismatch' })
  expect(body).toHaveProperty('macaroon')
  expect(other.served()).toBe(0)
  await Promise.all([shop.close(), other.close()])
})

test('args: mockPayments issues a fake challenge and a fake receipt without calling a gateway', async () => {
  // Nothing listens on this port, so a call to the gateway would fail.
  const shop = await openShop(stack, {
    gatewayUrl: `http://127.0.0.1:${await reservePort()}`,
    mockPayments: true,
  })
  const unpaid = await fetch(shop.url)
  expect(unpaid.status).toBe(402)
  expect(await unpaid.json()).toMatchObject({ x402Version: 1, accepts: [{}, {}] })
  const paid = await fetch(shop.url, { headers: { authorization: 'x402 mock:mock' } })
  expect(paid.status).toBe(200)
  expect(await paid.json()).toMatchObject({ verified: true })
  const receipt = paid.headers.get('service-receipt') as string
  expect(decodeReceipt(receipt)).toMatchObject({ transactionHash: zeroHash })
  const { body: jwks } = await stack.get('/.well-known/jwks.json')
  await expect(verifyReceipt(receipt, jwks as never)).rejects.toMatchObject({ code: 'invalid_receipt' })
  await shop.close()
})

test('error: rejects mock:mock if mock mode is off', async () => {
  const shop = await openShop(stack)
  const answer = await fetch(shop.url, { headers: { authorization: 'x402 mock:mock' } })
  expect(answer.status).toBe(402)
  expect(await answer.json()).toMatchObject({ code: 'mock_mode_off' })
  expect(shop.served()).toBe(0)
  await shop.close()
})

test('error: serves no one while the gateway is down', async () => {
  const shop = await openShop(stack, { gatewayUrl: `http://127.0.0.1:${await reservePort()}` })
  const reachable = await openShop(stack)
  const buyer = await newBuyer(stack, '1')
  for (const headers of [
    {},
    { authorization: encodeAuthorizationHeader(await signOnly(stack, reachable, buyer)) },
  ]) {
    const answer = await fetch(shop.url, { headers })
    expect(answer.status).toBe(503)
    expect(answer.headers.get('retry-after')).not.toBeNull()
    expect(await answer.json()).toMatchObject({ code: 'dependency_unavailable' })
  }
  expect(shop.served()).toBe(0)
  await Promise.all([shop.close(), reachable.close()])
})

test('error: refuses a wallet without enough USDC', async () => {
  const shop = await openShop(stack)
  const buyer = await newBuyer(stack, '0.009999')
  await expect(buyer.client.request(shop.url)).rejects.toMatchObject({
    status: 402,
    message: expect.stringContaining('Insufficient USDC balance'),
  })
  expect(shop.served()).toBe(0)
  await shop.close()
})

describe('a network between middleware and gateway that delivers each call but loses some answers', () => {
  /** Opens the network. @param lost number of responses of `/verify` that never arrive. */
  async function loseAnswers(lost: number): Promise<{ url: string; keys: Set<unknown>; mend: () => void }> {
    const keys = new Set<unknown>()
    let left = lost
    const server: Server = createServer((incoming, outgoing) => {
      const isVerify = incoming.url === '/verify'
      if (isVerify) keys.add(incoming.headers['idempotency-key'])
      const options = { method: incoming.method, headers: incoming.headers }
      const onward = forward(new URL(incoming.url ?? '/', stack.api.url), options, (answer) => {
        if (isVerify && left-- > 0) {
          // The gateway has decided, but its response is lost.
          answer.resume().once('end', () => incoming.socket.destroy())
          return
        }
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(outgoing)
      })
      onward.on('error', () => incoming.socket.destroy())
      incoming.pipe(onward)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    const mend = () => {
      left = 0
    }
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, keys, mend }
  }

  test('behavior: if the gateway’s response is lost, the middleware asks again and serves the request once', async () => {
    const network = await loseAnswers(2)
    const shop = await openShop(stack, { gatewayUrl: network.url })
    const buyer = await newBuyer(stack, '1')
    const { data, paymentId } = await buyer.client.request<{ verified: boolean }>(shop.url)
    expect(data).toMatchObject({ verified: true, paymentId })
    expect(network.keys.size).toBe(1)
    expect(shop.served()).toBe(1)
    expect((await stack.get(`/payments/${paymentId}`)).body).toMatchObject({ payment_status: 'verified' })
    await shop.close()
  })

  test('behavior: if all of the gateway’s responses are lost, the middleware serves nothing, and voids the payment unless the buyer presents it again', async () => {
    const network = await loseAnswers(Number.POSITIVE_INFINITY)
    const shop = await openShop(stack, { gatewayUrl: network.url, timeout: 8_000 })
    const payments = [
      await signOnly(stack, shop, await newBuyer(stack, '1')),
      await signOnly(stack, shop, await newBuyer(stack, '1')),
    ]
    const answers = await Promise.all(payments.map((payment) => present(shop, payment)))
    expect(answers.map(({ status }) => status)).toEqual([503, 503])
    expect(answers[0]?.headers.get('service-receipt')).toBeNull()
    network.mend()

    expect((await present(shop, payments[0] as SignedExactPayment)).status).toBe(200)
    const { from, nonce } = parsePayload(payments[1]?.payloads[0] ?? '')
    await until('the payment is voided', async () => {
      const { body } = await stack.get(`/authorizations/${from}/${nonce}`)
      return (body as { payment_status: string }).payment_status === 'voided'
    })
    expect(shop.served()).toBe(1)
    await shop.close()
  })
})
