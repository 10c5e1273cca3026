import { type Address, type Hex, keccak256, toHex } from 'viem'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { setHold } from '#ledger/batches/holds'
import {
  call,
  openShop,
  pay,
  type Shop,
  signedBody,
  startGateway,
  type TestGateway,
} from '../../test/support/gateway.ts'
import { setIndexedHead, withoutIndex } from '../../test/support/indexTables.ts'
import { expire } from '../../test/support/standing.ts'

let gateway: TestGateway
let shop: Shop

/** The chain's clock, so that a block's time and ours agree. */
const dayStart = Date.UTC(2026, 9, 1) / 1000

beforeAll(async () => {
  gateway = await startGateway()
  shop = await openShop(gateway.app)
  // Blocks for the confirmation times to be read from.
  await mine(30)
  for (let n = 1; n <= 25; n++) await seedBatch(n, shop.wallet)
  await gateway.index()
})
afterAll(() => gateway.close())

async function mine(blocks: number): Promise<void> {
  for (let i = 0; i < blocks; i++) {
    await gateway.served.client.request({ method: 'evm_mine', params: [] } as never)
  }
}

const hashOf = (n: number): Hex => keccak256(toHex(`transaction ${n}`))

/** A batch as Ponder would index it: one a day, in block n; its wallet got two payments of it. */
async function seedBatch(n: number, wallet: Address): Promise<void> {
  const { database, served } = gateway
  const { chainId } = served.network
  const blockTime = dayStart + (n - 1) * 86_400
  await database`
    insert into indexer.batch (chain_id, tx_hash, log_index, sequence, batch_id, keeper, token, trigger, authorizations,
      payment_count, provider_total, fee_total, outcomes, block_number, block_hash, block_time, gas_used,
      effective_gas_price, l1_fee)
    values (${chainId}, ${hashOf(n)}, 9, ${n}, ${hashOf(n)}, ${shop.wallet}, ${served.token}, ${n % 7}, 6, 3, 150000, 7500,
      '0x111111', ${n}, ${keccak256(toHex(`block ${n}`))}, ${blockTime}, 300000, 1000000, ${n === 1 ? 1_000_000_000_000n : null})`
  await seedRecipient(n, wallet)
}

async function seedRecipient(n: number, wallet: Address): Promise<void> {
  await gateway.database`
    insert into indexer.batch_recipient (chain_id, tx_hash, log_index, recipient, sequence, payment_count, total,
      block_number, block_time)
    values (${gateway.served.network.chainId}, ${hashOf(n)}, 9, ${wallet}, ${n}, 2, 95000, ${n},
      ${dayStart + (n - 1) * 86_400})`
}

/** Of which providers were told something, as the record has it. */
async function tellOfBlock(number: number): Promise<void> {
  await gateway.database`
    insert into recorded_block (chain_id, number, hash, time, confirmed_at)
    values (${gateway.served.network.chainId}, ${number}, ${hashOf(number)}, 1, now())`
}

type Batch = Record<string, unknown> & { batch_id: number; confirmed_at: string | null }
type Batches = { batches: Batch[]; cursor: string | null; indexedBlock: number }

const list = (query: string) => call<Batches>(gateway.app, 'GET', `/settlements/batches?${query}`)

describe('batches', () => {
  test("default: the wallet's own count and sum, the newest first, 20 of them", async () => {
    const { body } = await list(`wallet=${shop.wallet}`)
    expect(body.batches.map(({ batch_id }) => batch_id)).toEqual(Array.from({ length: 20 }, (_, i) => 25 - i))
    expect(Object.keys(body.batches[0] ?? {})).toEqual([
      'batch_id',
      'payment_count',
      'total_usdc',
      'gas_cost_usdc',
      'tx_hash',
      'trigger_type',
      'created_at',
      'confirmed_at',
    ])
    expect(body.batches[0]).toMatchObject({
      payment_count: 2,
      total_usdc: '0.095000',
      gas_cost_usdc: '0.000900', // 300,000 gas at 0.001 gwei, at 3,000 USD an ETH
      tx_hash: hashOf(25),
      created_at: '2026-10-25T00:00:00.000Z',
    })
    expect(body.indexedBlock).toBe(Number(await gateway.served.client.getBlockNumber()))
  })

  test('args: limit and cursor walk through all of them', async () => {
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

  test('args: tx_hash alone shows the whole batch; with a wallet its share', async () => {
    const { body: whole } = await list(`tx_hash=${hashOf(1)}`)
    expect(whole.batches).toMatchObject([
      { batch_id: 1, payment_count: 3, total_usdc: '0.150000', trigger_type: 'count' },
    ])
    // The L1 fee of 0.000001 ETH is part of it.
    expect(whole.batches[0]).toMatchObject({ gas_cost_usdc: '0.003900' })
    const { body: share } = await list(
      `tx_hash=${hashOf(1).toUpperCase().replace('0X', '0x')}&wallet=${shop.wallet}`,
    )
    expect(share.batches).toMatchObject([{ batch_id: 1, payment_count: 2 }])
    expect((await list(`tx_hash=${hashOf(99)}`)).body.batches).toEqual([])
  })

  test('behavior: what a splitter of the wallet received counts with its share, beside what came directly', async () => {
    const { database, served } = gateway
    const [provider, platform, splitter] = ['a1', 'b2', 'c3'].map((byte): Address => `0x${byte.repeat(20)}`)
    if (!provider || !platform || !splitter) throw new Error('three addresses')
    const { chainId } = served.network
    await database`
      insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
      values (${chainId}, ${served.token}, ${splitter}, ${provider}, ${platform}, 19, 1)`
    for (const n of [3, 5]) await seedRecipient(n, splitter)
    await seedRecipient(5, provider)
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

  test('behavior: confirmed_at is the time of the block that gave it its depth, and null before', async () => {
    const { client } = gateway.served
    const head = await client.getBlockNumber()
    await seedBatch(Number(head), shop.wallet)
    await gateway.index()
    const [newest] = (await list(`wallet=${shop.wallet}&limit=1`)).body.batches
    expect(newest).toMatchObject({ batch_id: Number(head), confirmed_at: null })

    await mine(1)
    await gateway.index()
    const [confirmed] = (await list(`wallet=${shop.wallet}&limit=1`)).body.batches
    const { timestamp } = await client.getBlock({ blockNumber: head + 1n })
    expect(confirmed?.confirmed_at).toBe(new Date(Number(timestamp) * 1000).toISOString())
    await gateway.database`delete from indexer.batch where block_number = ${head}`
    await gateway.database`delete from indexer.batch_recipient where block_number = ${head}`
  })

  test('behavior: a trigger code that nobody of ours sends is called unknown', async () => {
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

  beforeAll(async () => {
    gateway.setNow(seeded)
    // As the indexer's own tests show that Ponder sums them.
    await gateway.database`
      insert into indexer.keeper_day (chain_id, day, address, batch_count, payment_count, total, gas_used, gas_cost, last_block_time)
      select chain_id, block_time - block_time % 86400, keeper, count(*), sum(payment_count), sum(provider_total + fee_total),
        sum(gas_used), sum(gas_used * effective_gas_price + coalesce(l1_fee, 0)), max(block_time)
      from indexer.batch group by 1, 2, 3`
  })
  afterAll(() => gateway.setNow(null))

  test('default: thirty days of everybody, without a key, at the price of now', async () => {
    const { status, body } = await read('')
    const sums = {
      ...{ batches: 25, payments: 75, total_usdc: '3.937500', gas_used: '7500000' },
      ...{ gas_cost_ether: '0.0000085', gas_cost_usdc: '0.025500' },
    }
    expect([status, body]).toMatchObject([
      200,
      {
        ...{ network: 'localhost', testnet: true, interval: 'day', from: '2026-09-26T00:00:00.000Z' },
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

  test('behavior: however many ask, the index is read once in ten seconds; a failure is kept for nobody', async () => {
    let reads = 0
    const sql = new Proxy(gateway.database, {
      apply(target, self, parts: unknown[]) {
        if (String(parts[0]).includes('indexer.keeper_day')) reads++
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
    await tellOfBlock(1_000_000)
    try {
      for (const path of ['', '/batches']) {
        const { status, headers, body } = await read(path, app)
        const indexedBlock = Number(await gateway.served.client.getBlockNumber())
        expect([path, status, headers.get('cache-control'), body]).toMatchObject([
          ...[path, 503, 'no-store', { code: 'index_behind', indexedBlock }],
        ])
      }
    } finally {
      await gateway.database`delete from recorded_block where number = 1000000`
    }
    expect(await look()).toBe(200)
    await withoutIndex(gateway.database, async () => {
      gateway.setNow(seeded + 30_000)
      expect((await read('', app)).body).toMatchObject({ code: 'index_behind' })
    })
    gateway.setNow(seeded)
  })

  test('args: batches by keeper and time, page by page, each with its transaction', async () => {
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
        ...{ batch_id: 1, keeper: shop.wallet, payment_count: 3, total_usdc: '0.157500', gas_used: '300000' },
        ...{ gas_cost_ether: '0.0000013', tx_hash: hashOf(1), trigger_type: 'count' },
        created_at: '2026-10-01T00:00:00.000Z',
      },
    ])
    const nobody = `0x${'12'.repeat(20)}`
    const none = await call<Batches>(gateway.app, 'GET', `/network/batches?keeper=${nobody}`)
    expect(none.body).toMatchObject({ batches: [], cursor: null })
  })
})

describe('export', () => {
  test('default: exactly eight columns, both dates inclusive, the oldest first', async () => {
    const path = `/settlements/export?wallet=${shop.wallet}&start=2026-10-02&end=2026-10-04&format=csv`
    const { headers, body } = await call<string>(gateway.app, 'GET', path)
    expect(headers.get('content-type')).toMatch(/^text\/csv/)
    const lines = body.split('\r\n')
    expect(lines[0]).toBe(
      'batch_id,payment_count,total_usdc,gas_cost_usdc,tx_hash,trigger_type,created_at,confirmed_at',
    )
    expect(lines.slice(1, -1).map((line) => line.split(',').slice(0, 3))).toEqual([
      ['2', '2', '0.095000'],
      ['3', '2', '0.095000'],
      ['4', '2', '0.095000'],
    ])
    expect(lines.at(-1)).toBe('')
  })

  /** Batches of one wallet, in ten blocks that are a minute apart. */
  async function seedMany(wallet: Address, count: number, first: number): Promise<void> {
    const { chainId } = gateway.served.network
    await gateway.database`
      insert into indexer.batch_recipient (chain_id, tx_hash, log_index, recipient, sequence, payment_count, total,
        block_number, block_time)
      select ${chainId}, '0x' || lpad(to_hex(${first}::int + n), 64, '0'), 0, ${wallet}, ${first}::int + n, 1, n, 1,
        ${dayStart} + 60 * (n * 10 / ${count}::int)
      from generate_series(0, ${count - 1}::int) n`
    await gateway.database`
      insert into indexer.batch
      select chain_id, tx_hash, log_index, sequence, tx_hash, ${wallet}, ${gateway.served.token}, 0, 2, 1, 1, 1, '0x11', 1,
        '0x' || repeat('ab', 32), block_time, 1, 1, null
      from indexer.batch_recipient where recipient = ${wallet}`
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

  test('behavior: three pages are streamed whole, each batch once and in order', async () => {
    const wallet: Address = `0x${'d4'.repeat(20)}`
    await seedMany(wallet, 12_345, 1_000)
    const rows = await exportDay(wallet)
    expect(rows.map(([id]) => Number(id))).toEqual(Array.from({ length: 12_345 }, (_, i) => i + 1_000))
    expect(rows.at(-1)?.[2]).toBe('0.012344')
  })

  test('behavior: a cell that a spreadsheet would take for a formula is none', async () => {
    const wallet: Address = `0x${'d5'.repeat(20)}`
    await seedMany(wallet, 1, 999)
    const formula = '=HYPERLINK("http://evil.example","x")'
    await gateway.database`update indexer.batch set tx_hash = ${formula} where keeper = ${wallet}`
    const [row] = await exportDay(wallet)
    expect(row?.slice(4, 6).join(',')).toBe(`"'=HYPERLINK(""http://evil.example"",""x"")"`)
  })
})

describe('status', () => {
  const status = (wallet: string) => call(gateway.app, 'GET', `/settlements/status?wallet=${wallet}`)

  test('default: an empty queue', async () => {
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

  test('default: what the wallet will receive, the age, and when it settles at the latest', async () => {
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
    try {
      expect((await status(busy.wallet)).body).toMatchObject({
        age_seconds: 3_600,
        estimated_settlement: new Date(first + 3_600_000).toISOString(),
      })
    } finally {
      gateway.setNow(null)
    }
  })

  test('behavior: what has run out is in no sum, though nobody has marked it yet', async () => {
    const own = await openShop(gateway.app)
    const { paymentId } = await pay(gateway, own)
    await pay(gateway, own)
    const waiting = { accumulated_usdc: '0.095000', payment_count: 2 }
    expect((await status(own.wallet)).body).toMatchObject(waiting)
    await expire(gateway.database, { paymentId })
    expect((await status(own.wallet)).body).toMatchObject({ accumulated_usdc: '0.047500', payment_count: 1 })
  })

  test('behavior: what waits for its retry fires no trigger, and is estimated for then', async () => {
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
      ...{ payment_count: 1, accumulated_usdc: '11.650000' },
      estimated_settlement: next.toISOString(),
    })
    gateway.setNow(next.getTime() + 1_000)
    const due = (await status(failing.wallet)).body.estimated_settlement
    gateway.setNow(null)
    expect(due).toBe(new Date(next.getTime() + 1_000).toISOString())
  })

  test('behavior: a trigger that has fired makes the estimate now', async () => {
    const dear = await openShop(gateway.app, '12')
    const payer = await gateway.buyer(20_000_000n)
    await call(gateway.app, 'POST', '/verify', { json: await signedBody(gateway, dear, payer) })
    const now = Date.now() + 5_000
    gateway.setNow(now)
    try {
      expect((await status(dear.wallet)).body.estimated_settlement).toBe(new Date(now).toISOString())
    } finally {
      gateway.setNow(null)
    }
  })
})

test('behavior: what waits for cheaper gas says so in the queue’s status, and only while it waits', async () => {
  const { chainId } = gateway.served.network
  const busy = await openShop(gateway.app)
  const payer = await gateway.buyer(1_000_000n)
  await call(gateway.app, 'POST', '/verify', { json: await signedBody(gateway, busy, payer) })
  const until = new Date(Date.now() + 15_000)
  const heldBy = async () =>
    (await call(gateway.app, 'GET', `/settlements/status?wallet=${busy.wallet}`)).body.held_by
  await setHold(gateway.database, { chainId, isHighValue: false, reason: 'gas_cost', until })
  expect(await heldBy()).toBe('gas_cost')
  gateway.setNow(until.getTime() + 1)
  try {
    expect(await heldBy()).toBeNull()
  } finally {
    gateway.setNow(null)
  }
})

describe('index', () => {
  test('error: without an index, or far below what was told, what tells of batches says so; the queue needs none', async () => {
    const { chainId } = gateway.served.network
    const views = [
      `/settlements/batches?wallet=${shop.wallet}`,
      `/settlements/export?wallet=${shop.wallet}&start=2026-10-01&end=2026-10-02`,
    ]
    await withoutIndex(gateway.database, async () => {
      for (const path of views) {
        const { status, body } = await call(gateway.app, 'GET', path)
        expect([path, status, body.code]).toEqual([path, 503, 'index_behind'])
      }
      const ofQueue = await call(gateway.app, 'GET', `/settlements/status?wallet=${shop.wallet}`)
      expect(ofQueue.status).toBe(200)
    })
    await tellOfBlock(20 + Number(gateway.settings.maxIndexLagBlocks))
    await setIndexedHead(gateway.database, { chainId, blockNumber: 19, blockTime: 1 })
    for (const path of views) expect((await call(gateway.app, 'GET', path)).status).toBe(503)
    // A reorg may have set it back so far: what it shows is as of the block that it names.
    await setIndexedHead(gateway.database, { chainId, blockNumber: 20, blockTime: 1 })
    for (const path of views) {
      const { status, headers, body } = await call(gateway.app, 'GET', path)
      expect([path, status, headers.get('indexed-block') ?? `${body.indexedBlock}`]).toEqual([
        path,
        200,
        '20',
      ])
    }
    await gateway.index()
  })
})
