/** How fast the past is indexed: Ponder with our handlers, beside a plain loop on the same chain, in one run. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import postgres from 'postgres'
import { createPublicClient, getAbiItem, http, keccak256, toHex } from 'viem'
import { loopback } from '#process/port'
import { batchSettlementAbi } from '#protocol/abi/batchSettlement'
import { feeNonce } from '#protocol/challenge'
import { encodeSettle, type SettlementItem } from '#protocol/settlement'
import { readReceipt } from '../indexer/src/receipt.ts'
import type { LocalChain } from '../local/chain/startLocalChain.ts'
import { type Buyer, createAuthorizer, createBuyers } from './data/signPayments.ts'
import { cpuTimeOfTree } from './support/cpuTime.ts'
import {
  deploymentOf,
  findPostmasterAt,
  type Ground,
  openGround,
  openSender,
  platform,
  payees as providers,
} from './support/ground.ts'
import { inTurns, medianOf, round2, spread } from './support/statistics.ts'

const authorizationsPerBatch = 150
const buyers = createBuyers(50)

/** What Ponder fetches whatever the handlers do, and the head for which the launcher asks until all is caught up. */
const blockAndLogMethods = [
  'eth_chainId',
  'eth_blockNumber',
  'eth_getBlockByNumber',
  'eth_getBlockByHash',
  'eth_getLogs',
]

export const options = { authorizations: 20_000, lanes: 16, runs: 5 }

export async function run(
  { authorizations, lanes, runs: count }: typeof options,
  say: (line: string) => void,
): Promise<object> {
  const batches = Math.ceil(authorizations / authorizationsPerBatch)
  await using ground = await openGround()
  const { chain, postgres: server } = ground
  say(`settling ${batches} batches of ${authorizationsPerBatch} authorizations`)
  await fill(chain, batches)
  const postgresPid = await findPostmasterAt(server.url)
  const measure = async (name: string, nodeUrl = chain.url) => {
    const databaseUrl = await server.createDatabase(name)
    return measureIndexer(ground, { databaseUrl, batches, lanes, postgresPid, nodeUrl })
  }
  const rpcCallsPerBatch = (await countCalls(chain.url, (url) => measure('counted', url))) / batches
  const { both: runs } = await inTurns(['both'], { counted: count }, async (_, i) => {
    const rawLoopPerSecond = await measureLoop(chain, await server.createDatabase(`loop_${i}`))
    const ours = await measure(`index_${i}`)
    const ratioToLoop = round2(ours.authorizationsPerSecond / rawLoopPerSecond)
    say(JSON.stringify({ ...ours, rawLoopPerSecond, ratioToLoop }))
    return { ...ours, rawLoopPerSecond, ratioToLoop }
  })
  const of = (name: keyof (typeof runs)[number]) => medianOf(runs, (run) => run[name])
  return {
    authorizationsPerSecond: of('authorizationsPerSecond'),
    rawLoopPerSecond: of('rawLoopPerSecond'),
    ratioToLoop: of('ratioToLoop'),
    ratioToLoopSpread: spread(runs.map(({ ratioToLoop }) => ratioToLoop)),
    rpcCallsPerBatch: round2(rpcCallsPerBatch),
    ponderCpuMsPerBatch: of('ponderCpuMsPerBatch'),
    postgresCpuMsPerBatch: of('postgresCpuMsPerBatch'),
    nodeCpuMsPerBatch: of('nodeCpuMsPerBatch'),
  }
}

/** Settles on the chain, then mines on until all of it is final for Ponder. */
async function fill(chain: LocalChain, batches: number): Promise<void> {
  const { usdc, batchSettlement } = deploymentOf(chain)
  await chain.mintUsdc(
    buyers.map(({ address }) => address),
    1_000_000_000n,
  )
  const client = openSender(chain)
  const authorize = createAuthorizer(usdc)
  // Any block's time is within it, however far the fill moves the chain's clock.
  const window = { validAfter: 0n, validBefore: 4_000_000_000n }
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
    const { calldata } = encodeSettle(
      {
        token: usdc,
        feeRecipient: platform,
        batchId: keccak256(toHex(batch)),
        trigger: 1,
        callGasLimit: 200_000n,
      },
      items,
    )
    const hash = await client.sendTransaction({ to: batchSettlement, data: calldata, gas: 16_000_000n })
    await client.waitForTransactionReceipt({ hash })
  }
  for (let i = 0; i < 35; i++) await client.mine({ blocks: 1 })
}

/** What any indexer must do at least: fetch the batches' logs, fetch their receipts, read them, write the rows. */
async function measureLoop(chain: LocalChain, databaseUrl: string): Promise<number> {
  const { usdc, batchSettlement, tabSettlement } = deploymentOf(chain)
  const client = createPublicClient({ transport: http(chain.url) })
  const sql = postgres(databaseUrl, { max: 1 })
  await sql`create table authorization_copy (authorizer text, nonce text, recipient text, value numeric(78, 0),
    tx_hash text, log_index integer, block_number numeric(78, 0), primary key (authorizer, nonce))`
  const start = performance.now()
  const logs = await client.getLogs({
    address: batchSettlement,
    event: getAbiItem({ abi: batchSettlementAbi, name: 'BatchSettled' }),
    args: { token: usdc },
    fromBlock: 0n,
  })
  const lines: string[] = []
  for (const { transactionHash } of logs) {
    const receipt = await client.request({
      method: 'eth_getTransactionReceipt',
      params: [transactionHash],
    })
    if (receipt === null) throw new Error(`no receipt of ${transactionHash}`)
    const { entries } = readReceipt(receipt.logs as Parameters<typeof readReceipt>[0], {
      settlement: batchSettlement,
      tabSettlement,
      token: usdc,
      platforms: [platform],
    })
    for (const { authorizer, nonce, recipient, value, logIndex } of entries) {
      const columns = [
        authorizer,
        nonce,
        recipient,
        value,
        transactionHash,
        logIndex,
        BigInt(receipt.blockNumber),
      ]
      lines.push(`${columns.join('\t')}\n`)
    }
  }
  const copy = await sql`copy authorization_copy from stdin`.writable()
  await new Promise<void>((resolve, reject) => {
    copy.once('finish', resolve).once('error', reject).end(lines.join(''))
  })
  const seconds = (performance.now() - start) / 1000
  await sql.end()
  return Math.round(lines.length / seconds)
}

/** Counts what the handlers ask a node for, in a run that isn't timed. */
async function countCalls(nodeUrl: string, work: (url: string) => Promise<unknown>): Promise<number> {
  let calls = 0
  const proxy = createServer(async (request, response) => {
    const body = await text(request)
    const requests = [JSON.parse(body)].flat() as { method: string }[]
    calls += requests.filter(({ method }) => !blockAndLogMethods.includes(method)).length
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(nodeUrl, { method: 'POST', headers, body })
    response.setHeader('content-type', 'application/json').end(await answer.text())
  })
  await new Promise<void>((resolve) => proxy.listen(0, loopback, resolve))
  const { port } = proxy.address() as AddressInfo
  try {
    await work(`http://${loopback}:${port}`)
  } finally {
    proxy.closeAllConnections()
    proxy.close()
  }
  return calls
}

type IndexRun = {
  databaseUrl: string
  batches: number
  lanes: number
  postgresPid: number
  /** Where Ponder asks. */
  nodeUrl: string
}

async function measureIndexer(
  { chain, startIndexer }: Ground,
  { databaseUrl, batches, lanes, postgresPid, nodeUrl }: IndexRun,
) {
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
  const sql = postgres(databaseUrl, { max: 1 })
  const [row] = await sql<{ count: string }[]>`select count(*) from indexer.authorization`
  await sql.end()
  await indexer.close()
  const count = Number(row?.count)
  if (count !== batches * authorizationsPerBatch) throw new Error(`indexed ${count} authorizations`)
  const [before, after] = await Promise.all(cpuTimes)
  if (backfillMs === undefined || !before || !after) throw new Error('Ponder did not say how long it took')
  const [ponder = 0, server = 0, node = 0] = after.map((us, i) => (us - (before[i] ?? 0)) / 1_000 / batches)
  return {
    authorizationsPerSecond: Math.round((count / backfillMs) * 1000),
    ponderCpuMsPerBatch: round2(ponder),
    postgresCpuMsPerBatch: round2(server),
    nodeCpuMsPerBatch: round2(node),
  }
}
