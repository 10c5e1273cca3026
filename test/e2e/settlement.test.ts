import { audit } from '@tollkeeper/sdk/audit/audit'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt, type ReceiptClaims, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import type { JSONWebKeySet } from 'jose'
import type { Address, Hash } from 'viem'
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { readBatches } from '../../apps/devstack/demo/readBatches.ts'
import { newBuyer, openShop, type Shop, type TestBuyer } from '../support/shop.ts'
import { dropBlocksSince, startTestStack, type TestStack, takeSnapshot } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { readBalance, sendDirectly, tokenOf } from '../support/usdc.ts'

/** Thresholds that no payment in this file reaches. */
const patient = { TRIGGER_COUNT: '1000', TRIGGER_AMOUNT_USDC: '1000', TRIGGER_TIME_SECONDS: '3600' }
const eager = { TRIGGER_TIME_SECONDS: '1' }

let stack: TestStack
let isRunning = false
let shop: Shop | undefined
/** The state before the test. */
let earlier: { batches: number; platform: bigint }

// All tests share one stack. After a failed test, the next one gets a new stack.
beforeEach(async () => {
  if (!isRunning) stack = await startTestStack({ env: { keeper: patient } })
  isRunning = true
  earlier = { batches: (await readAllBatches()).length, platform: await balanceOf(stack.platformWallet) }
})
afterEach(async ({ task }) => {
  await shop?.close()
  shop = undefined
  if (task.result?.state === 'fail') await stop()
  else if (isRunning) await stack.keeper.restart()
})
afterAll(stop)

async function stop(): Promise<void> {
  if (isRunning) await stack.close()
  isRunning = false
}

test.each([
  ['the provider’s', 0],
  ['the fee’s', 1],
] as const)(
  'behavior: if a stranger sends %s authorization straight to USDC, the keeper settles the rest of the payment',
  async (_, half) => {
    shop = await openShop(stack, { usdcPerUnit: '0.05' })
    const buyer = await newBuyer(stack, '1')
    const { payment, paymentId } = await buyer.client.request(shop.url)
    const direct = await submitStraight(payment?.payloads[half] as string)

    await stack.keeper.restart(eager)
    const claims = await settledClaims(paymentId as string)
    const record = (await stack.get(`/payments/${paymentId}`)).body as Record<
      'provider' | 'platform',
      HalfAnswer
    >
    const halves = [record.provider, record.platform]
    expect(halves[half]).toMatchObject({ state: 'settled', transactionHash: direct })
    expect(halves[1 - half]?.state).toBe('settled')
    expect(halves[1 - half]?.transactionHash).not.toBe(direct)
    // The evidence is on chain, where anyone can find it: the receipt names the provider's transaction.
    expect(claims.transactionHash).toBe(record.provider.transactionHash)
    for (const { transactionHash, logIndex } of halves) {
      const { logs } = await stack.rpc.getTransactionReceipt({ hash: transactionHash })
      expect(logs.find((log) => log.logIndex === logIndex)?.address).toBe(tokenOf(stack.chain))
    }
    expect(await balances(shop, buyer)).toEqual({ shop: 47_500n, platform: 2_500n, buyer: 950_000n })
  },
)

test('behavior: if both authorizations are sent straight to USDC, the keeper sends nothing, and the payment is reported as settled', async () => {
  shop = await openShop(stack, { usdcPerUnit: '0.05' })
  const buyer = await newBuyer(stack, '1')
  const { payment, paymentId } = await buyer.client.request(shop.url)
  for (const payload of payment?.payloads ?? []) await submitStraight(payload)
  await stack.keeper.restart(eager)
  await settledClaims(paymentId as string)
  expect(await batches()).toEqual([])
  expect(await balances(shop, buyer)).toEqual({ shop: 47_500n, platform: 2_500n, buyer: 950_000n })
})

test.each([
  ['right after it signed', false],
  ['after its broadcast and before it is mined', true],
] as const)(
  'behavior: loses nothing and pays no one twice if a keeper is killed %s',
  async (_, isBroadcast) => {
    const whenThirty = { TRIGGER_COUNT: '30' }
    await stack.keeper.restart(whenThirty)
    const open = await openShop(stack)
    shop = open
    const buyer = await newBuyer(stack, '1')
    await stack.chain.setMining(3_600_000)
    const signed = stack.keeper.nextLine(/batch signed/)
    const paid = await Promise.all(Array.from({ length: 30 }, () => buyer.client.request(open.url)))
    const { wallet: address } = JSON.parse(await signed)
    if (isBroadcast) {
      await until('the transaction waits to be mined', async () => {
        const [next, mined] = await Promise.all(
          (['pending', 'latest'] as const).map((blockTag) =>
            stack.rpc.getTransactionCount({ address, blockTag }),
          ),
        )
        return next !== mined
      })
    }
    await stack.keeper.kill()

    await stack.keeper.start(whenThirty)
    await stack.chain.setMining(200)
    const ids = paid.map(({ paymentId }) => paymentId as string)
    await Promise.all(ids.map(settledClaims))
    await expectReconciled(ids)
    expect((await batches()).map(({ payments }) => payments)).toEqual([30])
    expect(await balances(shop, buyer)).toEqual({ shop: 285_000n, platform: 15_000n, buyer: 700_000n })
  },
)

test('behavior: if a reorg drops payments, every view reports them as unsettled, and the keeper settles them again', async () => {
  shop = await openShop(stack)
  const buyer = await newBuyer(stack, '1')
  const ids: string[] = []
  for (let i = 0; i < 5; i++) ids.push((await buyer.client.request(shop.url)).paymentId as string)
  const snapshot = await takeSnapshot(stack)

  await stack.keeper.restart(eager)
  await until('they are settled', async () => {
    const found = await Promise.all(ids.map((id) => stack.get(`/payments/${id}`)))
    return found.every(({ body }) => body.payment_status === 'settled')
  })
  for (let i = 0; i < 2; i++) await stack.rpc.request({ method: 'evm_mine' } as never)
  const claims = await Promise.all(ids.map(settledClaims))
  const [batch] = await batches()
  expect(await viewedBatches(shop.address)).toMatchObject([
    { tx_hash: batch?.txHash, payment_count: 5, total_usdc: '0.047500' },
  ])
  await stack.keeper.stop()

  await dropBlocksSince(stack, snapshot)
  expect(await batches()).toEqual([])

  const address = shop.address
  await until('the views show the reorg', async () => {
    const { body } = await stack.get(`/payments/${ids[0]}`)
    return body.payment_status !== 'settled' && (await viewedBatches(address)).length === 0
  })
  for (const id of ids) {
    const { body } = await stack.get(`/payments/${id}`)
    expect(body.payment_status).toBe('settling')
    expect(body).toMatchObject({ provider: { state: 'open', transactionHash: null } })
    expect((await receiptOf(id))?.transactionHash).toBe(zeroHash)
  }
  expect((await stack.get(`/settlements/status?wallet=${address}`)).body).toMatchObject({
    accumulated_usdc: '0.047500',
    payment_count: 5,
  })
  expect(await balances(shop, buyer)).toEqual({ shop: 0n, platform: 0n, buyer: 1_000_000n })

  await stack.keeper.start(eager)
  const again = await Promise.all(ids.map(settledClaims))
  await expectReconciled(ids)
  expect(again.map(({ blockHash }) => blockHash)).not.toContain(claims[0]?.blockHash)
  expect(await balances(shop, buyer)).toEqual({ shop: 47_500n, platform: 2_500n, buyer: 950_000n })
  expect((await viewedBatches(address)).map(({ payment_count }) => payment_count)).toEqual([5])
})

type HalfAnswer = { state: string; transactionHash: Hash; logIndex: number }

/** Waits for a payment's settlement, and verifies the receipt that states it. */
async function settledClaims(paymentId: string): Promise<ReceiptClaims> {
  let status: unknown
  await until(`${paymentId} is settled and confirmed`, async () => {
    status = (await stack.get(`/payments/${paymentId}`)).body.payment_status
    return status === 'settled' && (await receiptOf(paymentId))?.transactionHash !== zeroHash
  })
  const { body: jwks } = await stack.get('/.well-known/jwks.json')
  const { body } = await stack.get(`/receipts/${paymentId}`)
  return verifyReceipt(body.receipt as string, jwks as unknown as JSONWebKeySet)
}

async function receiptOf(paymentId: string) {
  return decodeReceipt((await stack.get(`/receipts/${paymentId}`)).body.receipt as string)
}

/** Expects that the current receipts reconcile with the chain. */
async function expectReconciled(paymentIds: string[]): Promise<void> {
  const { body: jwks } = await stack.get('/.well-known/jwks.json')
  const receipts = await Promise.all(
    paymentIds.map(async (id) => (await stack.get(`/receipts/${id}`)).body.receipt as string),
  )
  const { deployments, url } = stack.chain
  const report = await audit({
    receipts,
    jwks: jwks as unknown as JSONWebKeySet,
    rpcUrls: [url],
    deployments,
  })
  expect(
    report.receipts.map(({ payment, state, isSuperseded }) => [payment?.paymentId, state, isSuperseded]),
  ).toEqual(paymentIds.map((id) => [id, 'settled', undefined]))
}

async function viewedBatches(wallet: Address) {
  const { status, body } = await stack.get(`/settlements/batches?wallet=${wallet}`)
  if (status !== 200) return [{ tx_hash: 'unavailable', payment_count: -1, total_usdc: '' }]
  return body.batches as { tx_hash: string; payment_count: number; total_usdc: string }[]
}

function readAllBatches() {
  const deployment = stack.chain.deployments[stack.chain.network]
  return readBatches(stack.rpc, deployment?.batchSettlement as Address)
}

/** Returns the batches of the current test. */
async function batches() {
  return (await readAllBatches()).slice(earlier.batches)
}

async function submitStraight(payload: string): Promise<Hash> {
  const hash = await sendDirectly(stack, parsePayload(payload))
  expect((await stack.rpc.waitForTransactionReceipt({ hash })).status).toBe('success')
  return hash
}

function balanceOf(owner: Address): Promise<bigint> {
  return readBalance(stack.rpc, tokenOf(stack.chain), owner)
}

/** Returns balances. The platform's balance excludes what it had before the test. */
async function balances({ address }: Shop, buyer: TestBuyer) {
  const [shopHas, platformHas, buyerHas] = await Promise.all([
    balanceOf(address),
    balanceOf(stack.platformWallet),
    balanceOf(buyer.address),
  ])
  return { shop: shopHas, platform: platformHas - earlier.platform, buyer: buyerHas }
}
