import { randomUUID } from 'node:crypto'
import type { SignedExactPayment } from '@tollkeeper/sdk/client/signedPayment'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { boundNonce } from '@tollkeeper/sdk/protocol/challenge'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { decodeJwt } from 'jose'
import type { Address, Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import type { Service } from '../../apps/devstack/stack/service.ts'
import { newBuyer, openShop, present, type Shop, signOnly, type TestBuyer } from '../support/shop.ts'
import { mineUntil, startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import {
  cancelDirectly,
  randomHex,
  readBalance,
  sendDirectly,
  signAuthorization,
  tokenOf,
} from '../support/usdc.ts'

/** Only payments of high value trigger a settlement here. */
const patient = { TRIGGER_COUNT: '1000', TRIGGER_AMOUNT_USDC: '1000', TRIGGER_TIME_SECONDS: '3600' }
const eager = { ...patient, TRIGGER_TIME_SECONDS: '1' }

let stack: TestStack
/** A second api process, on the same database, for the same gateway. */
let second: Service
let shop: Shop | undefined

beforeAll(async () => {
  stack = await startTestStack({
    env: {
      keeper: patient,
      api: { SETTLE_BEFORE_SERVE_USDC: '10', SETTLE_BEFORE_SERVE_TIMEOUT_MS: '60000' },
    },
  })
  second = await stack.createService('api', {
    PUBLIC_URL: stack.api.url,
    SETTLE_BEFORE_SERVE_TIMEOUT_MS: '500',
  })
  await Promise.all([second.start(), stack.keeper.stop()])
})
afterEach(async () => {
  await shop?.close()
  shop = undefined
})
afterAll(() => stack?.close())

/** Runs a keeper that settles everything in the queue until the condition holds, then stops it. */
async function settleUntil(what: string, holds: () => Promise<boolean>): Promise<void> {
  await stack.keeper.start(eager)
  await until(what, holds)
  await stack.keeper.stop()
}

type Verified = { status: number; body: { code?: string; paymentId?: string; receipt?: string } }

async function verify(
  api: Service,
  at: Shop,
  { macaroon, payloads }: SignedExactPayment,
  key?: string,
): Promise<Verified> {
  const response = await fetch(new URL('/verify', api.url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key && { 'idempotency-key': key }) },
    body: JSON.stringify({
      macaroon,
      payloads,
      providerId: at.providerId,
      endpointId: at.endpointIds[0],
    }),
  })
  return { status: response.status, body: (await response.json()) as Verified['body'] }
}

const outcomes = (answers: Verified[]) => answers.map(({ body }) => body.code ?? 'verified').sort()

const balanceOf = (address: Address) => readBalance(stack.rpc, tokenOf(stack.chain), address)

/**
 * The buyer transfers its whole balance to another account. A stranger submits the authorization, so the
 * buyer needs no gas money.
 */
async function empty(buyer: TestBuyer): Promise<void> {
  const at = { network: networkByName(stack.chain.network), token: tokenOf(stack.chain) }
  const authorization = await signAuthorization(at, privateKeyToAccount(buyer.privateKey), {
    from: buyer.address,
    to: devAccount(14).address,
    value: await balanceOf(buyer.address),
    validAfter: 0n,
    validBefore: 4_000_000_000n,
    nonce: randomHex(32),
  })
  const hash = await sendDirectly(stack, authorization)
  await stack.rpc.waitForTransactionReceipt({ hash })
}

/** The buyer cancels an authorization on chain. */
async function cancel({ privateKey }: TestBuyer, nonce: Hex): Promise<void> {
  const served = {
    network: networkByName(stack.chain.network),
    token: tokenOf(stack.chain),
    client: stack.rpc,
  }
  await cancelDirectly({ chain: stack.chain, served }, privateKeyToAccount(privateKey), nonce)
}

async function paymentsOf({ providerId, apiKey }: Shop, status: string): Promise<string> {
  const response = await fetch(new URL(`/providers/${providerId}/payments?status=${status}`, stack.api.url), {
    headers: { authorization: `Bearer ${apiKey}` },
  })
  return response.text()
}

async function statusOf(paymentId: string | undefined): Promise<unknown> {
  return (await stack.get(`/payments/${paymentId}`)).body.payment_status
}

test('behavior: if one payment is sent ten times to two api processes, the gateway counts the payment once', async () => {
  shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const buyer = await newBuyer(stack, '1')
  const payment = await signOnly(stack, shop, buyer)
  const processes = [stack.api, second]
  const copies = await Promise.all(
    Array.from({ length: 10 }, (_, i) =>
      verify(processes[i % 2] as Service, shop as Shop, payment, randomUUID()),
    ),
  )
  expect(outcomes(copies)).toEqual([...Array(9).fill('payment_replayed'), 'verified'])
  expect(new Set(copies.map(({ body }) => body.paymentId)).size).toBe(1)
  expect(copies.filter(({ status }) => status === 409).length).toBe(9)

  const again = await signOnly(stack, shop, buyer)
  const key = randomUUID()
  const repeated = await Promise.all(
    Array.from({ length: 10 }, (_, i) => verify(processes[i % 2] as Service, shop as Shop, again, key)),
  )
  expect(outcomes(repeated)).toEqual(Array(10).fill('verified'))
  expect(new Set(repeated.map(({ body }) => JSON.stringify(decodeJwt(body.receipt as string)))).size).toBe(1)
})

test('behavior: if ten payments are sent to two api processes and the buyer’s balance covers one payment, the gateway accepts only one', async () => {
  shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const buyer = await newBuyer(stack, '0.05')
  const payments = await Promise.all(Array.from({ length: 10 }, () => signOnly(stack, shop as Shop, buyer)))
  const answers = await Promise.all(
    payments.map((payment, i) => verify(i % 2 === 0 ? stack.api : second, shop as Shop, payment)),
  )
  expect(outcomes(answers)).toEqual([...Array(9).fill('insufficient_balance'), 'verified'])
})

test('behavior: the gateway releases a payment’s reserved balance exactly once, after a void or a settlement', async () => {
  let fails = true
  shop = await openShop(stack, {
    usdcPerUnit: '0.05',
    handler: (c) => {
      if (fails) throw new Error('the handler fails on purpose')
      return c.text('served')
    },
  })
  const buyer = await newBuyer(stack, '0.05')
  const voided = await present(shop, await signOnly(stack, shop, buyer))
  expect([voided.status, voided.headers.get('service-payment-status')]).toEqual([500, 'voided'])
  expect(voided.headers.get('service-receipt')).toBe(null)

  fails = false
  const served = await present(shop, await signOnly(stack, shop, buyer))
  expect(served.status).toBe(200)
  const paymentId = served.headers.get('service-payment-id') ?? undefined
  expect((await present(shop, await signOnly(stack, shop, buyer))).status).toBe(402)

  await settleUntil('it is settled', async () => (await statusOf(paymentId)) === 'settled')
  expect((await present(shop, await signOnly(stack, shop, buyer))).status).toBe(402)
  await stack.chain.mintUsdc([buyer.address], parseUsdc('0.05'))
  await until('the new balance is seen', async () => {
    const { status } = await present(shop as Shop, await signOnly(stack, shop as Shop, buyer))
    return status === 200
  })
  expect((await present(shop, await signOnly(stack, shop, buyer))).status).toBe(402)
})

test('behavior: the gateway records a debt if a buyer empties its wallet after being served', async () => {
  shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const buyer = await newBuyer(stack, '0.05')
  const { paymentId } = await buyer.client.request(shop.url)
  await empty(buyer)
  await settleUntil('the settlement was tried', async () => (await statusOf(paymentId)) === 'retrying')

  // The view waits until the index has caught up with the keeper's last batch.
  const own = shop
  await until('the provider is shown why', async () =>
    (await paymentsOf(own, 'retrying')).includes('insufficient_balance'),
  )

  // New funds of the buyer are reserved for the first payment.
  await stack.chain.mintUsdc([buyer.address], parseUsdc('0.05'))
  const refused = await present(shop, await signOnly(stack, shop, buyer))
  expect(refused.status).toBe(402)
  expect(await refused.json()).toMatchObject({ code: 'insufficient_balance' })
})

test('behavior: if a buyer cancels one of its payments after being served, only that payment fails', async () => {
  shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const [cheat, honest] = [await newBuyer(stack, '0.1025'), await newBuyer(stack, '1')]
  const payment = await signOnly(stack, shop, cheat)
  const served = await present(shop, payment)
  expect(served.status).toBe(200)
  const cheated = served.headers.get('service-payment-id') ?? ''
  const { paymentId: paid } = await honest.client.request(shop.url)
  const { paymentId: paidLater } = await cheat.client.request(shop.url)
  await cancel(cheat, boundNonce(stack.api.url, payment.requestId))
  await stack.keeper.start(eager)
  // A reorg can undo a cancellation, so the payment fails only once the cancellation is final.
  await mineUntil(stack, 'every payment has its result', async () => {
    const statuses = await Promise.all([cheated, paid, paidLater].map(statusOf))
    return statuses.join() === 'failed,settled,settled'
  })
  await stack.keeper.stop()

  const own = shop
  await until('the provider is shown why', async () =>
    (await paymentsOf(own, 'failed')).includes('authorization_cancelled'),
  )
  const failed = await paymentsOf(shop, 'failed')
  expect(failed).toContain(cheated)
  expect(failed).not.toContain(paid)
  expect(failed).not.toContain(paidLater)
  expect(await balanceOf(shop.address)).toBe(2n * 47_500n)
  // The cancelled payment was served, so the buyer owes it and is refused until it is paid or forgiven.
  const refused = await present(shop, await signOnly(stack, shop, cheat))
  expect([refused.status, await refused.json()]).toMatchObject([402, { code: 'payer_in_debt' }])
})

test('args: SETTLE_BEFORE_SERVE_USDC makes the gateway serve only after the payment has settled', async () => {
  await stack.keeper.start()
  shop = await openShop(stack, { usdcPerUnit: '12', timeout: 120_000 })
  const buyer = await newBuyer(stack, '12')
  const { paymentId } = await buyer.client.request(shop.url)
  expect(await balanceOf(shop.address)).toBe(parseUsdc('11.65'))
  expect(await statusOf(paymentId)).toBe('settled')
})

test('behavior: the gateway serves a request only after its payment’s settlement is mined, and only once', async () => {
  shop = await openShop(stack, { usdcPerUnit: '12' })
  const buyer = await newBuyer(stack, '12')
  const payment = await signOnly(stack, shop, buyer)
  await stack.keeper.stop()
  const waiting = await verify(second, shop, payment, randomUUID())
  expect([waiting.status, waiting.body.code]).toEqual([503, 'settlement_pending'])

  await stack.keeper.start()
  const copies = await Promise.all(
    Array.from({ length: 5 }, () => verify(stack.api, shop as Shop, payment, randomUUID())),
  )
  expect(outcomes(copies)).toEqual([...Array(4).fill('payment_replayed'), 'verified'])
  expect(await balanceOf(shop.address)).toBe(parseUsdc('11.65'))
})

test('behavior: the gateway neither serves nor charges a request whose payment fails to settle', async () => {
  shop = await openShop(stack, { usdcPerUnit: '12' })
  const buyer = await newBuyer(stack, '12')
  const payment = await signOnly(stack, shop, buyer)
  await stack.keeper.stop()
  const answer = verify(stack.api, shop, payment, randomUUID())
  await until('it is accepted', async () => {
    const status = await stack.get(`/settlements/status?wallet=${shop?.address}`)
    return status.body.payment_count === 1
  })
  await empty(buyer)
  await stack.keeper.start()
  let last = await answer
  // A keeper may take longer to start than a caller waits.
  while (last.body.code === 'settlement_pending') {
    last = await verify(stack.api, shop, payment, randomUUID())
  }
  const { status, body } = last
  expect([status, body.code]).toEqual([402, 'insufficient_balance'])
  expect(await statusOf(body.paymentId)).toBe('voided')
})
