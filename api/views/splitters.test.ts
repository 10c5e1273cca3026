import type { Address } from 'viem'
import { beforeEach, expect, test } from 'vitest'
import { call, openShop } from '../../test/support/gateway.ts'
import {
  seedChainId,
  seedPayment,
  seedPayout,
  seedPlatform,
  seedSettlement,
  seedToken,
} from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (query = '', of = shop) =>
  call<Body>(gateway.app, 'GET', `/providers/${of.providerId}/splitters${query}`, { key: of.key })

async function addSplitter(address = randomHex(20), provider = shop.wallet): Promise<Address> {
  await gateway.database`insert into splitter ${gateway.database({
    chain_id: seedChainId,
    token: seedToken,
    address,
    provider,
    platform: seedPlatform,
    provider_share: 19n,
    platform_share: 1n,
  })}`
  return address
}

/** Seeds a payment that has settled into a splitter. */
async function payInto(splitter: Address, blockNumber: number, of = shop): Promise<void> {
  const payment = await seedPayment(gateway.database, {
    provider: { ...of, endpointIds: [of.endpointId] },
    splitter,
  })
  await seedSettlement(gateway.database, payment, {
    halves: [0],
    blockNumber,
    blockTime: 1_795_262_400 + blockNumber,
  })
  // The recorder writes this when it reads the splitter's own event from the chain.
  await gateway.database`update authorization_event set splitter = ${splitter} where payment_id = ${payment.paymentId}`
}

test('behavior: shows what has come into each splitter since its last payout, and when it will be paid out', async () => {
  const [used, empty] = [await addSplitter(), await addSplitter()]
  await payInto(used, 200)
  const transactionHash = await seedPayout(gateway.database, {
    splitter: used,
    provider: shop.wallet,
    blockNumber: 201,
  })
  await payInto(used, 210)
  await payInto(used, 211)
  const { status, body } = await get()
  expect(status).toBe(200)
  const shown = { network: 'localhost', wallet: shop.wallet, failedSweeps: 0, isAtLeast: false }
  expect(body).toEqual({
    splitters: [
      {
        ...shown,
        splitter: used,
        payments: 2,
        waiting_usdc: '0.095000',
        since: new Date(1_795_262_610_000).toISOString(),
        paidOutAfter: new Date(1_795_262_610_000 + 86_400_000).toISOString(),
        lastPayout: { at: expect.any(String), transactionHash },
      },
      {
        ...shown,
        splitter: empty,
        payments: 0,
        waiting_usdc: '0.000000',
        since: null,
        paidOutAfter: null,
        lastPayout: null,
      },
    ].toSorted((a, b) => (a.splitter < b.splitter ? -1 : 1)),
    sweep: { payments: 10, seconds: 86_400 },
    cursor: null,
    indexedBlocks: { localhost: expect.any(Number) },
  })
})

test('behavior: a splitter is due immediately once it holds the number of payments at which a batch pays it out', async () => {
  const splitter = await addSplitter()
  for (let n = 0; n < 10; n++) await payInto(splitter, 300)
  expect((await get()).body.splitters).toMatchObject([
    { payments: 10, since: expect.any(String), paidOutAfter: null },
  ])
})

test("behavior: counts only the provider's own payments if another provider has the same wallet", async () => {
  const other = await openShop(gateway.app)
  await call(gateway.app, 'POST', `/providers/${other.providerId}/wallets`, {
    key: other.key,
    json: { network: 'localhost', address: shop.wallet },
  })
  const splitter = await addSplitter()
  await payInto(splitter, 400)
  await payInto(splitter, 401, { ...other, wallet: shop.wallet })
  await payInto(splitter, 402, { ...other, wallet: shop.wallet })
  expect((await get()).body.splitters).toMatchObject([{ payments: 1, waiting_usdc: '0.047500' }])
  expect((await get('', other)).body.splitters).toMatchObject([{ payments: 2 }])
})

test('behavior: pages contain each splitter once', async () => {
  const all = await Promise.all([addSplitter(), addSplitter(), addSplitter()])
  const found: string[] = []
  let cursor = ''
  do {
    const { body } = await get(`?limit=1${cursor && `&cursor=${cursor}`}`)
    found.push(...body.splitters.map(({ splitter }: Body) => splitter))
    cursor = body.cursor
  } while (cursor !== null)
  expect(found).toEqual(all.toSorted())
})

test("error: refuses another provider's key", async () => {
  const other = await openShop(gateway.app)
  const { body } = await call<Body>(gateway.app, 'GET', `/providers/${shop.providerId}/splitters`, {
    key: other.key,
  })
  expect(body.code).toBe('forbidden')
})
