import { encodeFunctionData, type Hex, keccak256, multicall3Abi, numberToHex, parseAbi } from 'viem'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { multicall3Address } from '../../apps/devstack/chain/prepareChain.ts'
import { type ChaosRpc, startChaosRpc } from '../../test/support/chaosRpc.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import {
  platformWallet,
  providerA,
  startTestChain,
  startTestIndexer,
  type TestChain,
  type TestIndex,
  until,
} from './harness.ts'
import { codeThatCalls } from './hostileCode.ts'

const chainId = 31337
let chain: TestChain
let node: ChaosRpc
let index: TestIndex

beforeAll(async () => {
  chain = await startTestChain()
  node = await startChaosRpc({ target: chain.url, delayMs: 80 })
  index = await startTestIndexer(await createTestDatabase(), [{ ...chain, url: node.url }])
})

afterAll(async () => {
  await index?.close()
  await node?.close()
  await chain?.close()
})

const transferAbi = parseAbi(['function transfer(address to, uint256 value)'])
const encodeDust = () =>
  encodeFunctionData({ abi: transferAbi, functionName: 'transfer', args: [platformWallet, 1n] })

type Sent = { to: Hex; data: Hex; gas: bigint }

/** Waits until Ponder has read all blocks. Call it before a revert: otherwise Ponder may keep requesting a block that the revert dropped. */
const untilCaughtUp = async () => index.untilIndexed(chainId, await chain.client.getBlockNumber())

/** Mines transactions in one block, in this order, and returns the calls that the handlers made for it. */
async function indexBlock(transactions: readonly Sent[]) {
  await untilCaughtUp()
  const before = node.calls.length
  await chain.client.setAutomine(false)
  const hashes: Hex[] = []
  for (const transaction of transactions) hashes.push(await chain.client.sendTransaction(transaction))
  await chain.client.mine({ blocks: 1 })
  await chain.client.setAutomine(true)
  const receipts = await Promise.all(hashes.map((hash) => chain.client.getTransactionReceipt({ hash })))
  const [first] = receipts
  if (!first) throw new Error('no transaction')
  expect(receipts.map(({ status, blockNumber }) => [status, blockNumber])).toEqual(
    receipts.map(() => ['success', first.blockNumber]),
  )
  await index.untilIndexed(chainId, first.blockNumber)
  const calls = node.calls.slice(before)
  return {
    hashes,
    receiptCalls: calls.filter(({ method }) => method === 'eth_getTransactionReceipt').length,
    // Ponder's own calls for a block's logs contain no contract address, so they aren't counted.
    logCalls: calls.filter(
      ({ method, params }) => method === 'eth_getLogs' && (params[0] as { address?: unknown }).address,
    ).length,
  }
}

const readRows = (hashes: readonly Hex[]) =>
  index.sql`select nonce, value from indexer.authorization where tx_hash in ${index.sql([...hashes])}
    order by block_number, log_index`

/** Deploys a "token" that sends a unit of real USDC to the platform when it is settled. */
async function createDustToken(): Promise<Hex> {
  const calls = [{ target: chain.usdc, callData: encodeDust(), allowFailure: false }]
  const data = encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [calls] })
  const bytecode = codeThatCalls(multicall3Address, data)
  const address = keccak256(bytecode).slice(0, 42) as Hex
  await chain.client.setCode({ address, bytecode })
  await chain.mintUsdc([multicall3Address], 1_000_000n)
  return address
}

describe('transfers of strangers to the platform cost a bounded number of calls per block', () => {
  test('behavior: dust costs one call per block, and writes no row', async () => {
    await chain.mintUsdc([devAccount(1).address], 1_000_000n)
    node.always('eth_getLogs', 'delay')
    const dust = Array.from({ length: 60 }, () => ({ to: chain.usdc, data: encodeDust(), gas: 100_000n }))
    for (let block = 0; block < 3; block++) {
      const { hashes, ...calls } = await indexBlock(dust)
      expect(calls).toEqual({ receiptCalls: 0, logCalls: 1 })
      expect(await readRows(hashes)).toEqual([])
    }
    node.heal()
  })

  test('behavior: payments sent to USDC directly, mixed with dust, cost one call per block, and each is recorded', async () => {
    const buyer = await chain.createBuyer()
    const payments = await Promise.all(
      Array.from({ length: 8 }, (_, i) => chain.signPayment(buyer, providerA, 9_500n, 500n + BigInt(i))),
    )
    const sent = payments.flatMap(({ fee }) => [
      { to: chain.usdc, data: chain.encodeTransfer(fee), gas: 200_000n },
      { to: chain.usdc, data: encodeDust(), gas: 100_000n },
    ])
    const { hashes, ...calls } = await indexBlock(sent)
    expect(calls).toEqual({ receiptCalls: 0, logCalls: 1 })
    expect(await readRows(hashes)).toEqual(payments.map(({ fee: { nonce, value } }) => ({ nonce, value })))
  })

  test('behavior: settlements of a token that sends dust cost two calls to the node per block', async () => {
    const token = await createDustToken()
    const buyer = await chain.createBuyer()
    const lures = await Promise.all(
      Array.from({ length: 6 }, () => chain.signPayment(buyer, providerA, 1n, 1n)),
    )
    const { hashes, receiptCalls, logCalls } = await indexBlock(
      lures.map(({ authorization }) => ({
        to: chain.batchSettlement,
        data: chain.encodeSettle([{ authorization }], token, 1_000_000n),
        gas: 2_000_000n,
      })),
    )
    expect({ receiptCalls, logCalls }).toEqual({ receiptCalls: 1, logCalls: 1 })
    expect(await readRows(hashes)).toEqual([])
  })

  test('behavior: many batches in one block cost one call for each receipt, and two more calls', async () => {
    const buyer = await chain.createBuyer()
    const batches = await Promise.all(
      Array.from({ length: 10 }, () => chain.signPayment(buyer, providerA, 9_500n, 500n)),
    )
    const { hashes, receiptCalls, logCalls } = await indexBlock(
      batches.map((item) => ({
        to: chain.batchSettlement,
        data: chain.encodeSettle([item]),
        gas: 1_000_000n,
      })),
    )
    expect(receiptCalls).toBe(10)
    expect(logCalls).toBeLessThanOrEqual(2)
    expect(await readRows(hashes)).toHaveLength(20)
    const rows = await index.sql`select count(*)::integer as batches from indexer.batch
      where tx_hash in ${index.sql(hashes)}`
    expect(rows).toEqual([{ batches: 10 }])
  })

  test('behavior: a block without our events causes a query only while a receipt is missing', async () => {
    const countQueries = async () => {
      const metrics = await (await fetch(`${index.url}/metrics`)).text()
      return metrics.match(/^ponder_indexing_store_raw_sql_duration_count\b.*/m)?.[0]
    }
    const before = await countQueries()
    for (let i = 0; i < 5; i++) await chain.client.mine({ blocks: 1 })
    await untilCaughtUp()
    expect(await countQueries()).toBe(before)
  })
})

describe('index gaps are read again automatically', () => {
  const readGaps = () => index.sql`select log_index, reason from indexer.index_gap`
  const readBatch = (hash: Hex) =>
    index.sql`select sequence, authorizations, fee_total from indexer.batch where tx_hash = ${hash}`

  test('behavior: reads a batch once a node has its receipt, and again after a reorg of the block in which the receipt was read', async () => {
    const buyer = await chain.createBuyer()
    const pay = () => chain.signPayment(buyer, providerA, 9_500n, 500n)
    const [last] = await index.sql<{ sequence: number }[]>`
      select coalesce(max(sequence), 0) as sequence from indexer.batch`
    const sequence = (last?.sequence ?? 0) + 1
    node.always('eth_getTransactionReceipt', 'null-receipt')
    const hidden = await chain.settle([await pay(), await pay()])
    await index.untilIndexed(chainId, hidden.blockNumber)
    const missing = { log_index: hidden.logs.at(-1)?.logIndex, reason: 'receipt_unavailable' }
    expect(await readGaps()).toEqual([missing])
    expect(await readBatch(hidden.transactionHash)).toEqual([])

    const snapshot = await chain.client.snapshot()
    node.heal()
    const filled = [{ sequence, authorizations: 4, fee_total: 1_000n }]
    const isFilled = async () => {
      await chain.client.mine({ blocks: 1 })
      await untilCaughtUp()
      return (await readGaps()).length === 0
    }
    await until(isFilled)
    expect(await readBatch(hidden.transactionHash)).toEqual(filled)

    // A reorg drops the block in which the gap was filled, together with the rows that were read there.
    await chain.client.revert({ id: snapshot })
    await chain.createBuyer() // an empty block would have the same hash as the dropped block
    const isFilledAgain = async () => {
      const [row] =
        await index.sql`select block_hash from indexer.batch where tx_hash = ${hidden.transactionHash}`
      return (await isFilled()) && row?.block_hash === hidden.blockHash
    }
    await until(isFilledAgain)
    expect(await readBatch(hidden.transactionHash)).toEqual(filled)
    expect(await readRows([hidden.transactionHash])).toHaveLength(4)

    // The batch keeps its number.
    const next = await chain.settle([await pay()])
    await index.untilIndexed(chainId, next.blockNumber)
    expect(await readBatch(next.transactionHash)).toMatchObject([{ sequence: sequence + 1 }])
  })

  test('behavior: once a node has the logs of a block, reads a payment that was sent directly to USDC in this block', async () => {
    const buyer = await chain.createBuyer()
    const { fee } = await chain.signPayment(buyer, providerA, 9_500n, 500n)
    const block = numberToHex((await chain.client.getBlockNumber()) + 1n)
    node.always('eth_getLogs', { error: { code: -32000, message: `unknown block ${block}` } })
    const sent = chain.send(chain.usdc, chain.encodeTransfer(fee))
    const { transactionHash, blockNumber } = await sent
    await until(async () => node.calls.some(({ method, fault }) => method === 'eth_getLogs' && fault))
    node.heal()
    await index.untilIndexed(chainId, blockNumber)
    await until(async () => {
      await chain.client.mine({ blocks: 1 })
      await untilCaughtUp()
      return (await readRows([transactionHash])).length === 1
    })
    expect(await readGaps()).toEqual([])
  })
})
