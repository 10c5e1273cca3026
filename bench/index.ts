/** How fast the past is indexed: Ponder with our handlers, beside a plain loop on the same chain, in one run. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { parseArgs } from 'node:util'
import postgres from 'postgres'
import secp256k1 from 'secp256k1'
import {
  type Address,
  bytesToHex,
  createPublicClient,
  createTestClient,
  getAbiItem,
  type Hex,
  hexToBytes,
  http,
  keccak256,
  numberToHex,
  publicActions,
  toHex,
  walletActions,
} from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { hardhat } from 'viem/chains'
import { loopback } from '#process/port'
import { batchSettlementAbi } from '#protocol/abi/batchSettlement'
import { feeNonce } from '#protocol/challenge'
import { domainSeparator, eip712Domain, hashAuthorization } from '#protocol/eip3009'
import { networks } from '#protocol/networks'
import { encodeSettle, type SettlementItem } from '#protocol/settlement'
import { startIndexer } from '../indexer/launch.ts'
import { readReceipt } from '../indexer/src/receipt.ts'
import { devAccount } from '../local/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../local/chain/startLocalChain.ts'
import { type Postgres, startPostgres } from '../local/stack/postgres.ts'
import { cpuTimeOfTree, parentOf } from './support/cpuTime.ts'
import { median, round2, spread } from './support/statistics.ts'

const authorizationsPerBatch = 150
const buyers = Array.from({ length: 50 }, (_, i) => keccak256(toHex(`buyer ${i}`)))
const platform: Address = '0x00000000000000000000000000000000000fee00'
const providers = Array.from({ length: 20 }, (_, i): Address => numberToHex(0xa000 + i, { size: 20 }))

/** What Ponder fetches whatever the handlers do, and the head for which the launcher asks until all is caught up. */
const blockAndLogMethods = [
  'eth_chainId',
  'eth_blockNumber',
  'eth_getBlockByNumber',
  'eth_getBlockByHash',
  'eth_getLogs',
]

export async function run(args: string[]): Promise<object | undefined> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      authorizations: { type: 'string', default: '20000' },
      lanes: { type: 'string', default: '16' },
      runs: { type: 'string', default: '5' },
    },
  })
  const say = (line: string) => values.json || console.log(line)
  const batches = Math.ceil(Number(values.authorizations) / authorizationsPerBatch)
  const server = await startPostgres()
  const chain = await startLocalChain({ blockTimeMs: 0 })
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-bench-'))
  try {
    say(`settling ${batches} batches of ${authorizationsPerBatch} authorizations`)
    await fill(chain, batches)
    const deploymentsFile = join(folder, 'deployments.json')
    await writeFile(deploymentsFile, JSON.stringify(chain.deployments))

    const common = {
      chain,
      deploymentsFile,
      batches,
      lanes: Number(values.lanes),
      postgresPid: await findServer(server),
    }
    const rpcCallsPerBatch = await countCalls({
      ...common,
      databaseUrl: await server.createDatabase('counted'),
    })
    const runs: (Omit<Awaited<ReturnType<typeof measureIndexer>>, 'steps'> & {
      rawLoopPerSecond: number
      ratioToLoop: number
    })[] = []
    for (let i = 0; i < Number(values.runs); i++) {
      const rawLoopPerSecond = await measureLoop(chain, await server.createDatabase(`loop_${i}`))
      const { steps, ...ours } = await measureIndexer({
        ...common,
        databaseUrl: await server.createDatabase(`index_${i}`),
      })
      const ratioToLoop = round2(ours.authorizationsPerSecond / rawLoopPerSecond)
      runs.push({ ...ours, rawLoopPerSecond, ratioToLoop })
      say(JSON.stringify(runs.at(-1)))
      say(`  ms by step: ${JSON.stringify(steps)}`)
    }
    const medianOf = (name: keyof (typeof runs)[number]) => median(runs.map((run) => run[name]))
    return {
      authorizationsPerSecond: medianOf('authorizationsPerSecond'),
      rawLoopPerSecond: medianOf('rawLoopPerSecond'),
      ratioToLoop: medianOf('ratioToLoop'),
      ratioToLoopSpread: spread(runs.map(({ ratioToLoop }) => ratioToLoop)),
      rpcCallsPerBatch,
      ponderCpuMsPerBatch: medianOf('ponderCpuMsPerBatch'),
      postgresCpuMsPerBatch: medianOf('postgresCpuMsPerBatch'),
      nodeCpuMsPerBatch: medianOf('nodeCpuMsPerBatch'),
    }
  } finally {
    await chain.close()
    await server.close()
    await rm(folder, { recursive: true, force: true })
  }
}

function deploymentOf(chain: LocalChain) {
  const deployment = chain.deployments.localhost
  if (deployment === undefined) throw new Error('the local chain has no deployment')
  return deployment
}

/** Settles on the chain, then mines on until all of it is final for Ponder. */
async function fill(chain: LocalChain, batches: number): Promise<void> {
  const { usdc, batchSettlement } = deploymentOf(chain)
  await chain.mintUsdc(
    buyers.map((key) => privateKeyToAddress(key)),
    1_000_000_000n,
  )
  const client = createTestClient({
    mode: 'hardhat',
    chain: hardhat,
    transport: http(chain.url),
    account: devAccount(1),
    pollingInterval: 10,
  })
    .extend(publicActions)
    .extend(walletActions)
  const separator = domainSeparator(eip712Domain(networks.localhost, usdc))
  const sign = (key: Hex, to: Address, value: bigint, nonce: Hex) => {
    const from = privateKeyToAddress(key).toLowerCase() as Address
    const authorization = { from, to, value, validAfter: 0n, validBefore: 4_000_000_000n, nonce }
    const { signature, recid } = secp256k1.ecdsaSign(
      hashAuthorization(separator, authorization),
      hexToBytes(key),
    )
    return { ...authorization, signature: `${bytesToHex(signature)}${(27 + recid).toString(16)}` as Hex }
  }
  for (let batch = 0; batch < batches; batch++) {
    const items = Array.from({ length: authorizationsPerBatch / 2 }, (_, i): SettlementItem => {
      const key = buyers[i % buyers.length] as Hex
      const payee = providers[(batch + i) % providers.length] as Address
      const nonce = keccak256(toHex(`${batch} ${i}`))
      return {
        authorization: sign(key, payee, 9_500n, nonce),
        fee: sign(key, platform, 500n, feeNonce(nonce)),
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
  const { usdc, batchSettlement } = deploymentOf(chain)
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

type IndexRun = {
  chain: Pick<LocalChain, 'url' | 'pid'>
  postgresPid: number
  databaseUrl: string
  deploymentsFile: string
  batches: number
  lanes: number
}

/** Counts what the handlers ask a node for, in a run that isn't timed. */
async function countCalls(options: IndexRun): Promise<number> {
  let calls = 0
  const proxy = createServer(async (request, response) => {
    const body = await text(request)
    const requests = [JSON.parse(body)].flat() as { method: string }[]
    calls += requests.filter(({ method }) => !blockAndLogMethods.includes(method)).length
    const answer = await fetch(options.chain.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })
    response.setHeader('content-type', 'application/json').end(await answer.text())
  })
  await new Promise<void>((resolve) => proxy.listen(0, loopback, resolve))
  const { port } = proxy.address() as AddressInfo
  try {
    await measureIndexer({ ...options, chain: { ...options.chain, url: `http://${loopback}:${port}` } })
  } finally {
    proxy.closeAllConnections()
    proxy.close()
  }
  return Math.round((calls / options.batches) * 100) / 100
}

async function measureIndexer(options: IndexRun) {
  const { chain, databaseUrl, deploymentsFile, batches, lanes, postgresPid } = options
  let backfillMs: number | undefined
  const cpuTimes: Promise<number[]>[] = []
  const indexer = await startIndexer({
    databaseUrl,
    rpcUrls: { localhost: chain.url },
    platformWallets: [platform],
    deploymentsFile,
    rpcLanes: lanes,
    logLevel: 'info',
    onLog: (line) => {
      const isOver = line.includes('Completed backfill indexing')
      if (isOver) backfillMs = (JSON.parse(line) as { duration: number }).duration
      if (isOver || line.includes('Started backfill indexing'))
        cpuTimes.push(Promise.all([indexer.pid, postgresPid, chain.pid].map(cpuTimeOfTree)))
    },
  })
  try {
    await indexer.ready
    const sql = postgres(databaseUrl, { max: 1 })
    const [row] = await sql<{ count: string }[]>`select count(*) from indexer.authorization`
    await sql.end()
    const count = Number(row?.count)
    if (count !== batches * authorizationsPerBatch) throw new Error(`indexed ${count} authorizations`)
    const [before, after] = await Promise.all(cpuTimes)
    if (backfillMs === undefined || !before || !after) throw new Error('Ponder did not say how long it took')
    const [ponder = 0, server = 0, node = 0] = after.map((us, i) => (us - (before[i] ?? 0)) / 1_000 / batches)
    const metrics = await (await fetch(`${indexer.url}/metrics`)).text()
    return {
      authorizationsPerSecond: Math.round((count / backfillMs) * 1000),
      ponderCpuMsPerBatch: round2(ponder),
      postgresCpuMsPerBatch: round2(server),
      nodeCpuMsPerBatch: round2(node),
      steps: stepsOf(metrics),
    }
  } finally {
    await indexer.close()
  }
}

async function findServer({ url }: Postgres): Promise<number> {
  const sql = postgres(url, { max: 1 })
  const [{ pid }] = await sql<[{ pid: number }]>`select pg_backend_pid() as pid`
  const server = await parentOf(pid)
  await sql.end()
  return server
}

/** Milliseconds by step: `extract` fetches and stores blocks and logs, `transform` runs the handlers and writes. */
function stepsOf(metrics: string): Record<string, number> {
  const steps = metrics.matchAll(
    /^ponder_historical_(extract|transform)_duration\{step="([a-z_]+)"\} ([\d.e+-]+)/gm,
  )
  return Object.fromEntries(
    [...steps].map(([, phase, step, ms]) => [`${phase} ${step}`, Math.round(Number(ms))]),
  )
}
