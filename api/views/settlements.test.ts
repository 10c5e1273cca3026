import { claimPayments } from '@tollkeeper/ledger/batches/claims'
import { setHold } from '@tollkeeper/ledger/batches/holds'
import { type NumberedBatch, recordBatches } from '@tollkeeper/ledger/facts/record'
import { createCostRecorder } from '@tollkeeper/ledger/queue/settlingCost'
import { endPayments, holdPayments, returnDeferred } from '@tollkeeper/ledger/queue/stages'
import { type Address, type Hex, keccak256, toHex } from 'viem'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { leaseWallet } from '../../test/support/claim.ts'
import { call, openShop, pay, signedBody } from '../../test/support/gateway.ts'
import { withoutIndex } from '../../test/support/indexTables.ts'
import { expire } from '../../test/support/paymentPosition.ts'
import { received, seedBatch } from '../../test/support/seedBatch.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway)

const [seller, splitter]: [Address, Address] = [`0x${'a1'.repeat(20)}`, `0x${'c3'.repeat(20)}`]
/** Follows the chain's clock, so that block times and ours agree. */
const dayStart = Date.UTC(2026, 9, 1) / 1000

beforeAll(async () => {
  // Mines the blocks from which confirmation times are read.
  await mine(30)
  for (let n = 1; n <= 25; n++)
    await seed(n, shop.wallet, ...(n === 3 || n === 5 ? [splitter] : []), ...(n === 5 ? [seller] : []))
  await gateway.index()
})

async function mine(blocks: number): Promise<void> {
  for (let i = 0; i < blocks; i++) {
    await gateway.served.client.request({ method: 'evm_mine', params: [] } as never)
  }
}

const hashOf = (n: number): Hex => keccak256(toHex(`transaction ${n}`))

/** Seeds batch n, in block n on day n. It has two payments to each of the wallets. */
async function seed(n: number, ...wallets: Address[]): Promise<void> {
  await seedBatch(gateway.database, n, {
    txHash: hashOf(n),
    blockHash: keccak256(toHex(`block ${n}`)),
    keeper: shop.wallet,
    triggerCode: n % 7,
    blockTime: BigInt(dayStart + (n - 1) * 86_400),
    gasCost: 300_000_000_000n + (n === 1 ? 1_000_000_000_000n : 0n),
    recipients: wallets.map((wallet) => received(wallet, 2, 95_000n)),
  })
}

const columns = 'batch_id,payment_count,total_usdc,gas_cost_usdc,tx_hash,trigger_type,created_at,confirmed_at'

type Batch = Record<string, unknown> & { batch_id: number; confirmed_at: string | null }
type Batches = { batches: Batch[]; cursor: string | null; indexedBlock: number }

const list = (query: string) => call<Batches>(gateway.app, 'GET', `/settlements/batches?${query}`)

describe('batches', () => {
  test("default: lists batches with the wallet's own count and sum, newest first, 20 per page", async () => {
    const { body } = await list(`wallet=${shop.wallet}`)
    expect(body.batches.map(({ batch_id }) => batch_id)).toEqual(Array.from({ length: 20 }, (_, i) => 25 - i))
    expect(Object.keys(body.batches[0] ?? {}).join()).toBe(columns)
    expect(body.batches[0]).toMatchObject({
      payment_count: 2,
      total_usdc: '0.095000',
      gas_cost_usdc: '0.000900', // 300,000 gas at 0.001 gwei, at 3,000 USD an ETH
      tx_hash: hashOf(25),
      created_at: '2026-10-25T00:00:00.000Z',
    })
    expect(body.indexedBlock).toBe(Number(await gateway.served.client.getBlockNumber()))
  })

  test('args: limit and cursor page through all batches', async () => {
    const seen: number[] = []
    let cursor: string | null = null
    do {
      const { body }: { body: Batches } = await list(
        `wallet=${shop.wallet}&limit=10${cursor ? `&cursor=${cursor}` : ''}`,
      )
      seen.push(...body.batches.map(({ batch_id }) => batch_id))
      cursor = body.cursor
    } while (cursor !== null)
    expect(seen).toEqual(Array.from({ length: 25 }, (_, i) => 25 - i))
  })

  test('args: tx_hash alone shows the whole batch; tx_hash and wallet show the wallet’s share of it', async () => {
    const { body: whole } = await list(`tx_hash=${hashOf(1)}`)
    expect(whole.batches).toMatchObject([
      { batch_id: 1, payment_count: 3, total_usdc: '0.150000', trigger_type: 'count' },
    ])
    // Includes the L1 fee of 0.000001 ETH.
    expect(whole.batches[0]).toMatchObject({ gas_cost_usdc: '0.003900' })
    const { body: share } = await list(
      `tx_hash=${hashOf(1).toUpperCase().replace('0X', '0x')}&wallet=${shop.wallet}`,
    )
    expect(share.batches).toMatchObject([{ batch_id: 1, payment_count: 2 }])
    expect((await list(`tx_hash=${hashOf(99)}`)).body.batches).toEqual([])
  })

  test('behavior: counts the wallet’s share of its splitter’s payments together with direct payments', async () => {
    const { database, served } = gateway
    const [provider, platform]: [Address, Address] = [seller, `0x${'b2'.repeat(20)}`]
    const { chainId } = served.network
    await database`
      insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
      values (${chainId}, ${served.token}, ${splitter}, ${provider}, ${platform}, 19, 1)`
    const own = await list(`wallet=${provider}`)
    expect(own.body.batches).toMatchObject([
      { batch_id: 5, payment_count: 4, total_usdc: '0.185250' },
      { batch_id: 3, payment_count: 2, total_usdc: '0.090250' },
    ])
    const first = await list(`wallet=${provider}&limit=1`)
    const second = await list(`wallet=${provider}&limit=1&cursor=${first.body.cursor}`)
    expect([...first.body.batches, ...second.body.batches]).toEqual(own.body.batches)
    expect((await list(`wallet=${platform}&tx_hash=${hashOf(3)}`)).body.batches).toMatchObject([
      { batch_id: 3, payment_count: 2, total_usdc: '0.004750' },
    ])
    const path = `/settlements/export?wallet=${provider}&start=2026-10-01&end=2026-10-31&format=csv`
    const { body: csv } = await call<string>(gateway.app, 'GET', path)
    const lines = csv.split('\r\n').slice(1, -1)
    expect(lines.map((line) => line.split(',').slice(0, 3))).toEqual([
      ['3', '2', '0.090250'],
      ['5', '4', '0.185250'],
    ])
  })

  test('behavior: confirmed_at is the time of the block that completed the confirmations, and null before', async () => {
    const { client } = gateway.served
    const head = await client.getBlockNumber()
    await seed(Number(head), shop.wallet)
    await gateway.index()
    const [newest] = (await list(`wallet=${shop.wallet}&limit=1`)).body.batches
    expect(newest).toMatchObject({ batch_id: Number(head), confirmed_at: null })

    await mine(1)
    await gateway.index()
    const [confirmed] = (await list(`wallet=${shop.wallet}&limit=1`)).body.batches
    const { timestamp } = await client.getBlock({ blockNumber: head + 1n })
    expect(confirmed?.confirmed_at).toBe(new Date(Number(timestamp) * 1000).toISOString())
    await gateway.database`delete from recorded_block where number = ${head}`
  })

  test('behavior: a trigger code that our keepers never send is shown as unknown', async () => {
    const { body } = await list(`tx_hash=${hashOf(6)}`)
    expect(body.batches).toMatchObject([{ trigger_type: 'unknown' }])
  })
})

describe('network', () => {
  const seeded = Date.UTC(2026, 9, 25, 12)
  type Activity = {
    total: Record<string, unknown>
    intervals: { startsAt: string; settlementSeconds: object | null }[]
    keepers: object[]
  }
  const read = (path: string, app = gateway.app) => call<Activity>(app, 'GET', `/network${path}`)

  beforeEach(() => gateway.setNow(seeded))

  test('default: shows thirty days of all keepers, without a key, at the current gas price', async () => {
    const { status, body } = await read('')
    const sums = {
      batches: 25,
      payments: 75,
      total_usdc: '3.937500',
      gas_used: '7500000',
      gas_cost_ether: '0.0000085',
      gas_cost_usdc: '0.025500',
    }
    expect([status, body]).toMatchObject([
      200,
      {
        network: 'localhost',
        testnet: true,
        interval: 'day',
        from: '2026-09-26T00:00:00.000Z',
        total: { ...sums, keepers: 1 },
        keepers: [{ ...sums, address: shop.wallet, lastBatchAt: '2026-10-25T00:00:00.000Z' }],
        gasToken: { usdc: '3000.000000', source: 'configured' },
      },
    ])
    expect(body.intervals.map(({ startsAt }) => startsAt.slice(0, 10))).toEqual(
      Array.from({ length: 25 }, (_, n) => `2026-10-${String(n + 1).padStart(2, '0')}`),
    )
    expect(body.intervals.every(({ settlementSeconds }) => settlementSeconds === null)).toBe(true)
    const weeks = await read('?interval=week')
    expect(weeks.body.intervals.map(({ startsAt }) => startsAt.slice(0, 10))).toEqual([
      ...['2026-09-28', '2026-10-05', '2026-10-12', '2026-10-19'],
    ])
  })

  test('behavior: the sums are read once in ten seconds for all callers; a failure is not cached', async () => {
    let reads = 0
    const sql = new Proxy(gateway.database, {
      apply(target, self, parts: unknown[]) {
        if (String(parts[0]).includes('from keeper_day')) reads++
        return Reflect.apply(target, self, parts)
      },
    })
    const app = gateway.withOptions({ sql })
    const look = async () => (await read('', app)).status
    expect(await Promise.all(Array.from({ length: 20 }, look))).toEqual(Array(20).fill(200))
    gateway.setNow(seeded + 9_999)
    expect([await look(), reads]).toEqual([200, 1])
    gateway.setNow(seeded + 10_000)
    expect([await look(), reads]).toEqual([200, 2])

    gateway.setNow(seeded + 20_000)
    await gateway.database`alter table keeper_day rename to put_away`
    try {
      expect((await read('', app)).status).toBe(500)
    } finally {
      await gateway.database`alter table put_away rename to keeper_day`
    }
    expect(await look()).toBe(200)
  })

  test('args: lists batches by keeper and time, page by page, each with its transaction', async () => {
    const pages: number[][] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const asked: string = `keeper=${shop.wallet}&from=2026-10-02&to=2026-10-07&limit=2${cursor && `&cursor=${cursor}`}`
      const { body }: { body: Batches } = await call<Batches>(gateway.app, 'GET', `/network/batches?${asked}`)
      pages.push(body.batches.map(({ batch_id }) => batch_id))
      cursor = body.cursor
    }
    expect(pages).toEqual([[6, 5], [4, 3], [2]])
    const { body } = await call<Batches>(gateway.app, 'GET', '/network/batches?to=2026-10-02')
    expect(body.batches).toEqual([
      {
        batch_id: 1,
        keeper: shop.wallet,
        payment_count: 3,
        total_usdc: '0.157500',
        gas_used: '300000',
        gas_cost_ether: '0.0000013',
        tx_hash: hashOf(1),
        trigger_type: 'count',
        created_at: '2026-10-01T00:00:00.000Z',
      },
    ])
    const nobody = `0x${'12'.repeat(20)}`
    const none = await call<Batches>(gateway.app, 'GET', `/network/batches?keeper=${nobody}`)
    expect(none.body).toMatchObject({ batches: [], cursor: null })
  })
})

describe('export', () => {
  test('default: returns exactly eight columns, both dates inclusive, oldest first', async () => {
    const path = `/settlements/export?wallet=${shop.wallet}&start=2026-10-02&end=2026-10-04&format=csv`
    const { headers, body } = await call<string>(gateway.app, 'GET', path)
    expect(headers.get('content-type')).toMatch(/^text\/csv/)
    const lines = body.split('\r\n')
    expect(lines[0]).toBe(columns)
    expect(lines.slice(1, -1).map((line) => line.split(',').slice(0, 3))).toEqual([
      ['2', '2', '0.095000'],
      ['3', '2', '0.095000'],
      ['4', '2', '0.095000'],
    ])
    expect(lines.at(-1)).toBe('')
  })

  /** Seeds batches of one wallet, in ten blocks that are a minute apart. */
  async function seedMany(wallet: Address, count: number, first: number): Promise<void> {
    const inBlock = count / 10
    const batches = Array.from({ length: count }, (_, n): NumberedBatch => {
      const block = Math.floor(n / inBlock)
      return {
        sequence: first + n,
        txHash: hashOf(first + n),
        logIndex: n,
        keeper: wallet,
        triggerCode: 0,
        paymentCount: 1,
        providerTotal: 1n,
        feeTotal: 1n,
        gasUsed: 1n,
        gasCost: 1n,
        recipients: [received(wallet, 1, BigInt(n))],
        blockNumber: BigInt(block + 1),
        blockHash: hashOf(first + block),
        blockTime: BigInt(dayStart + 60 * block),
      }
    })
    const { network, token } = gateway.served
    await recordBatches(gateway.database, { chainId: network.chainId, token }, batches)
  }

  const exportDay = async (wallet: Address): Promise<string[][]> => {
    const path = `/settlements/export?wallet=${wallet}&start=2026-10-01&end=2026-10-01`
    const { body } = await call<string>(gateway.app, 'GET', path)
    expect(body.endsWith('\r\n')).toBe(true)
    return body
      .trimEnd()
      .split('\r\n')
      .slice(1)
      .map((line) => line.split(','))
  }

  test('behavior: three pages are streamed completely, each batch once and in order', async () => {
    const wallet: Address = `0x${'d4'.repeat(20)}`
    await seedMany(wallet, 12_345, 1_000)
    const rows = await exportDay(wallet)
    expect(rows.map(([id]) => Number(id))).toEqual(Array.from({ length: 12_345 }, (_, i) => i + 1_000))
    expect(rows.at(-1)?.[2]).toBe('0.012344')
  })
})

test('behavior: stalled batches of different triggers are published separately, because a keeper needs the trigger to settle a batch', async () => {
  const { database: sql, served, settings } = gateway
  const busy = await openShop(gateway.app)
  const payer = await gateway.buyer(1_000_000n)
  for (let i = 0; i < 3; i++)
    await call(gateway.app, 'POST', '/verify', { json: await signedBody(gateway, busy, payer) })
  const rows = await sql<{ id: string }[]>`select payment_id as id from queue where payee = ${busy.wallet}`
  const [first = '', ...others] = rows.map(({ id }) => id)
  for (const [trigger, paymentIds] of [
    ['high_value', [first]],
    ['count', others],
  ] as const) {
    const { token } = served
    const claim = {
      batchId: randomHex(32),
      token,
      feeRecipient: settings.platformWallet,
      trigger,
      paymentIds,
    }
    const lane = trigger === 'count' ? 'shared' : trigger
    const { batch } = await claimPayments(sql, await leaseWallet(sql), { ...claim, lane }, new Date())
    await sql`update batch set created_at = now() - interval '2 minutes' where id = ${batch?.id ?? 0n}`
  }
  try {
    const { body } = await call<{ batches: { trigger: string; payments: unknown[] }[] }>(
      gateway.app,
      'GET',
      '/settlements/pending',
    )
    expect(body.batches.map(({ trigger, payments }) => [trigger, payments.length])).toEqual([
      ['high_value', 1],
      ['count', 2],
    ])
  } finally {
    await sql`delete from payment where payee = ${busy.wallet}`
  }
})

describe('status', () => {
  const status = (wallet: string) => call(gateway.app, 'GET', `/settlements/status?wallet=${wallet}`)

  test('default: shows an empty queue', async () => {
    expect((await status(shop.wallet)).body).toEqual({
      wallet_address: shop.wallet,
      accumulated_usdc: '0.000000',
      payment_count: 0,
      first_payment_at: null,
      age_seconds: 0,
      estimated_settlement: null,
      held_by: null,
      network: 'localhost',
      indexedBlock: expect.any(Number),
    })
  })

  test('default: shows what the wallet will receive, the age of its oldest payment, and the latest time of settlement', async () => {
    const busy = await openShop(gateway.app)
    const payer = await gateway.buyer(1_000_000n)
    const started = Date.now()
    for (let i = 0; i < 3; i++) {
      const { status: code } = await call(gateway.app, 'POST', '/verify', {
        json: await signedBody(gateway, busy, payer),
      })
      expect(code).toBe(200)
    }
    const { body } = await status(busy.wallet.toUpperCase().replace('0X', '0x'))
    expect(body).toMatchObject({
      wallet_address: busy.wallet,
      accumulated_usdc: '0.142500',
      payment_count: 3,
    })
    const first = Date.parse(String(body.first_payment_at))
    expect(first).toBeGreaterThanOrEqual(started)
    expect(body.estimated_settlement).toBe(new Date(first + 3_600_000).toISOString())
    expect((await status(gateway.settings.platformWallet)).body).toMatchObject({
      accumulated_usdc: '0.007500',
    })
    gateway.setNow(first + 3_600_000)
    expect((await status(busy.wallet)).body).toMatchObject({
      age_seconds: 3_600,
      estimated_settlement: new Date(first + 3_600_000).toISOString(),
    })
  })

  test('behavior: an expired payment is in no sum, even before it is marked as failed', async () => {
    const own = await openShop(gateway.app)
    const { paymentId } = await pay(gateway, own)
    await pay(gateway, own)
    const waiting = { accumulated_usdc: '0.095000', payment_count: 2 }
    expect((await status(own.wallet)).body).toMatchObject(waiting)
    await expire(gateway.database, { paymentId })
    expect((await status(own.wallet)).body).toMatchObject({ accumulated_usdc: '0.047500', payment_count: 1 })
    const queue = await call(gateway.app, 'GET', `/providers/${own.providerId}/queue`, { key: own.key })
    expect(queue.body).toMatchObject({ wallets: [{ payments: 1 }] })
  })

  test('behavior: a payment waiting for its retry fires no trigger, and its estimate is the time of the retry', async () => {
    const failing = await openShop(gateway.app, '12')
    const payer = await gateway.buyer(20_000_000n)
    const { body } = await call(gateway.app, 'POST', '/verify', {
      json: await signedBody(gateway, failing, payer),
    })
    const next = new Date(Date.now() + 600_000)
    await gateway.database`
      update queue set stage = 'retrying', attempts = 1, first_failed_at = now(), next_at = ${next}
      where payment_id = ${body.paymentId as string}`
    expect((await status(failing.wallet)).body).toMatchObject({
      payment_count: 1,
      accumulated_usdc: '11.650000',
      estimated_settlement: next.toISOString(),
    })
    gateway.setNow(next.getTime() + 1_000)
    const due = (await status(failing.wallet)).body.estimated_settlement
    gateway.setNow(null)
    expect(due).toBe(new Date(next.getTime() + 1_000).toISOString())
  })

  test('behavior: estimates use the raised thresholds while settling is expensive', async () => {
    const own = await openShop(gateway.app, '1.50')
    const payer = await gateway.buyer(20_000_000n)
    await call(gateway.app, 'POST', '/verify', { json: await signedBody(gateway, own, payer) })
    const now = Date.now() + 5_000
    gateway.setNow(now)
    const estimate = async () => {
      const { body } = await status(own.wallet)
      const { body: queue } = await call(gateway.app, 'GET', `/providers/${own.providerId}/queue`, {
        key: own.key,
      })
      const [wallet] = queue.wallets as { fired: string | null; settlesAt: string }[]
      expect(wallet?.settlesAt).toBe(body.estimated_settlement)
      return [
        wallet?.fired,
        Date.parse(String(body.estimated_settlement)) - Date.parse(String(body.first_payment_at)),
      ]
    }
    const { body } = await status(own.wallet)
    const age = now - Date.parse(String(body.first_payment_at))
    const see = createCostRecorder(gateway.database, gateway.served.network.chainId)
    expect(await estimate()).toEqual(['amount', age])
    await see(20_001n, new Date(now))
    expect(await estimate()).toEqual([null, 3_600_000])
    await see(20_000n, new Date(now + 5_000))
    expect(await estimate()).toEqual(['amount', age])
    // A cost observed more than ten minutes ago is ignored, because the current cost may differ.
    await see(20_001n, new Date(now + 10_000))
    await gateway.database`update settling_cost set seen_at = ${new Date(now - 600_001)}`
    expect(await estimate()).toEqual(['amount', age])
    await gateway.database`delete from settling_cost`
  })

  test('behavior: the estimated settlement is the current time once a trigger has fired', async () => {
    const expensive = await openShop(gateway.app, '12')
    const payer = await gateway.buyer(20_000_000n)
    await call(gateway.app, 'POST', '/verify', { json: await signedBody(gateway, expensive, payer) })
    const now = Date.now() + 5_000
    gateway.setNow(now)
    expect((await status(expensive.wallet)).body.estimated_settlement).toBe(new Date(now).toISOString())
  })
})

test('behavior: the queue’s status shows why a payment waits for cheaper gas, until the payment is claimed', async () => {
  const { database: sql, served } = gateway
  const { chainId } = served.network
  const [held, free] = [await openShop(gateway.app), await openShop(gateway.app)]
  const payer = await gateway.buyer(1_000_000n)
  for (const shop of [held, free])
    await call(gateway.app, 'POST', '/verify', { json: await signedBody(gateway, shop, payer) })
  const heldBy = async () => {
    const reasons: unknown[] = []
    for (const { wallet } of [held, free])
      reasons.push((await call(gateway.app, 'GET', `/settlements/status?wallet=${wallet}`)).body.held_by)
    expect([await ofPayment(held), await ofPayment(free)]).toEqual(reasons)
    return reasons
  }
  const idOf = async ({ wallet }: { wallet: string }) => {
    const [row] = await sql<{ id: string }[]>`select payment_id as id from queue where payee = ${wallet}`
    return row?.id ?? ''
  }
  const ofPayment = async (shop: { wallet: string }) =>
    (await call(gateway.app, 'GET', `/payments/${await idOf(shop)}`)).body.held_by
  const now = new Date()
  const until = new Date(now.getTime() + 15_000)
  const reason = 'gas_cost'
  const paymentId = await idOf(held)
  await holdPayments(sql, [{ paymentId, reason }], { until, now })
  expect(await heldBy()).toEqual(['gas_cost', null])
  // The deferral has ended, so the payment is checked again, but it still waits.
  await returnDeferred(sql, { chainId, token: served.token }, until)
  expect(await heldBy()).toEqual(['gas_cost', null])
  // Gas is too expensive for all payments of the network, until the keeper lifts the hold.
  await setHold(sql, chainId, until)
  expect(await heldBy()).toEqual(['gas_price', 'gas_price'])
  gateway.setNow(until.getTime() + 1)
  try {
    expect(await heldBy()).toEqual(['gas_cost', null])
  } finally {
    gateway.setNow(null)
  }
  // A finalized payment waits for nothing, even while its network is held.
  await endPayments(sql, [{ paymentId, kind: 'failed', code: 'x', isFinal: false }], now)
  expect((await call(gateway.app, 'GET', `/payments/${paymentId}`)).body.held_by).toBeNull()
})

test('behavior: answers stay the same while the index is missing, and each answer has the number of the last block that was read', async () => {
  const { chainId } = gateway.served.network
  const read = () =>
    Promise.all(
      [
        `/settlements/batches?wallet=${shop.wallet}`,
        `/settlements/export?wallet=${shop.wallet}&start=2026-10-01&end=2026-10-02`,
        `/settlements/status?wallet=${seller}`,
        '/settlements/pending',
        '/network/batches',
        '/network',
      ].map(async (path) => {
        const { status, headers, body } = await call(gateway.app, 'GET', path)
        return { path, status, block: headers.get('indexed-block') ?? `${body.indexedBlock}`, body }
      }),
    )
  await gateway.index()
  const before = await read()
  const head = `${await gateway.served.client.getBlockNumber({ cacheTime: 0 })}`
  expect(before.map(({ status, block }) => [status, block])).toEqual(before.map(() => [200, head]))
  await withoutIndex(gateway.database, async () => expect(await read()).toEqual(before))
  // No block was ever read, but our own receipts still show batches.
  await gateway.database`delete from record_head where chain_id = ${chainId}`
  const unread = await read()
  expect(unread.map(({ status }) => status)).toEqual(before.map(() => 200))
  expect(unread[0]?.body).toMatchObject({
    indexedBlock: 0,
    batches: Array.from({ length: 20 }, (_, i) => ({ batch_id: 25 - i })),
  })
  await gateway.index()
})

test('behavior: a batch that is known only from our receipt is numbered after all batches that the index has counted', async () => {
  const wallet: Address = `0x${'d7'.repeat(20)}`
  const recipients = [received(wallet, 1, 10n)]
  const [{ last }] = await gateway.database<
    [{ last: number }]
  >`select max(sequence) as last from settled_batch`
  const blockTime = BigInt(dayStart + 100 * 86_400)
  const ours = { recipients, sequence: null, blockTime }
  const one = await seedBatch(gateway.database, 90_001, ours)
  await seedBatch(gateway.database, 90_002, ours)
  const ids = async () => (await list(`wallet=${wallet}`)).body.batches.map(({ batch_id }) => batch_id)
  expect(await ids()).toEqual([last + 2, last + 1])
  // The index then counts another keeper's batch, which was mined before ours, and reads one of our batches twice. That batch is still stored once,
  // with the amount that it paid.
  await seedBatch(gateway.database, last + 1, { blockNumber: 90_000n, blockTime })
  expect(await ids()).toEqual([last + 3, last + 2])
  for (const _ of [1, 2]) await seedBatch(gateway.database, last + 2, { ...one, sequence: last + 2 })
  expect(await ids()).toEqual([last + 3, last + 2])
  expect((await list(`wallet=${wallet}`)).body.batches).toMatchObject([
    { payment_count: 1, total_usdc: '0.000010' },
    { payment_count: 1, total_usdc: '0.000010' },
  ])
})
