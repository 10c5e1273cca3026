import type { Hex } from 'viem'
import { beforeEach, expect, test } from 'vitest'
import { call, openShop, pay } from '../../test/support/gateway.ts'
import { received, seedBatch } from '../../test/support/seedBatch.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (path: string, key: string | undefined = shop.key) =>
  call<Body>(gateway.app, 'GET', path, key === undefined ? {} : { key })
const view = (path: string) => get(`/providers/${shop.providerId}/${path}`)

const hashOf = (number: number): Hex => `0x${number.toString(16).padStart(64, '0')}`

/** Seeds a batch that paid some of the wallets. */
async function paid(sequence: number, ...recipients: ReturnType<typeof received>[]): Promise<void> {
  const gas = { paymentCount: 9, gasUsed: 900_000n, gasCost: 900_000n * 1_000_000_000n }
  await seedBatch(gateway.database, sequence, { txHash: hashOf(sequence), recipients, ...gas })
}

test('default: a key identifies its provider', async () => {
  expect(await get('/account')).toMatchObject({ status: 200, body: { providerId: shop.providerId } })
  const nobody = await call<Body>(gateway.app, 'GET', '/account')
  expect([nobody.status, nobody.body.code]).toEqual([401, 'unauthorized'])
})

test('default: shows a queue by wallet: waiting, settling and retried payments', async () => {
  const empty = (await view('queue')).body.wallets
  expect(empty).toMatchObject([
    { wallet: shop.wallet, payments: 0, accumulated_usdc: '0.000000', fired: null, settlesAt: null },
  ])
  await pay(gateway, shop)
  await pay(gateway, shop)
  const later = (await pay(gateway, shop)).paymentId
  await gateway.database`
    update queue set stage = 'retrying', attempts = 1, first_failed_at = now(), next_at = now() + interval '1 minute'
    where payment_id = ${later}`
  const { body } = await view('queue')
  const [wallet] = body.wallets
  expect(wallet).toMatchObject({
    payments: 2,
    accumulated_usdc: '0.095000',
    settlingPayments: 0,
    retryingPayments: 1,
  })
  expect(wallet.triggers).toMatchObject({
    amount: { threshold_usdc: '1.000000', raised_threshold_usdc: '2.000000' },
    count: { threshold: 100, raisedThreshold: 150 },
    time: { seconds: 3_600 },
    high_value: { largest_usdc: '0.050000', threshold_usdc: '10.000000' },
  })
  expect(Date.parse(wallet.settlesAt) - Date.parse(wallet.triggers.time.since)).toBe(3_600_000)
  expect(Date.parse(body.asOf)).toBeGreaterThanOrEqual(Date.parse(wallet.triggers.time.since))
})

test('behavior: each wallet has its own queue, and reading six wallets takes as many queries as reading one wallet', async () => {
  const readCounted = async () => {
    let queries = 0
    const sql = new Proxy(gateway.database, {
      apply: (target, self, args) => {
        queries++
        return Reflect.apply(target, self, args)
      },
    })
    const app = gateway.withOptions({ sql })
    const path = `/providers/${shop.providerId}/queue`
    const { body } = await call<Body>(app, 'GET', path, { key: shop.key })
    return { wallets: body.wallets as Body[], queries }
  }
  const one = await readCounted()
  for (let i = 1; i < 6; i++) {
    await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, {
      key: shop.key,
      json: { network: 'localhost', address: `0x${`4${i}`.repeat(20)}` },
    })
  }
  await pay(gateway, shop)
  const { paymentId } = await pay(gateway, shop)
  const moved = `0x${'43'.repeat(20)}`
  await gateway.database`update queue set payee = ${moved} where payment_id = ${paymentId}`
  const six = await readCounted()
  expect(six.wallets.map(({ wallet, payments }) => [wallet, payments])).toEqual([
    [shop.wallet, 1],
    ...[1, 2, 3, 4, 5].map((i) => [`0x${`4${i}`.repeat(20)}`, i === 3 ? 1 : 0]),
  ])
  expect([one.wallets.length, six.queries]).toEqual([1, one.queries])
})

test('behavior: a trigger that has fired is shown, with the current time as the settlement time', async () => {
  const { paymentId } = await pay(gateway, shop)
  await gateway.database`
    update queue set accepted_at = accepted_at - interval '2 hours' where payment_id = ${paymentId}`
  const { body } = await view('queue')
  expect(body.wallets).toMatchObject([{ fired: 'time', settlesAt: body.asOf }])
})

test('default: lists the batches of all wallets in pages, each once, newest first', async () => {
  const second = `0x${'22'.repeat(20)}`
  await call(gateway.app, 'POST', `/providers/${shop.providerId}/wallets`, {
    key: shop.key,
    json: { network: 'localhost', address: second },
  })
  await paid(1, received(shop.wallet, 2, 20_000n))
  await paid(2, received(shop.wallet, 1, 10_000n), received(second, 3, 30_000n))
  await paid(3, received(second, 1, 10_000n))
  await paid(4, received(`0x${'33'.repeat(20)}`, 1, 10_000n))

  const seen: Body[] = []
  let cursor: string | null = null
  do {
    const { body }: Body = await view(`batches?limit=1${cursor === null ? '' : `&cursor=${cursor}`}`)
    seen.push(...body.batches)
    cursor = body.cursor
  } while (cursor !== null)
  expect(seen.map((batch) => [batch.batch_id, batch.payment_count, batch.total_usdc])).toEqual([
    [3, 1, '0.010000'],
    [2, 4, '0.040000'],
    [1, 2, '0.020000'],
  ])
  expect(seen[0]).toMatchObject({
    network: 'localhost',
    batch_payment_count: 9,
    gas_used: '900000',
    gas_cost_usdc: '2.700000',
    tx_hash: hashOf(3),
    trigger_type: 'count',
  })
})

test.each(['W10', Buffer.from('["batches",1]').toString('base64url')])(
  'args: rejects the cursor %s, which belongs to another list or to none',
  async (cursor) => {
    const { status, body } = await view(`batches?cursor=${cursor}`)
    expect([status, body.code]).toEqual([400, 'invalid_cursor'])
  },
)

test('default: shows a timeline from challenge to queue', async () => {
  const { paymentId } = await pay(gateway, shop)
  const { body } = await view(`payments/${paymentId}/timeline`)
  expect(body).toMatchObject({
    paymentId,
    network: 'localhost',
    batches: [],
    failures: [],
    mined: null,
    confirmedAt: null,
    confirmations: 0,
    confirmationsRequired: 1,
  })
  expect(Date.parse(body.challengedAt)).toBeLessThanOrEqual(Date.parse(body.acceptedAt))
})

test('error: answers 404 for another provider’s payment', async () => {
  const { paymentId } = await pay(gateway, shop)
  const { providerId, key } = await openShop(gateway.app)
  const { status, body } = await get(`/providers/${providerId}/payments/${paymentId}/timeline`, key)
  expect([status, body.code]).toEqual([404, 'unknown_payment'])
})
