import { audit } from '@tollkeeper/sdk/audit/audit'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { refundNonce } from '@tollkeeper/sdk/protocol/refund'
import type { JSONWebKeySet } from 'jose'
import type { Address, Hash } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { describe, expect, onTestFinished, test } from 'vitest'
import { readBatches } from '../../apps/devstack/demo/readBatches.ts'
import { chooseBrowser } from '../e2e/dashboard/chooseBrowser.ts'
import { launchBrowser, openTab, seriousViolations } from '../support/browser.ts'
import { newBuyer, openShop, present, type Shop, type TestBuyer } from '../support/shop.ts'
import { dropBlocksSince, takeSnapshot, useTestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { readBalance, signAuthorization, tokenOf, validFor } from '../support/usdc.ts'
import { signPayment } from '../support/x402.ts'

// The whole system once, as processes on a real chain, Postgres and Ponder, from the first 402 to the refund. The variants and the
// failures are in test/e2e, test/crash and test/chaos: `npm run test:system`.

/** A batch is due once five payments of a provider wait, and for no other reason. */
const whenFive = { TRIGGER_COUNT: '5', TRIGGER_AMOUNT_USDC: '1000', TRIGGER_TIME_SECONDS: '3600' }
const afterOneSecond = { TRIGGER_TIME_SECONDS: '1' }

const stack = useTestStack({ env: { keeper: whenFive } })

test('default: an unpaid request gets 402; a paid request is served once, with a receipt that verifies', async () => {
  const shop = await open('0.05')
  const unpaid = await fetch(shop.url)
  expect(unpaid.status).toBe(402)
  expect(await unpaid.json()).toMatchObject({
    providerId: shop.providerId,
    accepts: [
      { payTo: shop.address.toLowerCase(), maxAmountRequired: '47500' },
      { payTo: stack.platformWallet.toLowerCase(), maxAmountRequired: '2500' },
    ],
  })

  const buyer = await newBuyer(stack, '1')
  const { data, receipt, paymentId, payment } = await buyer.client.request(shop.url)
  expect(data).toEqual({ verified: true, receipt, paymentId })
  expect(await verifyReceipt(receipt ?? '', await readKeys())).toMatchObject({
    paymentId,
    providerId: shop.providerId,
    payer: buyer.address.toLowerCase(),
    totalUsdc: '50000',
    transactionHash: zeroHash,
    iss: stack.api.url,
  })
  expect((await stack.get(`/payments/${paymentId}`)).body.payment_status).toBe('verified')

  const elsewhere = { ...shop, url: `${shop.url}?other` }
  const replayed = await present(elsewhere, payment as Parameters<typeof present>[1])
  expect([replayed.status, await replayed.json()]).toMatchObject([409, { code: 'payment_replayed' }])
  expect(shop.served()).toBe(1)
})

test('behavior: five payments settle in one batch and reconcile with the chain; a reorg reopens them, and the keeper settles them again', async () => {
  const shop = await open('0.01')
  const buyer = await newBuyer(stack, '1')
  const earlier = (await readAllBatches()).length
  await stack.keeper.stop()
  const ids: string[] = []
  for (let i = 0; i < 5; i++) ids.push((await buyer.client.request(shop.url)).paymentId ?? '')
  const snapshot = await takeSnapshot(stack)

  await stack.keeper.start(whenFive)
  await untilStatus(ids, 'settled')
  for (let i = 0; i < 2; i++) await stack.rpc.request({ method: 'evm_mine' } as never)
  await untilReceiptsName(ids, (hash) => hash !== zeroHash)
  // The batch also includes waiting payments of other providers.
  const [batch, ...others] = (await readAllBatches()).slice(earlier)
  expect(others).toEqual([])
  expect(batch?.payments).toBeGreaterThanOrEqual(5)
  expect((await stack.get(`/settlements/batches?wallet=${shop.address}`)).body.batches).toMatchObject([
    { tx_hash: batch?.txHash, payment_count: 5, total_usdc: '0.047500' },
  ])
  await stack.keeper.stop()

  await dropBlocksSince(stack, snapshot)
  await until('the views show that nothing is settled', async () => {
    const { status, body } = await stack.get(`/settlements/batches?wallet=${shop.address}`)
    const isGone = status === 200 && (body.batches as unknown[]).length === 0
    return isGone && (await statusOf(ids[0])) === 'settling'
  })
  await untilReceiptsName(ids, (hash) => hash === zeroHash)
  expect(await balanceOf(buyer.address)).toBe(1_000_000n)

  await stack.keeper.start(whenFive)
  await untilStatus(ids, 'settled')
  await untilReceiptsName(ids, (hash) => hash !== zeroHash)
  await expectReconciled(ids)
  expect(await balanceOf(shop.address)).toBe(47_500n)
  expect(await balanceOf(buyer.address)).toBe(950_000n)
})

test('behavior: a keeper that is killed after its broadcast and before the transaction is mined loses nothing and pays no one twice', async () => {
  const shop = await open('0.01')
  const buyer = await newBuyer(stack, '1')
  const earlier = (await readAllBatches()).length
  await stack.chain.setMining(3_600_000)
  const signed = stack.keeper.nextLine(/batch signed/)
  const paid = await Promise.all(Array.from({ length: 5 }, () => buyer.client.request(shop.url)))
  const { wallet: address } = JSON.parse(await signed)
  await until('the transaction waits for a block', async () => {
    const [next, mined] = await Promise.all(
      (['pending', 'latest'] as const).map((blockTag) =>
        stack.rpc.getTransactionCount({ address, blockTag }),
      ),
    )
    return next !== mined
  })
  await stack.keeper.kill()

  await stack.keeper.start(whenFive)
  await stack.chain.setMining(1_000, { atOnce: true })
  const ids = paid.map(({ paymentId }) => paymentId ?? '')
  await untilStatus(ids, 'settled')
  await untilReceiptsName(ids, (hash) => hash !== zeroHash)
  await expectReconciled(ids)
  expect((await readAllBatches()).slice(earlier)).toHaveLength(1)
  expect([await balanceOf(shop.address), await balanceOf(buyer.address)]).toEqual([47_500n, 950_000n])
})

describe('the facilitator', () => {
  test('default: POST /submit settles a payment immediately, and gives a repeated request the same answer', async () => {
    const shop = await open('0.05')
    const buyer = await newBuyer(stack, '1')
    const client = createClient({
      gatewayUrl: stack.api.url,
      facilitatorUrl: stack.keeper.url,
      network: stack.chain.network,
      usdcAddress: tokenOf(stack.chain),
      walletPrivateKey: buyer.privateKey,
      tabs: false,
    })
    const { payment, paymentId } = await client.request(shop.url)
    if (payment === undefined) throw new Error('nothing was signed')
    const { paymentTxHash } = await client.settleNow(payment)
    expect((await stack.rpc.getTransactionReceipt({ hash: paymentTxHash })).status).toBe('success')
    expect((await client.settleNow(payment)).paymentTxHash).toBe(paymentTxHash)
    await untilStatus([paymentId ?? ''], 'settled')
    expect([await balanceOf(shop.address), await balanceOf(buyer.address)]).toEqual([47_500n, 950_000n])
  })

  test('default: x402’s /verify and /settle pay a seller in full, once', async () => {
    const shop = await open('0.05')
    const payTo = privateKeyToAccount(`0x${'5e'.repeat(32)}`).address
    const buyer = await newBuyer(stack, '1')
    const served = { network: networkByName(stack.chain.network), token: tokenOf(stack.chain) }
    const { body } = await signPayment(served, privateKeyToAccount(buyer.privateKey), { payTo })
    const ask = async (path: string) => {
      const response = await fetch(new URL(path, stack.keeper.url), {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${shop.apiKey}` },
        body: JSON.stringify(body),
      })
      return (await response.json()) as { transaction?: Hash }
    }
    expect(await ask('/verify')).toMatchObject({ isValid: true, payer: buyer.address.toLowerCase() })
    const settled = await ask('/settle')
    expect(settled).toMatchObject({ success: true, transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/) })
    expect((await ask('/settle')).transaction).toBe(settled.transaction)
    expect([await balanceOf(payTo), await balanceOf(buyer.address)]).toEqual([10_000n, 990_000n])
  })
})

test('behavior: requests on a tab settle in one transaction for exactly what was bought, with the handler’s discounts', async () => {
  await stack.keeper.restart(afterOneSecond)
  const micro = await open('0.001')
  const metered = await openShop(stack, {
    usdcPerUnit: '0.05',
    handler: async (c) => c.json({ isCharged: await c.get('payment').charge('0.0102') }),
  })
  onTestFinished(() => metered.close())
  const receipts: string[] = []
  const { client } = await newBuyer(stack, '1', {
    tabs: true,
    onReceipt: ({ receipt }) => void receipts.push(receipt),
  })
  const { paymentId = '' } = await client.request(micro.url)
  await Promise.all(Array.from({ length: 6 }, () => client.request(micro.url)))
  expect((await client.request(metered.url)).data).toEqual({ isCharged: true })
  expect(await client.tabs()).toMatchObject([{ lines: [{ bought: 7_000n }, { bought: 10_200n }] }])
  await client.close()
  await untilStatus([paymentId], 'settled')
  const report = await audit({ receipts, ...(await auditOptions()), confirmations: 0 })
  expect(report).toMatchObject({ reconciled: true, states: { settled: 8, mismatch: 0 } })
  expect(report.tabs).toMatchObject([{ movedAmount: 17_200n, requests: 8 }])
})

describe('a settled payment', () => {
  let shop: Shop
  let buyer: TestBuyer
  let paymentId: string

  test('behavior: the provider can refund a part; the keeper settles the refund, and the payment lists it', async () => {
    await stack.keeper.restart(afterOneSecond)
    shop = await openShop(stack, { usdcPerUnit: '0.05' })
    buyer = await newBuyer(stack, '1')
    paymentId = (await buyer.client.request(shop.url)).paymentId ?? ''
    await untilStatus([paymentId], 'settled')
    await untilReceiptsName([paymentId], (hash) => hash !== zeroHash)

    const wallet = await newBuyer(stack, '1')
    await call('wallets', { network: stack.chain.network, address: wallet.address })
    const signed = await signAuthorization(
      { network: networkByName(stack.chain.network), token: tokenOf(stack.chain) },
      privateKeyToAccount(wallet.privateKey),
      {
        from: wallet.address.toLowerCase() as Address,
        to: buyer.address.toLowerCase() as Address,
        value: 20_000n,
        ...validFor(86_400),
        nonce: refundNonce(stack.api.url, paymentId, 1),
      },
    )
    await call(`payments/${paymentId}/refunds`, { payload: encodePayload(signed) })
    await until('the refund is settled', async () => {
      const { refunds } = (await stack.get(`/payments/${paymentId}`)).body
      return (refunds as { refund_status: string }[])[0]?.refund_status === 'settled'
    })
    expect(await balanceOf(buyer.address)).toBe(970_000n)
    expect(await balanceOf(wallet.address)).toBe(980_000n)
  })

  const executable = chooseBrowser()
  test.skipIf(executable === undefined)(
    'behavior: the dashboard shows the payment, verifies its receipt in the browser and asks no other origin',
    async () => {
      const browser = await launchBrowser(executable ?? '')
      onTestFinished(() => browser.close())
      const { page, errors, foreign } = await openTab(browser, stack.api.url)
      await page.addInitScript((key) => sessionStorage.setItem('tollkeeper.apiKey', key), shop.apiKey)
      await page.goto(`${stack.api.url}/dashboard/#/payments`)
      const rows = page.getByRole('region', { name: 'Payments' }).getByRole('row')
      await rows.nth(1).getByText('settled').waitFor()
      expect(await rows.count()).toBe(2)
      await page.goto(`${stack.api.url}/dashboard/#/payments/${paymentId}`)
      await page.getByText('verified in this browser').waitFor()
      await page.getByRole('region', { name: 'Refunds' }).getByText('0.02 USDC').waitFor()
      expect(await seriousViolations(page)).toEqual([])
      expect([errors, foreign]).toEqual([[], []])
    },
  )

  /** Calls a route of the provider with the provider's key. */
  async function call(path: string, body: object): Promise<void> {
    const response = await fetch(new URL(`/providers/${shop.providerId}/${path}`, stack.api.url), {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${shop.apiKey}` },
      body: JSON.stringify(body),
    })
    expect([response.status, await response.text()]).toEqual([201, expect.any(String)])
  }
})

async function open(usdcPerUnit: string): Promise<Shop> {
  const shop = await openShop(stack, { usdcPerUnit })
  onTestFinished(() => shop.close())
  return shop
}

async function readKeys(): Promise<JSONWebKeySet> {
  return (await stack.get('/.well-known/jwks.json')).body as unknown as JSONWebKeySet
}

async function auditOptions() {
  const { deployments, url } = stack.chain
  return { jwks: await readKeys(), rpcUrls: [url], deployments }
}

async function statusOf(paymentId = ''): Promise<unknown> {
  return (await stack.get(`/payments/${paymentId}`)).body.payment_status
}

async function untilStatus(ids: readonly string[], wanted: string): Promise<void> {
  await until(`${ids.length} payments are ${wanted}`, async () => {
    const found = await Promise.all(ids.map((id) => statusOf(id)))
    return found.every((status) => status === wanted)
  })
}

/** Waits until the newest receipts of these payments all name a wanted transaction. */
async function untilReceiptsName(ids: readonly string[], isWanted: (hash: Hash) => boolean): Promise<void> {
  await until('the receipts name it', async () => {
    const claims = (await readReceipts(ids)).map((receipt) => decodeReceipt(receipt))
    return claims.every((claim) => claim !== undefined && isWanted(claim.transactionHash))
  })
}

function readReceipts(ids: readonly string[]): Promise<string[]> {
  return Promise.all(ids.map(async (id) => (await stack.get(`/receipts/${id}`)).body.receipt as string))
}

/** Audits the receipts against the chain. */
async function expectReconciled(ids: readonly string[]): Promise<void> {
  const report = await audit({ receipts: await readReceipts(ids), ...(await auditOptions()) })
  expect(report.receipts.map(({ payment, state }) => [payment?.paymentId, state])).toEqual(
    ids.map((id) => [id, 'settled']),
  )
}

function readAllBatches() {
  const deployment = stack.chain.deployments[stack.chain.network]
  return readBatches(stack.rpc, deployment?.batchSettlement as Address)
}

function balanceOf(owner: Address): Promise<bigint> {
  return readBalance(stack.rpc, tokenOf(stack.chain), owner)
}
