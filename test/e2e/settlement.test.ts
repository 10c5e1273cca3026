import type { JSONWebKeySet } from 'jose'
import { type Address, createWalletClient, type Hash, http, parseAbi } from 'viem'
import { afterEach, expect, test } from 'vitest'
import { parsePayload } from '#protocol/payload'
import { decodeReceipt, type ReceiptClaims, zeroHash } from '#protocol/receipt'
import { verifyReceipt } from '#sdk/audit/verifyReceipt'
import { devAccount } from '../../scripts/chain/accounts.ts'
import { readBatches } from '../../scripts/demo/readBatches.ts'
import { createReconciler } from '../../scripts/demo/reconcile.ts'
import { newBuyer, openShop, type Shop, type TestBuyer, usdcOf } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'

const usdcAbi = parseAbi([
  'function balanceOf(address) view returns (uint256)',
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)',
])
/** Somebody who has nothing to do with the gateway. */
const stranger = devAccount(15)
/** No trigger but those that a test asks for. */
const patient = { TRIGGER_COUNT: '1000', TRIGGER_AMOUNT_USDC: '1000', TRIGGER_TIME_SECONDS: '3600' }
const eager = { TRIGGER_TIME_SECONDS: '1' }

let stack: TestStack
let shop: Shop | undefined
afterEach(async () => {
  await shop?.close()
  shop = undefined
  await stack?.close()
})

test.each([
  ["the provider's", 0],
  ["the fee's", 1],
] as const)('behavior: %s half, sent straight to USDC by a stranger, ends as settled', async (_, half) => {
  stack = await startTestStack({ env: { keeper: patient } })
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
  // The evidence is on chain, where anybody finds it: the receipt names the provider's transaction.
  expect(claims.transactionHash).toBe(record.provider.transactionHash)
  for (const { transactionHash, logIndex } of halves) {
    const { logs } = await stack.rpc.getTransactionReceipt({ hash: transactionHash })
    expect(logs.find((log) => log.logIndex === logIndex)?.address).toBe(usdcOf(stack))
  }
  expect(await balances(shop, buyer)).toEqual({ shop: 47_500n, platform: 2_500n, buyer: 950_000n })
})

test('behavior: both halves sent straight to USDC: settled, and the keeper sends nothing', async () => {
  stack = await startTestStack({ env: { keeper: patient } })
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
  ['as soon as it has signed', false],
  ['after its broadcast, before it is mined', true],
] as const)('behavior: a keeper killed %s loses nothing and pays nobody twice', async (_, isBroadcast) => {
  stack = await startTestStack({ env: { keeper: { ...patient, TRIGGER_COUNT: '30' } } })
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

  await stack.keeper.start()
  await stack.chain.setMining(200)
  const claims = await Promise.all(paid.map(({ paymentId }) => settledClaims(paymentId as string)))
  await expectReconciled(claims)
  expect((await batches()).map(({ payments }) => payments)).toEqual([30])
  expect(await balances(shop, buyer)).toEqual({ shop: 285_000n, platform: 15_000n, buyer: 700_000n })
})

test('behavior: a reorg un-settles the payments in every view, and the keeper settles them again', async () => {
  stack = await startTestStack({ env: { keeper: patient } })
  shop = await openShop(stack)
  const buyer = await newBuyer(stack, '1')
  const ids: string[] = []
  for (let i = 0; i < 5; i++) ids.push((await buyer.client.request(shop.url)).paymentId as string)
  const before = await stack.rpc.request({ method: 'evm_snapshot' } as never)
  const height = await stack.rpc.getBlockNumber()

  await stack.keeper.restart(eager)
  const claims = await Promise.all(ids.map(settledClaims))
  const [batch] = await batches()
  expect(await viewedBatches(shop.address)).toMatchObject([
    { tx_hash: batch?.txHash, payment_count: 5, total_usdc: '0.047500' },
  ])
  await stack.keeper.stop()

  // The chain without that batch grows past the one with it.
  const settledHeight = await stack.rpc.getBlockNumber()
  await stack.rpc.request({ method: 'evm_revert', params: [before] } as never)
  expect(await batches()).toEqual([])
  for (let block = height; block <= settledHeight; block++)
    await stack.rpc.request({ method: 'evm_mine' } as never)

  const address = shop.address
  await until('the views follow', async () => (await viewedBatches(address)).length === 0)
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
  await expectReconciled(again)
  expect(again.map(({ blockHash }) => blockHash)).not.toContain(claims[0]?.blockHash)
  expect(await balances(shop, buyer)).toEqual({ shop: 47_500n, platform: 2_500n, buyer: 950_000n })
  expect((await viewedBatches(address)).map(({ payment_count }) => payment_count)).toEqual([5])
})

type HalfAnswer = { state: string; transactionHash: Hash; logIndex: number }

/** Waits for a payment's settlement, and verifies the receipt that tells of it. */
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

async function expectReconciled(claims: ReceiptClaims[]): Promise<void> {
  const reconcile = createReconciler(stack.rpc, usdcOf(stack))
  for (const each of claims) expect(await reconcile(each)).toEqual([])

  // That the reconciler would have found something: a payment counted twice, and one changed in each respect.
  const [first] = claims as [ReceiptClaims]
  expect(await reconcile(first)).toHaveLength(2)
  const [provider, fee] = first.authorizations
  for (const change of [
    { payer: shop?.address as Address },
    { transactionHash: zeroHash },
    { blockHash: zeroHash },
    { authorizations: [{ ...provider, value: '1' }, fee] },
    { authorizations: [provider, { ...fee, to: provider.to }] },
    { authorizations: [provider, { ...fee, nonce: provider.nonce }] },
  ] as Partial<ReceiptClaims>[]) {
    const fresh = createReconciler(stack.rpc, usdcOf(stack))
    expect(await fresh({ ...first, ...change }), JSON.stringify(change)).not.toEqual([])
  }
}

async function viewedBatches(wallet: Address) {
  const { status, body } = await stack.get(`/settlements/batches?wallet=${wallet}`)
  if (status !== 200) return [{ tx_hash: 'unavailable', payment_count: -1, total_usdc: '' }]
  return body.batches as { tx_hash: string; payment_count: number; total_usdc: string }[]
}

function batches() {
  const deployment = stack.chain.deployments[stack.chain.network]
  return readBatches(stack.rpc, deployment?.batchSettlement as Address)
}

async function submitStraight(payload: string): Promise<Hash> {
  const { from, to, value, validAfter, validBefore, nonce, signature } = parsePayload(payload)
  const wallet = createWalletClient({ account: stranger, transport: http(stack.chain.url) })
  const hash = await wallet.writeContract({
    chain: null,
    address: usdcOf(stack),
    abi: usdcAbi,
    functionName: 'transferWithAuthorization',
    args: [from, to, value, validAfter, validBefore, nonce, signature],
  })
  expect((await stack.rpc.waitForTransactionReceipt({ hash })).status).toBe('success')
  return hash
}

async function balances({ address }: Shop, buyer: TestBuyer) {
  const balanceOf = (owner: Address) =>
    stack.rpc.readContract({ address: usdcOf(stack), abi: usdcAbi, functionName: 'balanceOf', args: [owner] })
  const [shopHas, platform, buyerHas] = await Promise.all(
    [address, stack.platformWallet, buyer.address].map(balanceOf),
  )
  return { shop: shopHas, platform, buyer: buyerHas }
}
