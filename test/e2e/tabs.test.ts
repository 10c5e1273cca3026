import { audit } from '@tollkeeper/sdk/audit/audit'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { keepTabs } from '@tollkeeper/sdk/x402/index'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment, x402Client } from '@x402/fetch'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newBuyer, openShop, type Shop } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { tokenOf } from '../support/usdc.ts'

// The SDK's tabs from the first 402 to the settlement, with a real gateway, keeper and contract.

let stack: TestStack
let micro: Shop
let metered: Shop
/** Resolves when the requests marked `fail late` should fail. */
let lateFailure: Promise<void>
beforeAll(async () => {
  stack = await startTestStack({
    chain: { network: 'base-sepolia' },
    env: { keeper: { TRIGGER_TIME_SECONDS: '1' } },
  })
  micro = await openShop(stack, { usdcPerUnit: '0.001' })
  metered = await openShop(stack, {
    usdcPerUnit: '0.05',
    handler: async (c) => {
      const charged = c.req.query('charge')
      if (charged === 'fail') return c.text('failed', 500)
      if (charged === 'fail late') {
        await lateFailure
        return c.text('failed', 500)
      }
      return c.json({ isCharged: charged ? await c.get('payment').charge(charged) : undefined })
    },
  })
})
afterAll(async () => {
  await Promise.all([micro, metered].map((shop) => shop?.close()))
  await stack?.close()
})

async function expectSettled(paymentId: string): Promise<void> {
  await until(`${paymentId} is settled`, async () => {
    const { body } = await stack.get(`/payments/${paymentId}`)
    return body.payment_status === 'settled'
  })
}

test('default: settles many requests to two providers in one transaction, for the exact amount, as the audit confirms', async () => {
  const receipts: string[] = []
  const { client } = await newBuyer(stack, '1', {
    tabs: true,
    onReceipt: ({ receipt }) => void receipts.push(receipt),
  })
  const { paymentId } = await client.request(micro.url)
  await client.request(metered.url)
  await Promise.all(Array.from({ length: 12 }, (_, i) => client.request(i % 3 ? micro.url : metered.url)))
  const charged = await client.request(`${metered.url}?charge=0.0002`)
  expect(charged.data).toEqual({ isCharged: true })
  expect(charged.headers.get('service-charged')).toBe('0.000200')
  await expect(client.request(`${metered.url}?charge=fail`)).rejects.toMatchObject({ status: 500 })
  const [tab, ...others] = await client.tabs()
  expect([others, tab?.sequence]).toEqual([[], 16])
  expect(tab?.lines.map(({ bought }) => bought)).toEqual([9_000n, 250_200n])
  await client.close()
  await expectSettled(paymentId ?? '')
  // A request that was charged less gets a separate receipt, because a receipt with the full price would promise more than
  // settles.
  const report = await audit({
    receipts,
    jwks: `${stack.api.url}/.well-known/jwks.json`,
    rpcUrls: [stack.chain.url],
    deployments: stack.chain.deployments,
    confirmations: 0,
  })
  expect(report.states).toMatchObject({ settled: 15, mismatch: 0 })
  expect(report.tabs).toMatchObject([{ movedAmount: 259_200n, requests: 15 }])
})

test('behavior: keeps the receipts of served requests valid if a simultaneous request fails later', async () => {
  const receipts: string[] = []
  const { client } = await newBuyer(stack, '1', {
    tabs: true,
    onReceipt: ({ receipt }) => void receipts.push(receipt),
  })
  await client.request(metered.url)
  const { promise, resolve } = Promise.withResolvers<void>()
  lateFailure = promise
  const failing = client.request(`${metered.url}?charge=fail late`).catch((error: unknown) => error)
  await until('its payment is accepted', async () => {
    const [tab] = await client.tabs()
    const { body } = await stack.get(`/tabs/${tab?.id}`)
    return body.requests === 2
  })
  const { paymentId } = await client.request(metered.url)
  resolve()
  expect(await failing).toMatchObject({ status: 500, outcome: 'not_charged' })
  await client.close()
  await expectSettled(paymentId ?? '')
  const verify = (audited: string[]) =>
    audit({
      receipts: audited,
      jwks: `${stack.api.url}/.well-known/jwks.json`,
      rpcUrls: [stack.chain.url],
      deployments: stack.chain.deployments,
      confirmations: 0,
    })
  const report = await verify(receipts)
  expect(report).toMatchObject({ reconciled: true, states: { settled: 2, cancelled: 1 } })
  expect(report.tabs).toMatchObject([
    { movedAmount: 100_000n, requests: 2, lines: [{ boughtAmount: 100_000n, lineTotal: 100_000n, gap: 0n }] },
  ])
  // Without its receipt of the void, a voided request looks to an auditor like a request that wasn't paid.
  const isCharged = (receipt: string) => decodeReceipt(receipt)?.status !== 'voided'
  expect((await verify(receipts.filter(isCharged))).receipts).toMatchObject([
    { state: 'settled' },
    { state: 'mismatch', reason: 'line' },
  ])
})

test('behavior: clients of @x402/core can pay on tabs', async () => {
  const account = privateKeyToAccount(generatePrivateKey())
  await stack.chain.mintUsdc([account.address], parseUsdc('1'))
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account))
  const tabs = keepTabs(client, account, {
    gatewayUrl: stack.api.url,
    usdcAddress: tokenOf(stack.chain),
  })
  const payingFetch = wrapFetchWithPayment(fetch, client)
  for (let i = 0; i < 6; i++) expect((await payingFetch(micro.url)).status).toBe(200)
  // The client is notified immediately of the voided amount, and the next request uses it up.
  expect((await payingFetch(`${metered.url}?charge=fail`)).status).toBe(500)
  expect(await tabs.tabs()).toMatchObject([
    { sequence: 7, lines: [{ bought: 6_000n }, { bought: 0n, signed: 50_000n }] },
  ])
  await tabs.close()
  expect(await tabs.tabs()).toEqual([])
})
