import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { createPublicClient, http } from 'viem'
import { requirePostgresAt } from '#ledger/database'
import { ownCommand } from '#process/ownCommand'
import { isPortFree, loopback, reservePort } from '#process/port'
import { reapWithUs } from '#process/reaper'
import { networkVariable } from '#process/variables'
import { batchSettlementAbi } from '#protocol/abi/batchSettlement'
import { usdcAbi } from '#protocol/abi/usdc'
import type { NetworkName } from '#protocol/networks'
import { bundlePonder } from './bundlePonder.ts'
import { dropIndex, findMisfits, releaseDeadLock } from './chainData.ts'
import { type IndexerConfig, type IndexerOptions, readIndexerConfig } from './config.ts'
import { caughtUp } from './silence.ts'
import { showIndex } from './views.ts'

export type Indexer = {
  /** Of the HTTP server: `/graphql`, `/health`, `/ready`, `/status`, `/metrics`. */
  url: string
  port: number
  pid: number
  schema: string
  /** Resolves when the past is indexed and the views show it; rejects if Ponder ends before. */
  ready: Promise<void>
  /** Resolves with the exit code when Ponder has ended, for whatever reason. */
  exited: Promise<number | null>
  /** Ends Ponder, which lets go of its schema. */
  close: () => Promise<void>
}

/**
 * Starts Ponder as a child process with the flags that this project needs.
 *
 * A local chain that was thrown away and started anew is noticed, and what was indexed of the old one is dropped. On
 * any other network that is an error: somebody should look (indexer/rebuild.ts).
 */
export async function startIndexer(options: IndexerOptions): Promise<Indexer> {
  const env = environmentOf(options)
  const config = readIndexerConfig(env)
  const host = options.host ?? loopback
  const port = options.port || (await reservePort())
  // Ponder would take the next free one without a word.
  if (!(await isPortFree(port))) throw new Error(`port ${port} is in use: set INDEXER_PORT to another one`)

  await requirePostgresAt(config.databaseUrl)
  const bundle = await bundlePonder()
  const schema = options.schema ?? (await deriveSchema(config))
  const { isReader = false } = options
  if (!isReader) {
    await removeMisfits(config, schema)
    await releaseDeadLock(config.databaseUrl, schema)
  }

  const child = spawn(
    process.execPath,
    [
      '--max-semi-space-size=64', // a receipt is large and short-lived: fewer of them survive into the old space
      join(bundle, 'dist/esm/bin/ponder.js'),
      ...[isReader ? 'serve' : 'start', '--root', import.meta.dirname],
      ...['--config', `ponder.config${extname(import.meta.filename)}`],
      ...['--schema', schema], // no --views-schema: see views.ts
      ...['--hostname', host, '--port', String(port)],
      ...['--log-format', 'json', '--log-level', options.logLevel ?? 'warn'],
    ],
    {
      env,
      cwd: import.meta.dirname,
      // A group of its own: a terminal's Ctrl-C reaches only us, and we end it in our order.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    },
  )
  const forget = child.pid === undefined ? () => {} : reapWithUs(child.pid)
  const lastLines: string[] = []
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue
    createInterface({ input: stream }).on('line', (line) => {
      lastLines.push(line)
      if (lastLines.length > 20) lastLines.shift()
      options.onLog?.(line)
      // It would try for ten minutes more, behind all that time, and end then.
      if (line.includes('Encountered unrecoverable reorg')) child.kill('SIGINT')
    })
  }
  const exited = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  }).finally(forget)

  const url = `http://${host}:${port}`
  const ended = new AbortController()
  const ready = Promise.race([
    untilReady(url, ended.signal).then(() => {
      child.send(caughtUp, () => {}) // if it has ended, `exited` says so
      if (!isReader) return showIndex(config.databaseUrl, schema, config.networks, ended.signal)
    }),
    exited.then((code) => {
      ended.abort()
      throw new Error(`Ponder ended with status ${code}:\n${lastLines.join('\n')}`)
    }),
  ])
  ready.catch(() => {}) // whoever waits for it hears of it

  return {
    url,
    port,
    pid: child.pid ?? 0,
    schema,
    ready,
    exited,
    close: async () => {
      child.kill()
      const force = setTimeout(() => child.kill('SIGKILL'), 10_000)
      await exited
      clearTimeout(force)
    },
  }
}

/**
 * Names the schema after what stands in it: addresses, wallets, code, and which chains these are. Whoever changes any of
 * it gets a new schema beside the old one, and the views move over once it has caught up.
 */
export async function deriveSchema({ networks, platformWallets }: IndexerConfig): Promise<string> {
  const chains = await Promise.all(
    networks.map(async ({ network, deployment, rpcUrls }) => {
      const chain = createPublicClient({ transport: http(rpcUrls[0]) })
      const { hash } = await chain.getBlock({ blockNumber: BigInt(deployment.startBlock) })
      return [network.chainId, network.name, hash, deployment]
    }),
  )
  const sources = await Promise.all(
    [join(import.meta.dirname, 'ponder.schema.ts'), ...(await sourceFiles())].map((file) =>
      readFile(file, 'utf8'),
    ),
  )
  const { version } = JSON.parse(await readFile(join(await bundlePonder(), 'package.json'), 'utf8'))
  const hash = createHash('sha256')
    .update(JSON.stringify([version, chains, platformWallets, batchSettlementAbi, usdcAbi, sources]))
    .digest('hex')
  return `indexer_${hash.slice(0, 10)}`
}

async function sourceFiles(): Promise<string[]> {
  const folder = join(import.meta.dirname, 'src')
  const files = await readdir(folder)
  return files
    .filter((name) => name.endsWith('.ts'))
    .sort()
    .map((name) => join(folder, name))
}

async function removeMisfits(config: IndexerConfig, schema: string): Promise<void> {
  const misfits = await findMisfits(config.databaseUrl, schema, config.networks)
  const foreign = misfits.filter(({ network }) => network.name !== 'localhost')
  if (foreign.length > 0) {
    const list = foreign.map(({ network, schema: where, detail }) => `${network.name}, ${where}: ${detail}`)
    throw new Error(
      `the index isn't of this chain, or a reorg was deeper than Ponder's finality:\n${list.join('\n')}\n` +
        `Check the RPC, then: ${ownCommand} indexer --rebuild`,
    )
  }
  if (misfits.length > 0) {
    await dropIndex(config.databaseUrl, schema, [...new Set(misfits.map(({ network }) => network.chainId))])
  }
}

function environmentOf(options: IndexerOptions): Record<string, string> {
  // What Ponder would put before its own flags and our settings.
  const {
    PORT,
    DATABASE_PRIVATE_URL,
    DATABASE_DIRECT_URL,
    DATABASE_SCHEMA,
    DATABASE_VIEWS_SCHEMA,
    ...inherited
  } = process.env
  const names = (Object.keys(options.rpcUrls) as NetworkName[]).filter((name) => options.rpcUrls[name])
  const environment: Record<string, string | undefined> = {
    ...inherited,
    DATABASE_URL: options.databaseUrl,
    NETWORKS: names.join(','),
    ...Object.fromEntries(names.map((name) => [networkVariable('RPC_URL', name), options.rpcUrls[name]])),
    PLATFORM_WALLET: options.platformWallets[0],
    PLATFORM_WALLETS: options.platformWallets.slice(1).join(','),
    DEPLOYMENTS_FILE: options.deploymentsFile,
    INDEXER_RPC_LANES: options.rpcLanes?.toString(),
  }
  return Object.fromEntries(
    Object.entries(environment).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}

async function untilReady(url: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const answer = await fetch(`${url}/ready`, { signal }).catch(() => undefined)
    if (answer?.ok) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
