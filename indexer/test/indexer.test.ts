import { readFile } from 'node:fs/promises'
import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { encodeSettleAuthorizations, triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { encodeSplit, splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import { type TabLine, toWord } from '@tollkeeper/sdk/protocol/tab'
import {
  encodeFunctionData,
  erc20Abi,
  type Hex,
  keccak256,
  multicall3Abi,
  type TransactionReceipt,
  zeroHash,
} from 'viem'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { multicall3Address } from '../../apps/devstack/chain/prepareChain.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import {
  indexedBlock,
  platformWallet,
  providerA,
  providerB,
  startTestChain,
  startTestIndexer,
  type TestChain,
  type TestIndex,
  until,
} from './harness.ts'
import { codeThatCalls, codeThatLogs } from './hostileCode.ts'

let chain: TestChain
let index: TestIndex

beforeAll(async () => {
  chain = await startTestChain()
  index = await startTestIndexer(await createTestDatabase(), [chain])
})

afterAll(async () => {
  await index?.close()
  await chain?.close()
})

const chainId = 31337

/** Reads the indexed rows of a transaction through the readers' views. */
async function readTransaction({ transactionHash, blockNumber }: TransactionReceipt) {
  await index.untilIndexed(chainId, blockNumber)
  const { sql } = index
  return {
    authorizations: await sql`
      select * from indexer.authorization where tx_hash = ${transactionHash} order by log_index`,
    batches: await sql`select * from indexer.batch where tx_hash = ${transactionHash} order by log_index`,
    recipients: await sql`
      select * from indexer.batch_recipient where tx_hash = ${transactionHash} order by log_index, recipient`,
    indexGap: await sql`select * from indexer.index_gap where tx_hash = ${transactionHash}`,
  }
}

async function walletOf(address: string) {
  const [row] = await index.sql`
    select count(*)::integer as payment_count, coalesce(sum(value), 0) as total,
      count(distinct (tx_hash, batch_log_index)) filter (where batch_log_index is not null)::integer as batch_count
    from indexer.authorization where recipient = ${address} and state = 'used'`
  return row as { payment_count: number; total: bigint; batch_count: number }
}

function encodeMulticall(calls: readonly { target: Hex; callData: Hex }[]): Hex {
  return encodeFunctionData({
    abi: multicall3Abi,
    functionName: 'aggregate3',
    args: [calls.map((call) => ({ ...call, allowFailure: false }))],
  })
}

function throughMulticall(calls: readonly { target: Hex; callData: Hex }[]): Promise<TransactionReceipt> {
  return chain.send(multicall3Address, encodeMulticall(calls))
}

/** Deploys a "token" that makes these calls on a transfer, and transfers nothing itself. */
async function callingToken(calls: readonly { target: Hex; callData: Hex }[]): Promise<Hex> {
  const bytecode = codeThatCalls(multicall3Address, encodeMulticall(calls))
  const address = keccak256(bytecode).slice(0, 42) as Hex
  await chain.client.setCode({ address, bytecode })
  return address
}

test('default: indexes a batch, its authorizations and the sums that each wallet received', async () => {
  const buyer = await chain.createBuyer()
  const before = { a: await walletOf(providerA), b: await walletOf(providerB) }
  const items = [
    await chain.signPayment(buyer, providerA, 9_500n, 500n),
    await chain.signPayment(buyer, providerB, 19_000n, 1_000n),
    await chain.signPayment(buyer, providerA, 4_500n, 500n),
  ]
  const receipt = await chain.settle(items)
  const { authorizations, batches, recipients, indexGap } = await readTransaction(receipt)

  const block = await chain.client.getBlock({ blockHash: receipt.blockHash })
  const place = {
    chain_id: chainId,
    tx_hash: receipt.transactionHash,
    block_number: receipt.blockNumber,
    block_time: block.timestamp,
  }
  const batchLogIndex = receipt.logs.at(-1)?.logIndex
  expect(authorizations).toEqual(
    items
      .flatMap(({ authorization, fee }) => [authorization, fee])
      .map(({ from, to, value, nonce }, i) => ({
        ...place,
        block_hash: receipt.blockHash,
        token: chain.usdc,
        authorizer: from,
        nonce,
        state: 'used',
        recipient: to,
        value,
        log_index: 2 * i,
        batch_log_index: batchLogIndex,
        tab: null,
      })),
  )
  expect(batches).toEqual([
    {
      ...place,
      block_hash: receipt.blockHash,
      log_index: batchLogIndex,
      sequence: 1,
      batch_id: receipt.logs.at(-1)?.topics[1],
      keeper: chain.sender,
      token: chain.usdc,
      trigger: 1,
      authorizations: 6,
      payment_count: 3,
      provider_total: 33_000n,
      fee_total: 2_000n,
      outcomes: '0x111111',
      gas_used: receipt.gasUsed,
      effective_gas_price: receipt.effectiveGasPrice,
      l1_fee: null,
    },
  ])
  const ofBatch = { ...place, log_index: batchLogIndex, sequence: 1 }
  expect(recipients).toEqual([
    { ...ofBatch, recipient: providerA, payment_count: 2, total: 14_000n },
    { ...ofBatch, recipient: providerB, payment_count: 1, total: 19_000n },
    { ...ofBatch, recipient: platformWallet, payment_count: 3, total: 2_000n },
  ])
  expect(indexGap).toEqual([])

  expect(await walletOf(providerA)).toEqual({
    payment_count: before.a.payment_count + 2,
    total: before.a.total + 14_000n,
    batch_count: before.a.batch_count + 1,
  })
  expect(await walletOf(providerB)).toMatchObject({ total: before.b.total + 19_000n })

  const gasCost = receipt.gasUsed * receipt.effectiveGasPrice
  const [keeper] = await index.sql`select * from indexer.keeper_day where address = ${chain.sender}`
  expect(keeper).toEqual({
    chain_id: chainId,
    day: place.block_time - (place.block_time % 86_400n),
    address: chain.sender,
    batch_count: 1,
    payment_count: 3,
    total: 35_000n,
    gas_used: receipt.gasUsed,
    gas_cost: gasCost,
    last_block_time: place.block_time,
  })
})

async function askGraphql(query: string | undefined, variables = {}): Promise<unknown> {
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ query, variables })
  return (await fetch(`${index.url}/graphql`, { method: 'POST', headers, body })).json()
}

test('default: GraphQL pages through batches and returns their contents', async () => {
  const buyer = await chain.createBuyer()
  for (const amount of [100n, 200n, 300n]) {
    const receipt = await chain.settle([await chain.signPayment(buyer, providerA, amount, 10n)])
    await index.untilIndexed(chainId, receipt.blockNumber)
  }
  const ask = async (after: string | null) => {
    const query = `query ($after: String) {
      batchs(orderBy: "sequence", orderDirection: "desc", limit: 2, after: $after) {
        items { sequence providerTotal items { items { authorizer value } } }
        pageInfo { hasNextPage endCursor }
      }
    }`
    const { data } = (await askGraphql(query, { after })) as {
      data: {
        batchs: {
          items: { sequence: number; providerTotal: string; items: { items: unknown[] } }[]
          pageInfo: { hasNextPage: boolean; endCursor: string }
        }
      }
    }
    return data.batchs
  }
  const first = await ask(null)
  const second = await ask(first.pageInfo.endCursor)
  expect(first.items.map(({ providerTotal }) => providerTotal)).toEqual(['300', '200'])
  expect(first.items[0]?.items.items).toHaveLength(2)
  expect(second.items[0]?.providerTotal).toBe('100')
})

test('default: answers every query of docs/indexer.md', async () => {
  const text = await readFile(new URL('../../docs/indexer.md', import.meta.url), 'utf8')
  const queries = [...text.matchAll(/^```graphql\n([\s\S]*?)^```$/gm)].map(([, query]) => query)
  expect(queries.length).toBeGreaterThan(4)
  for (const query of queries) {
    expect(await askGraphql(query)).toEqual({ data: expect.anything() })
  }
  const [, head] = /^```sql\n([\s\S]*?)^```$/m.exec(text) ?? []
  const rows = await index.sql.unsafe((head ?? '').replace('8453', String(chainId)))
  expect(rows).toEqual([{ block: expect.any(BigInt), time: expect.any(BigInt) }])
})

describe('transactions of strangers', () => {
  test('behavior: finds a fee that was sent to USDC directly, but not the provider’s authorization, which the keeper finds', async () => {
    const buyer = await chain.createBuyer()
    const { authorization, fee } = await chain.signPayment(buyer, providerA, 9_500n, 500n)
    const halves = [
      await chain.send(chain.usdc, chain.encodeTransfer(authorization)),
      await chain.send(chain.usdc, chain.encodeTransfer(fee)),
    ] as const
    expect((await readTransaction(halves[0])).authorizations).toEqual([])
    const { authorizations, batches } = await readTransaction(halves[1])
    expect(authorizations).toMatchObject([
      { nonce: fee.nonce, recipient: platformWallet, value: 500n, batch_log_index: null },
    ])
    expect(batches).toEqual([])
  })

  test('behavior: if a wrapper contract sends payments in one transaction, records each authorization once and counts each payment once', async () => {
    const buyer = await chain.createBuyer()
    const before = await walletOf(providerB)
    const items = [
      await chain.signPayment(buyer, providerB, 9_500n, 500n),
      await chain.signPayment(buyer, providerB, 95n, 5n),
    ]
    const receipt = await throughMulticall(
      items
        .flatMap(({ authorization, fee }) => [authorization, fee])
        .map((half) => ({ target: chain.usdc, callData: chain.encodeTransfer(half) })),
    )
    const { authorizations } = await readTransaction(receipt)
    expect(authorizations.map((row) => row.batch_log_index)).toEqual([null, null, null, null])
    const after = await walletOf(providerB)
    expect(after.total - before.total).toBe(9_595n)
    expect(after.payment_count - before.payment_count).toBe(2)
  })

  test('behavior: distinguishes two batches, another token and direct authorizations in one transaction', async () => {
    const buyer = await chain.createBuyer()
    const pay = (amount: bigint) => chain.signPayment(buyer, providerA, amount, 1n)
    const [direct, one, two, other, last] = await Promise.all([pay(1n), pay(2n), pay(3n), pay(4n), pay(5n)])
    const before = await walletOf(providerA)

    // A "token" that accepts every call and transfers nothing: its code is STOP.
    const token: Hex = '0x00000000000000000000000000000000000070ce'
    await chain.client.setCode({ address: token, bytecode: '0x00' })

    const receipt = await throughMulticall([
      { target: chain.usdc, callData: chain.encodeTransfer(direct.authorization) },
      { target: chain.batchSettlement, callData: chain.encodeSettle([one]) },
      { target: chain.usdc, callData: chain.encodeTransfer(last.fee) },
      { target: chain.batchSettlement, callData: chain.encodeSettle([other], token) },
      { target: chain.batchSettlement, callData: chain.encodeSettle([two]) },
      { target: chain.usdc, callData: chain.encodeTransfer(last.authorization) },
    ])
    const { authorizations, batches, recipients, indexGap } = await readTransaction(receipt)
    const [first, second] = batches
    expect(batches).toHaveLength(2)
    expect(authorizations.map((row) => [row.value, row.batch_log_index])).toEqual([
      [1n, null],
      [2n, first?.log_index],
      [1n, first?.log_index],
      [1n, null],
      [3n, second?.log_index],
      [1n, second?.log_index],
      [5n, null],
    ])
    expect(batches).toMatchObject([
      { authorizations: 2, payment_count: 1, provider_total: 2n, fee_total: 1n },
      { authorizations: 2, payment_count: 1, provider_total: 3n, fee_total: 1n },
    ])
    expect(second?.sequence).toBe(first?.sequence + 1)
    expect(recipients).toHaveLength(4)
    expect(indexGap).toEqual([])
    expect((await walletOf(providerA)).total - before.total).toBe(11n)

    // The transaction's gas counts once, although it has two batches.
    const [keeper] =
      await index.sql`select * from indexer.keeper_day where address = ${multicall3Address.toLowerCase()}`
    expect(keeper).toMatchObject({ batch_count: 2, gas_used: receipt.gasUsed })
  })

  test('behavior: an authorization that was used before its batch settled does not belong to the batch', async () => {
    const buyer = await chain.createBuyer()
    const item = await chain.signPayment(buyer, providerA, 9_500n, 500n)
    await chain.send(chain.usdc, chain.encodeTransfer(item.authorization))
    const receipt = await chain.settle([item])
    const { authorizations, batches, recipients } = await readTransaction(receipt)
    expect(batches).toMatchObject([
      { outcomes: '0x21', authorizations: 1, payment_count: 1, provider_total: 0n, fee_total: 500n },
    ])
    expect(authorizations).toMatchObject([{ nonce: item.fee.nonce }])
    expect(recipients).toMatchObject([{ recipient: platformWallet, total: 500n }])
  })

  test('behavior: records a cancellation in the same transaction as a fee, but does not count it as a payment', async () => {
    const buyer = await chain.createBuyer()
    const { authorization, fee } = await chain.signPayment(buyer, providerA, 9_500n, 500n)
    const receipt = await throughMulticall([
      { target: chain.usdc, callData: await chain.cancel(buyer, authorization.nonce) },
      { target: chain.usdc, callData: chain.encodeTransfer(fee) },
    ])
    const { authorizations } = await readTransaction(receipt)
    expect(authorizations).toMatchObject([
      { nonce: authorization.nonce, state: 'cancelled', recipient: null, value: null },
      { nonce: fee.nonce, state: 'used' },
    ])
  })

  test('behavior: records everything, even if a hostile token calls USDC and settle during its own settlement', async () => {
    const buyer = await chain.createBuyer()
    const pay = (amount: bigint) => chain.signPayment(buyer, providerA, amount, 1n)
    const [direct, settled, lure, alone] = await Promise.all([pay(10n), pay(20n), pay(30n), pay(40n)])
    const settleLure = (token: Hex) =>
      chain.send(
        chain.batchSettlement,
        chain.encodeSettle([{ authorization: lure.authorization }], token, 2_000_000n),
      )
    const before = await walletOf(providerA)

    const withBatch = await callingToken([
      { target: chain.usdc, callData: chain.encodeTransfer(direct.authorization) },
      { target: chain.batchSettlement, callData: chain.encodeSettle([settled]) },
      { target: chain.usdc, callData: chain.encodeTransfer(direct.fee) },
    ])
    const first = await readTransaction(await settleLure(withBatch))
    expect(first.batches).toMatchObject([{ authorizations: 2, provider_total: 20n, fee_total: 1n }])
    expect(first.authorizations.map((row) => [row.value, row.batch_log_index])).toEqual([
      [10n, null],
      [20n, first.batches[0]?.log_index],
      [1n, first.batches[0]?.log_index],
      [1n, null],
    ])

    const withoutBatch = await callingToken(
      [alone.authorization, alone.fee].map((half) => ({
        target: chain.usdc,
        callData: chain.encodeTransfer(half),
      })),
    )
    const second = await readTransaction(await settleLure(withoutBatch))
    expect(second.batches).toEqual([])
    expect(second.authorizations.map((row) => [row.value, row.batch_log_index])).toEqual([
      [40n, null],
      [1n, null],
    ])
    expect([...first.indexGap, ...second.indexGap]).toEqual([])
    const after = await walletOf(providerA)
    expect([after.total - before.total, after.batch_count - before.batch_count]).toEqual([70n, 1])
  })

  test('behavior: ignores another contract’s copies of the events, even next to a real batch', async () => {
    const buyer = await chain.createBuyer()
    const real = await chain.settle([await chain.signPayment(buyer, providerA, 9_500n, 500n)])
    const forger: Hex = '0x000000000000000000000000000000000000f0f0'
    await chain.client.setCode({ address: forger, bytecode: codeThatLogs(real.logs) })
    const item = await chain.signPayment(buyer, providerA, 70n, 1n)
    const receipt = await throughMulticall([
      { target: forger, callData: '0x' },
      { target: chain.batchSettlement, callData: chain.encodeSettle([item]) },
      { target: forger, callData: '0x' },
    ])
    expect(receipt.logs).toHaveLength(3 * real.logs.length)
    const { authorizations, batches, indexGap } = await readTransaction(receipt)
    expect(batches).toMatchObject([{ authorizations: 2, provider_total: 70n, fee_total: 1n }])
    expect(authorizations.map(({ nonce }) => nonce)).toEqual([item.authorization.nonce, item.fee.nonce])
    expect(indexGap).toEqual([])
  })
})

describe('the index follows the chain', () => {
  test('behavior: the checkpoint advances with every block, even an empty one', async () => {
    for (let i = 0; i < 3; i++) {
      await chain.client.mine({ blocks: 1 })
      const head = await chain.client.getBlockNumber()
      await until(async () => (await indexedBlock(index.sql, chainId)) === head)
    }
  })

  test('behavior: triggers run once per insert statement instead of once per row, so a full block runs few triggers', async () => {
    const perRow = await index.sql`
      select c.relname as table, t.tgname as trigger
      from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
      where n.nspname like 'indexer%' and not t.tgisinternal and t.tgtype & 1 = 1 and t.tgtype & 4 = 4`
    expect([...perRow]).toEqual([])
    const inserted =
      await index.sql`select from pg_trigger where tgname = 'reorg_inserted' and tgtype & 4 = 4`
    expect(inserted.length).toBeGreaterThan(0)
  })

  test('behavior: a reorg removes a batch, and the batch is indexed with its new block when it is mined again', async () => {
    const buyer = await chain.createBuyer()
    const item = await chain.signPayment(buyer, providerA, 9_500n, 500n)
    const kept = await chain.settle([await chain.signPayment(buyer, providerA, 1n, 1n)])
    const sequence = (await readTransaction(kept)).batches[0]?.sequence
    const before = await walletOf(providerA)

    const request = await chain.client.prepareTransactionRequest({
      to: chain.batchSettlement,
      data: chain.encodeSettle([item]),
      gas: 1_000_000n,
    })
    const raw = await chain.client.signTransaction(request)
    const snapshot = await chain.client.snapshot()
    await chain.client.sendRawTransaction({ serializedTransaction: raw })
    const gone = await chain.client.waitForTransactionReceipt({ hash: keccak256(raw) })
    expect((await readTransaction(gone)).batches).toMatchObject([{ sequence: sequence + 1 }])

    await chain.client.revert({ id: snapshot })
    await chain.client.mine({ blocks: 1 })
    await chain.client.mine({ blocks: 1 })
    await until(async () => (await readTransaction(gone)).batches.length === 0)
    // If the chain's head first seems to move back, Ponder reverts one block too many. It reads that block again together with the next block.
    await vi.waitFor(async () => expect(await walletOf(providerA)).toEqual(before), { timeout: 240_000 })

    // Mine the same transaction again, but after another one in the block. The hash is the same, but the log positions aren't, so
    // anything that is cached by the hash is wrong now.
    await chain.client.setAutomine(false)
    const other = await chain.signPayment(buyer, providerB, 1n, 1n)
    const otherHash = await chain.client.sendTransaction({
      account: devAccount(2),
      to: chain.usdc,
      data: chain.encodeTransfer(other.authorization),
      gas: 1_000_000n,
      maxPriorityFeePerGas: 10n ** 11n, // first in its block
    })
    await chain.client.sendRawTransaction({ serializedTransaction: raw })
    await chain.client.mine({ blocks: 1 })
    await chain.client.setAutomine(true)
    const again = await chain.client.waitForTransactionReceipt({ hash: gone.transactionHash })
    const ahead = await chain.client.waitForTransactionReceipt({ hash: otherHash })
    expect([ahead.blockHash, ahead.transactionIndex]).toEqual([again.blockHash, 0])
    expect(again.blockHash).not.toBe(gone.blockHash)
    const { authorizations, batches, indexGap } = await readTransaction(again)
    const batchLogIndex = again.logs.at(-1)?.logIndex
    expect(batches).toMatchObject([
      {
        sequence: sequence + 1,
        log_index: batchLogIndex,
        block_hash: again.blockHash,
        authorizations: 2,
        effective_gas_price: again.effectiveGasPrice,
      },
    ])
    expect(authorizations).toMatchObject([
      { nonce: item.authorization.nonce, block_hash: again.blockHash, batch_log_index: batchLogIndex },
      { nonce: item.fee.nonce, block_hash: again.blockHash, batch_log_index: batchLogIndex },
    ])
    expect(indexGap).toEqual([])
  })
})

describe('tabs', () => {
  const line = (provider: Hex, amount: bigint): TabLine => ({
    split: encodeSplit({ provider, providerShare: 19n, platformShare: 1n }),
    amount,
  })
  const hex = (value: number | bigint, bytes: number) => value.toString(16).padStart(2 * bytes, '0')
  /** Returns a tab's state in the form of the index. The reward is a tenth of the platform's part. */
  const packed = (platform: Hex, sequence: number, lines: readonly TabLine[]) =>
    [
      platform + hex(1_000, 2) + hex(sequence, 5),
      ...lines.map(({ split, amount }) => toWord(split).slice(2) + hex(amount, 6)),
    ].join('')

  test('behavior: a settled state has the platform that its payer signed, even if the payer signed its own address', async () => {
    const buyer = await chain.createBuyer()
    const own = buyer.address.toLowerCase() as Hex
    const tab = await chain.signTab(buyer, 5, [line(providerA, 4_000n)], own)
    const { authorizations, recipients } = await readTransaction(await chain.settleTabs([tab], own))
    expect(authorizations.map((row) => row.tab)).toEqual([packed(own, 5, tab.lines)])
    expect(recipients.map((row) => row.recipient).toSorted()).toEqual(
      [own, providerA, chain.sender].toSorted(),
    )
  })

  test('default: indexes a batch of tabs, their settled states and the recipients, and a reorg removes them', async () => {
    const [one, other] = [await chain.createBuyer(), await chain.createBuyer()]
    const tabs = [
      await chain.signTab(one, 3, [line(providerA, 100n), line(providerB, 200n)]),
      await chain.signTab(other, 1, [line(providerA, 4_000n)]),
    ]
    const snapshot = await chain.client.snapshot()
    const receipt = await chain.settleTabs(tabs)
    const { authorizations, batches, recipients, indexGap } = await readTransaction(receipt)
    const batchLogIndex = receipt.logs.at(-1)?.logIndex
    expect(authorizations.map((row) => [row.recipient, row.value, row.tab, row.batch_log_index])).toEqual(
      tabs.map(({ sequence, lines }) => [
        chain.tabSettlement,
        lines.reduce((sum, { amount }) => sum + amount, 0n),
        packed(platformWallet, sequence, lines),
        batchLogIndex,
      ]),
    )
    expect(batches).toMatchObject([
      { keeper: chain.sender, authorizations: 2, payment_count: 2, provider_total: 4_085n, fee_total: 215n },
    ])
    // The reward is a tenth of the platform's part.
    expect(recipients.map((row) => [row.recipient, row.payment_count, row.total]).toSorted()).toEqual(
      [
        [platformWallet, 2, 194n],
        [providerA, 2, 3_895n],
        [providerB, 1, 190n],
        [chain.sender, 2, 21n],
      ].toSorted(),
    )
    expect(indexGap).toEqual([])

    await chain.client.revert({ id: snapshot })
    await chain.client.mine({ blocks: 3 })
    await until(async () => (await readTransaction(receipt)).authorizations.length === 0)
    expect((await readTransaction(receipt)).batches).toEqual([])
  })
})

describe('splitters', () => {
  const terms = { provider: providerA, platform: platformWallet, providerShare: 19n, platformShare: 1n }
  const split = encodeSplit(terms)
  const splitterOf = () => splitterAddress({ ...terms, factory: chain.splitterFactory })
  const sweepData = (splits: bigint[]) =>
    encodeFunctionData({
      abi: splitterFactoryAbi,
      functionName: 'sweep',
      args: [chain.usdc, platformWallet, splits],
    })

  /** Settles one authorization to the splitter. */
  async function pay(splits: bigint[], value = 20_000n): Promise<TransactionReceipt> {
    const single = await chain.signSingle(await chain.createBuyer(), splitterOf(), value)
    const batch = { token: chain.usdc, feeRecipient: platformWallet, batchId: zeroHash }
    const sweep = { factory: chain.splitterFactory, gasLimit: 400_000n, splits }
    const { calldata } = encodeSettleAuthorizations(
      { ...batch, trigger: triggerCodes.count, callGasLimit: 200_000n },
      [single],
      sweep,
    )
    return chain.send(chain.batchSettlement, calldata)
  }

  async function payoutsOf({ transactionHash, blockNumber }: TransactionReceipt) {
    await index.untilIndexed(chainId, blockNumber)
    return index.sql`select * from indexer.payout where tx_hash = ${transactionHash} order by log_index`
  }

  const paid = (units: bigint) => ({
    splitter: splitterOf(),
    platform_recipient: platformWallet,
    platform_amount: units,
    provider: providerA,
    provider_amount: 19n * units,
  })

  test('default: indexes a payout in the batch’s transaction next to the batch’s single authorization', async () => {
    const receipt = await pay([split])
    expect(await payoutsOf(receipt)).toMatchObject([paid(1_000n)])
    expect((await readTransaction(receipt)).authorizations).toMatchObject([
      { recipient: splitterOf(), value: 20_000n },
    ])
  })

  test('behavior: if a stranger sweeps a splitter later, a reorg of the sweep removes the payout but not the payment', async () => {
    const settled = await pay([])
    expect(await payoutsOf(settled)).toEqual([])
    const snapshot = await chain.client.snapshot()
    const swept = await throughMulticall([
      {
        target: chain.splitterFactory,
        callData: sweepData([encodeSplit({ ...terms, providerShare: 9n }), split]),
      },
      { target: chain.splitterFactory, callData: sweepData([split]) },
    ])
    expect(await payoutsOf(swept)).toMatchObject([paid(1_000n)])
    await chain.client.revert({ id: snapshot })
    await chain.client.mine({ blocks: 1 })
    await chain.client.mine({ blocks: 1 })
    await until(async () => (await payoutsOf(swept)).length === 0)
    await until(async () => (await readTransaction(settled)).authorizations.length === 1)
  })

  test('behavior: a transfer of 0 on behalf of a splitter does not count as a payout', async () => {
    const move = (to: Hex) => ({
      target: chain.usdc,
      callData: encodeFunctionData({
        abi: erc20Abi,
        functionName: 'transferFrom',
        args: [splitterOf(), to, 0n],
      }),
    })
    const receipt = await throughMulticall([move(platformWallet), move(providerA)])
    expect(receipt.logs).toHaveLength(2)
    expect(await payoutsOf(receipt)).toEqual([])
  })
})
