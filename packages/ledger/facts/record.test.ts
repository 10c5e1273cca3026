import type { Evidence } from '@tollkeeper/chain/evidence'
import type { Address, Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { explain } from '../../../test/support/explain.ts'
import { halvesOfPayment } from '../../../test/support/halves.ts'
import {
  blockHashOf,
  type SeededPayment,
  seedChainId,
  seedHalf,
  seedPayment,
  seedPlatform,
  seedProvider,
  seedScope,
  seedToken,
  seedTransfer,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { deferPayments, wakeDeferred } from '../queue/stages.ts'
import { markLooked, readPaymentsToFinalize } from '../results/finalizations.ts'
import { newId } from '../store/identifiers.ts'
import {
  dropBlock,
  endLookups,
  moveRecordHead,
  type NumberedBatch,
  readConfirmedBlocks,
  readExplained,
  readIndexGap,
  readLookupRequests,
  readRecordAge,
  readRecordHead,
  readToldBlock,
  readUnconfirmedBlocks,
  readUnrecorded,
  readYoungBlocks,
  recordBatches,
  recordEvents,
  recordPayouts,
  requestLookups,
  setConfirmed,
  setFinal,
} from './record.ts'

const token = seedToken
const scope = seedScope

const sql = await useDatabase()
const provider = await seedProvider(sql)

const seed = () => seedPayment(sql, { provider })

let height = 1_000
/** Returns a block above all others. */
const newBlock = () => blockAt(++height)

function blockAt(number: number, hash = blockHashOf(number)) {
  return { blockNumber: BigInt(number), blockHash: hash, blockTime: 1_795_262_400n + BigInt(number) }
}

/** Creates the event of a half that was used exactly as signed. `change` replaces fields of the event. */
async function useOf(payment: SeededPayment, half: 0 | 1, change: Partial<Evidence> = {}): Promise<Evidence> {
  const [signed] = await sql<{ recipient: Address; value: bigint }[]>`
    select recipient, value from signed_authorization where payment_id = ${payment.paymentId} and half = ${half}`
  if (!signed) throw new Error('no such half')
  return {
    authorizer: payment.payer,
    nonce: payment.nonces[half],
    state: 'used' as const,
    ...signed,
    txHash: randomHex(32),
    logIndex: half * 2,
    ...newBlock(),
    ...change,
  }
}

const record = (...events: Evidence[]) => recordEvents(sql, scope, events, 'index')

async function statesOf({ paymentId }: SeededPayment): Promise<string[]> {
  return (await halvesOfPayment(sql, paymentId)).map(({ state }) => state)
}

async function lookedAt({ blockHash }: { blockHash: Hex }): Promise<number | undefined> {
  const [row] = await sql<{ looked: number }[]>`select looked from recorded_block where hash = ${blockHash}`
  return row?.looked
}

async function eventRows(): Promise<unknown[]> {
  return [
    ...(await sql`select * from authorization_event order by payment_id, half`),
    ...(await sql`select id, number, hash, time, confirmed_at, is_final from recorded_block order by id`),
  ]
}

describe('events', () => {
  test('default: records a half as settled if its transfer matches the signed authorization', async () => {
    const payment = await seed()
    const use = await useOf(payment, 0)
    expect(await record(use)).toEqual([payment.paymentId])
    expect(await halvesOfPayment(sql, payment.paymentId)).toEqual([
      {
        paymentId: payment.paymentId,
        half: 0,
        authorizer: payment.payer,
        nonce: payment.nonces[0],
        state: 'settled',
        txHash: use.txHash,
        logIndex: 0,
        blockNumber: use.blockNumber,
        blockHash: use.blockHash,
        blockTime: use.blockTime,
      },
      {
        paymentId: payment.paymentId,
        half: 1,
        authorizer: payment.payer,
        nonce: payment.nonces[1],
        state: 'open',
        txHash: null,
        logIndex: null,
        blockNumber: null,
        blockHash: null,
        blockTime: null,
      },
    ])
    // Both halves are in one block, and the payment is returned once.
    const other = await seed()
    const block = newBlock()
    expect(await record(await useOf(other, 0, block), await useOf(other, 1, block))).toEqual([
      other.paymentId,
    ])
    expect(await statesOf(other)).toEqual(['settled', 'settled'])
  })

  test.each([
    ['paid someone else', { recipient: randomHex(20) }, 'foreign_use'],
    ['moved another amount', { value: 47_499n }, 'foreign_use'],
    ['was cancelled', { state: 'cancelled', recipient: null, value: null }, 'cancelled'],
  ] as const)('args: records the use of a nonce that %s', async (_, change, state) => {
    const payment = await seed()
    await record(await useOf(payment, 0, change))
    expect(await statesOf(payment)).toEqual([state, 'open'])
  })

  test('behavior: an unbound nonce that was used before acceptance counts as a foreign use', async () => {
    const acceptedBlock = newBlock().blockNumber
    const accept = () => seedTransfer(sql, { source: 'submission', halves: [seedHalf({ acceptedBlock })] })
    const [before, after] = [await accept(), await accept()]
    await record(await useOf(before, 0, blockAt(Number(acceptedBlock))))
    expect(await statesOf(before)).toEqual(['foreign_use'])
    await record(await useOf(after, 0, blockAt(Number(acceptedBlock) + 1)))
    expect(await statesOf(after)).toEqual(['settled'])
    height = Number(acceptedBlock) + 1
  })

  test('behavior: ignores events of other payers, tokens, and chains', async () => {
    const payment = await seed()
    const use = await useOf(payment, 0)
    const before = await eventRows()
    const strangers = [
      { ...use, authorizer: randomHex(20) },
      { ...use, nonce: randomHex(32) },
    ]
    expect(await record(...strangers)).toEqual([])
    expect(await recordEvents(sql, { ...scope, token: randomHex(20) }, [use], 'index')).toEqual([])
    expect(await recordEvents(sql, { ...scope, chainId: 1 }, [use], 'index')).toEqual([])
    expect(await record()).toEqual([])
    expect(await eventRows()).toEqual(before)
    // Our payment's event is recorded, although it arrives together with events that are not ours.
    expect(await record(...strangers, use)).toEqual([payment.paymentId])
  })

  test('behavior: recording the same event again, from any source, changes nothing', async () => {
    const payment = await seed()
    const use = await useOf(payment, 0)
    expect(await recordEvents(sql, scope, [use], 'receipt')).toEqual([payment.paymentId])
    const before = await eventRows()
    expect(await recordEvents(sql, scope, [{ ...use, logIndex: 8 }], 'lookup')).toEqual([])
    expect(await eventRows()).toEqual(before)
  })

  test('behavior: an event that is seen in another block replaces the earlier event, even if their states differ', async () => {
    const payment = await seed()
    const use = await useOf(payment, 0)
    await record(use)
    const moved = { ...use, ...newBlock(), txHash: randomHex(32), logIndex: 7 }
    expect(await record(moved)).toEqual([payment.paymentId])
    expect((await halvesOfPayment(sql, payment.paymentId))[0]).toMatchObject({
      state: 'settled',
      txHash: moved.txHash,
      logIndex: 7,
      blockHash: moved.blockHash,
    })
    // A block of the same height on another branch.
    const cancelled = { ...use, ...blockAt(Number(moved.blockNumber), randomHex(32)) }
    await record({ ...cancelled, state: 'cancelled', recipient: null, value: null })
    expect(await statesOf(payment)).toEqual(['cancelled', 'open'])
    expect(await dropBlock(sql, seedChainId, use)).toBe(0)
    expect(await dropBlock(sql, seedChainId, moved)).toBe(0)
    expect(await statesOf(payment)).toEqual(['cancelled', 'open'])
  })

  test('behavior: checks a block’s payments once, again when the block becomes final, and again when more events are found in the block', async () => {
    const [first, late] = [await seed(), await seed()]
    const block = newBlock()
    await record(await useOf(first, 0, block))
    const look = async (safeBlock: bigint) => {
      const facts = { safeBlock, blockTime: 0n }
      const { blockIds, payments } = await readPaymentsToFinalize(sql, seedChainId, facts, 500)
      await markLooked(sql, blockIds, safeBlock)
      return payments.map(({ paymentId }) => paymentId)
    }
    expect(await lookedAt(block)).toBe(0)
    expect(await look(block.blockNumber - 1n)).toContain(first.paymentId)
    expect(await lookedAt(block)).toBe(1)
    expect(await look(block.blockNumber - 1n)).toEqual([])
    expect(await look(block.blockNumber)).toContain(first.paymentId)
    expect(await lookedAt(block)).toBe(2)
    expect(await look(block.blockNumber)).toEqual([])
    const use = await useOf(late, 0, block)
    await record(use)
    expect(await lookedAt(block)).toBe(0)
    expect((await look(block.blockNumber)).sort()).toEqual([first.paymentId, late.paymentId].sort())
    expect(await lookedAt(block)).toBe(2)
    await record(use)
    expect(await lookedAt(block)).toBe(2)
  })

  test('behavior: a block in which more events are found is confirmed again, so that the providers of these events are also notified', async () => {
    const block = newBlock()
    const use = await useOf(await seed(), 0, block)
    await record(use)
    const confirm = () => setConfirmed(sql, seedChainId, block, new Date())
    expect([await confirm(), await confirm()]).toEqual([true, false])
    await record(use)
    expect(await confirm()).toBe(false)
    await record(use, await useOf(await seed(), 0, block))
    expect([await confirm(), await confirm()]).toEqual([true, false])
  })

  test('behavior: recording events looks up only their payments, regardless of how many payments are stored', async () => {
    const payments: SeededPayment[] = []
    for (let n = 0; n < 40; n++) payments.push(await seed())
    await sql`
      insert into payment
      select (jsonb_populate_record(p, jsonb_build_object(
        'id', 'pay_' || md5('other ' || n), 'request_id', 'req_' || md5('other ' || n)))).*
      from payment p, generate_series(1, 100) n where p.id = ${payments[0]?.paymentId ?? ''}`
    const block = newBlock()
    const uses = await Promise.all(payments.map((payment) => useOf(payment, 0, block)))
    const read = await explain(sql, /with given as/, (own) => recordEvents(own, scope, uses, 'index'))
    expect(read['Index Scan payment']).toBe(40)
    expect(Object.keys(read)).not.toContain('Seq Scan payment')
  })

  test('behavior: stores the address of the splitter with the event of a payment to a splitter', async () => {
    const splitter = randomHex(20)
    const payment = await seedPayment(sql, { provider, splitter })
    await record(await useOf(payment, 0))
    const rows = await sql`select splitter from authorization_event where payment_id = ${payment.paymentId}`
    expect([...rows]).toEqual([{ splitter }])
  })
})

/** Adds events to the index. */
async function index(...events: Evidence[]): Promise<void> {
  for (const one of events)
    await sql`
      insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value,
        tx_hash, log_index, block_number, block_hash, block_time, batch_log_index)
      values (${seedChainId}, ${token}, ${one.authorizer}, ${one.nonce}, ${one.state}, ${one.recipient}, ${one.value},
        ${one.txHash}, ${one.logIndex}, ${one.blockNumber}, ${one.blockHash}, ${one.blockTime}, 9)`
}

/** Adds a batch that paid one wallet to the index. */
async function indexBatch(
  { blockNumber, blockHash, blockTime }: ReturnType<typeof newBlock>,
  { txHash = randomHex(32), logIndex = 1, sequence = 1 } = {},
): Promise<NumberedBatch> {
  const [keeper, recipient] = [randomHex(20), randomHex(20)]
  const place = {
    chain_id: seedChainId,
    tx_hash: txHash,
    log_index: logIndex,
    sequence,
    block_number: blockNumber,
  }
  await sql`
    insert into indexer.batch ${sql({
      ...place,
      block_hash: blockHash,
      block_time: blockTime,
      batch_id: randomHex(32),
      keeper,
      token,
      trigger: 2,
      authorizations: 4,
      payment_count: 2,
      provider_total: 190,
      fee_total: 10,
      outcomes: '0x1111',
      gas_used: 100,
      effective_gas_price: 7,
      l1_fee: 5,
    })}`
  await sql`
    insert into indexer.batch_recipient ${sql({
      ...place,
      block_time: blockTime,
      recipient,
      payment_count: 2,
      total: 190,
    })}`
  return {
    txHash,
    logIndex,
    sequence,
    keeper,
    triggerCode: 2,
    paymentCount: 2,
    providerTotal: 190n,
    feeTotal: 10n,
    gasUsed: 100n,
    gasCost: 705n,
    recipients: [{ recipient, paymentCount: 2, total: '190' }],
    blockNumber,
    blockHash,
    blockTime,
  }
}

describe('reading the index', () => {
  const all = { after: -1n, upTo: 40_000n }
  const nothing = { events: [], payouts: [], batches: [] }

  test('default: reads our unrecorded events of the index by block, the lowest first', async () => {
    const [one, other] = [await seed(), await seed()]
    const uses = [await useOf(one, 0), await useOf(other, 1), await useOf(one, 1)]
    const [first, second, third] = uses as [Evidence, Evidence, Evidence]
    await index(third, first, second, { ...(await useOf(one, 0)), authorizer: randomHex(20) })
    const read = async (range = all, limit = 10) =>
      (await readUnrecorded(sql, scope, range, limit)).events.map(({ txHash }) => txHash)
    expect(await read()).toEqual([first.txHash, second.txHash, third.txHash])
    expect(await read({ after: first.blockNumber, upTo: second.blockNumber })).toEqual([second.txHash])
    expect(await read(all, 2)).toEqual([first.txHash, second.txHash])
    expect(await readUnrecorded(sql, { ...scope, chainId: 1 }, all, 10)).toEqual(nothing)

    const { events } = await readUnrecorded(sql, scope, all, 10)
    expect(events[0]).toEqual({ ...first, batchLogIndex: 9 })
    await recordEvents(sql, scope, events.slice(0, 2), 'index')
    expect(await read()).toEqual([third.txHash])
    // The settlement is now recorded from our receipt, so the index's row isn't read, unless it names another block.
    await recordEvents(sql, scope, [third], 'receipt')
    expect(await read()).toEqual([])
    await sql`update indexer.authorization set block_hash = ${randomHex(32)} where tx_hash = ${third.txHash}`
    expect(await read()).toEqual([third.txHash])
    await sql`delete from indexer.authorization`
  })

  test('behavior: reads payouts of our splitters, regardless of who swept them', async () => {
    const splitter = randomHex(20)
    await seedPayment(sql, { provider, splitter })
    const [paidAt, batchAt] = [newBlock(), newBlock()]
    const payout = async (address: Address, recipient: Address, block: ReturnType<typeof newBlock>) => {
      const { blockNumber, blockHash, blockTime } = block
      const txHash = randomHex(32)
      await sql`
        insert into indexer.payout ${sql({
          chain_id: seedChainId,
          token,
          splitter: address,
          log_index: 3,
          platform_recipient: recipient,
          platform_amount: 1,
          provider: randomHex(20),
          provider_amount: 1,
          tx_hash: txHash,
          block_number: blockNumber,
          block_hash: blockHash,
          block_time: blockTime,
        })}`
      return txHash
    }
    const paid = await payout(splitter, seedPlatform, paidAt)
    const held = await payout(splitter, randomHex(20), batchAt)
    await payout(randomHex(20), seedPlatform, batchAt)
    const found = await readUnrecorded(sql, scope, all, 10)
    expect(found).toEqual({
      events: [],
      payouts: [
        { ...paidAt, splitter, logIndex: 3, txHash: paid, isPlatformPaid: true },
        { ...batchAt, splitter, logIndex: 3, txHash: held, isPlatformPaid: false },
      ],
      batches: [],
    })
    for (const _ of [1, 2]) {
      await recordPayouts(sql, scope, found.payouts)
      expect(await readUnrecorded(sql, scope, all, 10)).toEqual(nothing)
    }
    const rows = await sql`select tx_hash from payout where splitter = ${splitter} order by tx_hash`
    expect(rows.map((row) => row.tx_hash).sort()).toEqual([paid, held].sort())
    // A reorg deletes the payouts of its block.
    await dropBlock(sql, seedChainId, paidAt)
    const left = await sql`select tx_hash from payout where splitter = ${splitter}`
    expect([...left]).toEqual([{ tx_hash: held }])
    expect((await readUnrecorded(sql, scope, all, 10)).payouts).toMatchObject([{ txHash: paid }])
    await sql`delete from indexer.payout`
  })

  test('default: reads the batches of all keepers once, and numbers the batches that are known from our receipts', async () => {
    const block = newBlock()
    const txHash = randomHex(32)
    const first = await indexBatch(block, { txHash })
    const second = await indexBatch(block, { txHash, logIndex: 5, sequence: 2 })
    const later = await indexBatch(newBlock(), { sequence: 3 })
    await indexBatch(newBlock(), { sequence: 4 })
    const unread = async (limit = 10) => (await readUnrecorded(sql, scope, all, limit)).batches
    const found = await unread(3)
    expect(found.toSorted((one, other) => (one.sequence ?? 0) - (other.sequence ?? 0))).toEqual([
      first,
      second,
      later,
    ])
    expect(await readUnrecorded(sql, { ...scope, token: randomHex(20) }, all, 10)).toEqual(nothing)

    await recordBatches(sql, scope, [{ ...later, sequence: null }])
    expect((await unread()).map(({ sequence }) => sequence)).toContain(3)
    for (const _ of [1, 2]) {
      await recordBatches(sql, scope, found)
      expect((await unread()).map(({ sequence }) => sequence)).toEqual([4])
    }
    const rows = await sql`
      select sequence, payment_count, gas_cost, is_first, position, (
        select json_agg(r.total) from batch_recipient r where r.batch_id = b.id) as totals
      from settled_batch b where chain_id = ${seedChainId} order by position`
    const same = { payment_count: 2, gas_cost: 705n, totals: [190] }
    const position = (block.blockNumber << 20n) + 1n
    expect([...rows]).toEqual([
      { ...same, sequence: 1, is_first: true, position },
      { ...same, sequence: 2, is_first: false, position: position + 4n },
      { ...same, sequence: 3, is_first: true, position: (later.blockNumber << 20n) + 1n },
    ])
    // A reorg deletes the batches of its block, with their recipients and sums.
    const sums = () =>
      sql`select sum(batches)::int as batches, sum(gas_cost) as gas from keeper_day where chain_id = ${seedChainId}`
    expect([...(await sums())]).toEqual([{ batches: 3, gas: 1_410n }])
    await dropBlock(sql, seedChainId, block)
    expect([...(await sums())]).toEqual([{ batches: 1, gas: 705n }])
    expect((await unread()).map(({ sequence }) => sequence).sort()).toEqual([1, 2, 4])
    await sql`delete from indexer.batch`
  })

  test('behavior: an old block that is read into a new record is stored as final and as notified, unless the block contains our payments', async () => {
    const [old, ours] = [newBlock(), newBlock()]
    await record(await useOf(await seed(), 0, ours))
    const confirmedAt = new Date('2026-11-01T00:00:00Z')
    const batches = [
      { ...(await indexBatch(old)), confirmedAt },
      { ...(await indexBatch(ours)), confirmedAt },
    ]
    await recordBatches(sql, scope, batches)
    const blocks = await sql`
      select confirmed_at, is_final, looked from recorded_block where hash in ${sql([old.blockHash, ours.blockHash])} order by number`
    expect([...blocks]).toEqual([
      { confirmed_at: confirmedAt, is_final: true, looked: 2 },
      { confirmed_at: null, is_final: false, looked: 0 },
    ])
    await sql`delete from indexer.batch`
    await dropBlock(sql, seedChainId, old)
  })

  test('default: stores the last block that was read, and the block before the first gap', async () => {
    expect(await readRecordHead(sql, seedChainId)).toBeNull()
    expect(await readRecordAge(sql, seedChainId)).toBeNull()
    await moveRecordHead(sql, seedChainId, { blockNumber: 7n, readNumber: 8n, blockTime: 70n })
    await moveRecordHead(sql, seedChainId, { blockNumber: 9n, readNumber: 9n, blockTime: 90n })
    expect(await readRecordHead(sql, seedChainId)).toEqual({
      blockNumber: 9n,
      readNumber: 9n,
      blockTime: 90n,
    })
    expect(await readRecordAge(sql, seedChainId)).toBeLessThan(60_000)
    expect(await readIndexGap(sql, seedChainId)).toBeNull()
    const unread = async (
      reason: string,
      { blockNumber, blockHash, blockTime }: ReturnType<typeof newBlock>,
    ) =>
      sql`
        insert into indexer.index_gap ${sql({
          chain_id: seedChainId,
          tx_hash: randomHex(32),
          log_index: 0,
          reason,
          detail: '',
          block_number: blockNumber,
          block_hash: blockHash,
          block_time: blockTime,
        })}`
    await unread('unpaired_authorization', newBlock())
    expect(await readIndexGap(sql, seedChainId)).toBeNull()
    const [low, high] = [newBlock(), newBlock()]
    await unread('receipt_unavailable', high)
    await unread('receipt_unavailable', low)
    expect(await readIndexGap(sql, seedChainId)).toBe(low.blockNumber)
  })
})

describe('reorgs', () => {
  test('default: dropping a block deletes its events, and lowers the record’s head to the block before it', async () => {
    const [one, other] = [await seed(), await seed()]
    const [gone, stays] = [newBlock(), newBlock()]
    const { blockNumber } = stays
    const readUpTo = () =>
      moveRecordHead(sql, seedChainId, { blockNumber, readNumber: blockNumber, blockTime: 1n })
    await record(
      await useOf(one, 0, gone),
      await useOf(one, 1, stays),
      await useOf(other, 0, { ...gone, txHash: randomHex(32) }),
    )
    await readUpTo()
    // Another block of that height stays unchanged.
    expect(await dropBlock(sql, seedChainId, { ...gone, blockHash: randomHex(32) })).toBe(0)
    expect(await dropBlock(sql, 1, gone)).toBe(0)
    expect(await statesOf(one)).toEqual(['settled', 'settled'])

    await readUpTo()
    expect(await dropBlock(sql, seedChainId, gone)).toBe(2)
    expect(await statesOf(one)).toEqual(['open', 'settled'])
    expect(await statesOf(other)).toEqual(['open', 'open'])
    const lowered = gone.blockNumber - 1n
    expect(await readRecordHead(sql, seedChainId)).toMatchObject({ blockNumber: lowered })
    expect(await dropBlock(sql, seedChainId, stays)).toBe(1)
    expect(await readRecordHead(sql, seedChainId)).toMatchObject({ blockNumber: lowered })
  })

  test('default: each block becomes confirmed once and final once', async () => {
    const [low, high] = [newBlock(), newBlock()]
    await record(await useOf(await seed(), 0, high), await useOf(await seed(), 0, low))
    const [one, other] = [low, high].map(({ blockNumber, blockHash }) => ({ blockNumber, blockHash }))
    if (!one || !other) throw new Error('no blocks')
    const unconfirmed = async (safe: bigint) =>
      (await readUnconfirmedBlocks(sql, seedChainId, safe, 100)).filter(
        ({ blockNumber }) => blockNumber >= one.blockNumber,
      )
    expect(await unconfirmed(one.blockNumber)).toEqual([one])
    expect(await unconfirmed(other.blockNumber)).toEqual([one, other])
    expect(await readToldBlock(sql, seedChainId)).toBeLessThan(one.blockNumber)

    expect(await setConfirmed(sql, seedChainId, { ...other, blockHash: randomHex(32) }, new Date())).toBe(
      false,
    )
    expect(await setConfirmed(sql, seedChainId, one, new Date())).toBe(true)
    expect(await setConfirmed(sql, seedChainId, one, new Date())).toBe(false)
    expect(await unconfirmed(other.blockNumber)).toEqual([other])
    expect(await readToldBlock(sql, seedChainId)).toBe(one.blockNumber)
    expect(await setConfirmed(sql, seedChainId, other, new Date())).toBe(true)
    const confirmed = (range: { above?: bigint; below?: bigint }, limit = 10) =>
      readConfirmedBlocks(sql, seedChainId, { ...range, limit })
    expect(await confirmed({}, 1)).toEqual([other])
    expect(await confirmed({ above: one.blockNumber - 1n })).toEqual([other, one])
    expect(await confirmed({ above: one.blockNumber })).toEqual([other])
    expect(await confirmed({ above: one.blockNumber - 1n, below: other.blockNumber })).toEqual([one])

    const young = async () => (await readYoungBlocks(sql, seedChainId)).slice(-2)
    expect(await young()).toEqual([one, other])
    await setFinal(sql, seedChainId, one)
    expect((await young()).at(-1)).toEqual(other)
    expect(await young()).not.toContainEqual(one)
    await setFinal(sql, seedChainId, one, false)
    expect(await young()).toEqual([one, other])
  })
})

test('default: looks for an unknown use of an authorization until it is found', async () => {
  const payment = await seed()
  const { paymentId } = payment
  await deferPayments(sql, [paymentId], new Date(Date.now() + 60_000))
  await requestLookups(sql, [paymentId], new Date())
  await requestLookups(sql, [paymentId, newId('pay')], new Date())
  await requestLookups(sql, [], new Date())
  const asked = async () =>
    (await readLookupRequests(sql, seedChainId, 10)).map(({ nonce, paymentId: id }) => [id, nonce])
  expect((await asked()).sort()).toEqual(payment.nonces.map((nonce) => [paymentId, nonce]).sort())
  await recordEvents(sql, scope, [await useOf(payment, 0)], 'lookup')
  expect(await asked()).toEqual([[paymentId, payment.nonces[1]]])
  expect(await readExplained(sql, seedChainId, 10)).toEqual([])
  // The index shows the use before the keeper's look-up finds it.
  await recordEvents(sql, scope, [await useOf(payment, 1)], 'index')
  expect(await asked()).toEqual([])
  expect(await readExplained(sql, seedChainId, 10)).toEqual([paymentId])
  await endLookups(sql, [paymentId])
  await wakeDeferred(sql, [paymentId])
  expect(await asked()).toEqual([])
  const [row] = await sql`select stage, next_at from queue where payment_id = ${paymentId}`
  expect(row).toEqual({ stage: 'waiting', next_at: null })
})
