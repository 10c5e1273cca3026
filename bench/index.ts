// Measures how fast existing blocks are indexed: Ponder with our handlers, compared with a plain loop on the same chain in the same run.

import { pipeline } from 'node:stream/promises'
import { readReceipt } from '@tollkeeper/indexer/src/receipt'
import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { encodeSettle, type SettlementItem } from '@tollkeeper/sdk/protocol/batchSettlement'
import { feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import { createPublicClient, getAbiItem, http, keccak256, toHex } from 'viem'
import { startChaosRpc } from '../test/support/chaosRpc.ts'
import { type Buyer, createAuthorizer, platform, payees as providers } from './data/signPayments.ts'
import { type BenchEnv, findPostmaster, openBenchEnv, openSender } from './support/benchEnv.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import { atLeast, atMost, type Goals } from './support/goals.ts'
import { inTurns, mediansOf, round2, type Say, spread } from './support/statistics.ts'

const authorizationsPerBatch = 150

/** Calls that aren't counted: Ponder makes them for any handlers, and the launcher reads the head until the index has caught up. */
const blockAndLogMethods = /^eth_(chainId|blockNumber|getBlockBy(Number|Hash)|getLogs)$/

export const options = { authorizations: 20_000, lanes: 16, runs: 5 }

export const figures = () => [
  'authorizationsPerSecond',
  'ponderCpuMsPerBatch',
  'postgresCpuMsPerBatch',
  'nodeCpuMsPerBatch',
  'rawLoopPerSecond',
  'ratioToLoop',
  'ratioToLoopSpread',
  'rpcCallsPerBatch',
]

export const goals = (): Goals => ({
  ratioToLoop: atLeast(0.45),
  rpcCallsPerBatch: atMost(1.05),
})

export async function run({ authorizations, lanes, runs: count }: typeof options, say: Say): Promise<object> {
  const batches = Math.ceil(authorizations / authorizationsPerBatch)
  await using benchEnv = await openBenchEnv()
  const { chain, postgres: server } = benchEnv
  say(`settling ${batches} batches of ${authorizationsPerBatch} authorizations`)
  await fill(benchEnv, batches)
  const postgresPid = await findPostmaster(benchEnv.open(server.url, 1))
  const measure = (name: string, nodeUrl = chain.url) =>
    measureIndexer(benchEnv, { name, batches, lanes, postgresPid, nodeUrl })
  // Count the handlers' calls to the node in a separate run, which isn't timed, because the proxy takes time.
  await using proxy = await startChaosRpc({ target: chain.url })
  await measure('counted', proxy.url)
  const calls = proxy.calls.filter(({ method }) => !blockAndLogMethods.test(method)).length
  const { both: runs } = await inTurns(['both'], { counted: count, say }, async (_, i) => {
    const rawLoopPerSecond = await measureLoop(benchEnv, await server.createDatabase(`loop_${i}`))
    const ours = await measure(`index_${i}`)
    const ratioToLoop = round2(ours.authorizationsPerSecond / rawLoopPerSecond)
    return { ...ours, rawLoopPerSecond, ratioToLoop }
  })
  return {
    ...mediansOf(runs),
    ratioToLoopSpread: spread(runs.map(({ ratioToLoop }) => ratioToLoop)),
    rpcCallsPerBatch: round2(calls / batches),
  }
}

/** Settles batches on the chain, and then mines blocks until all batches are final for Ponder. */
async function fill({ chain, deployment, fundBuyers }: BenchEnv, batches: number): Promise<void> {
  const { usdc, batchSettlement } = deployment
  const buyers = await fundBuyers(50)
  const client = openSender(chain)
  const authorize = createAuthorizer(usdc)
  // The validity includes any block time, because the batches move the chain's clock.
  const window = { validAfter: 0n, validBefore: 4_000_000_000n }
  const terms = { token: usdc, feeRecipient: platform, trigger: 1, callGasLimit: 200_000n }
  for (let batch = 0; batch < batches; batch++) {
    const items = Array.from({ length: authorizationsPerBatch / 2 }, (_, i): SettlementItem => {
      const buyer = buyers[i % buyers.length] as Buyer
      const payee = providers[(batch + i) % providers.length] ?? platform
      const nonce = keccak256(toHex(`${batch} ${i}`))
      return {
        authorization: authorize(buyer, payee, 9_500n, nonce, window),
        fee: authorize(buyer, platform, 500n, feeNonce(nonce), window),
      }
    })
    const batchId = keccak256(toHex(batch))
    const { calldata } = encodeSettle({ ...terms, batchId }, items)
    const hash = await client.sendTransaction({ to: batchSettlement, data: calldata, gas: 16_000_000n })
    await client.waitForTransactionReceipt({ hash })
  }
  for (let i = 0; i < 35; i++) await client.mine({ blocks: 1 })
}

/** Measures the minimum work of any indexer: it fetches the batches' logs and receipts, reads them and writes the rows. */
async function measureLoop(benchEnv: BenchEnv, databaseUrl: string): Promise<number> {
  const { usdc, batchSettlement, tabSettlement } = benchEnv.deployment
  const client = createPublicClient({ transport: http(benchEnv.chain.url) })
  const sql = benchEnv.open(databaseUrl, 1)
  await sql`create table public.authorization_copy (authorizer text, nonce text, recipient text, value numeric(78, 0),
    tx_hash text, log_index integer, block_number numeric(78, 0), primary key (authorizer, nonce))`
  const start = performance.now()
  const logs = await client.getLogs({
    address: batchSettlement,
    event: getAbiItem({ abi: batchSettlementAbi, name: 'BatchSettled' }),
    args: { token: usdc },
    fromBlock: 0n,
  })
  const lines: string[] = []
  const addresses = { settlement: batchSettlement, tabSettlement, token: usdc, platforms: [platform] }
  for (const { transactionHash } of logs) {
    const receipt = await client.request({ method: 'eth_getTransactionReceipt', params: [transactionHash] })
    if (receipt === null) throw new Error(`no receipt of ${transactionHash}`)
    const block = BigInt(receipt.blockNumber)
    const { entries } = readReceipt(receipt.logs as Parameters<typeof readReceipt>[0], addresses)
    for (const { authorizer, nonce, recipient, value, logIndex } of entries) {
      const columns = [authorizer, nonce, recipient, value, transactionHash, logIndex, block]
      lines.push(`${columns.join('\t')}\n`)
    }
  }
  await pipeline([lines.join('')], await sql`copy public.authorization_copy from stdin`.writable())
  const seconds = (performance.now() - start) / 1000
  return Math.round(lines.length / seconds)
}

type IndexRun = { name: string; batches: number; lanes: number; postgresPid: number; nodeUrl: string }

/** Measures one run of the indexer. @param run.nodeUrl the URL of the node that Ponder uses */
async function measureIndexer({ chain, postgres, startIndexer, open }: BenchEnv, run: IndexRun) {
  const { name, batches, lanes, postgresPid, nodeUrl } = run
  const databaseUrl = await postgres.createDatabase(name)
  let backfillMs: number | undefined
  const cpuTimes: Promise<number[]>[] = []
  const indexer = await startIndexer(databaseUrl, {
    rpcUrls: { localhost: nodeUrl },
    rpcLanes: lanes,
    logLevel: 'info',
    onLog: (line) => {
      const isOver = line.includes('Completed backfill indexing')
      if (isOver) backfillMs = (JSON.parse(line) as { duration: number }).duration
      if (isOver || line.includes('Started backfill indexing'))
        cpuTimes.push(Promise.all([indexer.pid, postgresPid, chain.pid].map(cpuTimeOfTree)))
    },
  })
  await indexer.ready
  const [{ count }] = await open(databaseUrl, 1)<[{ count: number }]>`
    select count(*)::int from indexer.authorization`
  await indexer.close()
  if (count !== batches * authorizationsPerBatch) throw new Error(`indexed ${count} authorizations`)
  const [before, after] = await Promise.all(cpuTimes)
  if (backfillMs === undefined || !before || !after) throw new Error('Ponder did not report how long it took')
  const [ponder = 0, server = 0, node = 0] = after.map((us, i) => (us - (before[i] ?? 0)) / 1_000 / batches)
  return {
    authorizationsPerSecond: Math.round((count / backfillMs) * 1000),
    ponderCpuMsPerBatch: round2(ponder),
    postgresCpuMsPerBatch: round2(server),
    nodeCpuMsPerBatch: round2(node),
  }
}
