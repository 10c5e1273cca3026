import { spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import type { NetworkSettings } from '@tollkeeper/chain/networkSettings'
import { openReader } from '@tollkeeper/chain/reader'
import { requirePostgresAt } from '@tollkeeper/ledger/store/database'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { isPortFree, loopback, reservePort } from '@tollkeeper/runtime/port'
import { reapWithUs } from '@tollkeeper/runtime/reaper'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { bundlePonder } from './bundlePonder.ts'
import { dropIndex, findMisfits, holdsChains, releaseDeadLock, takeBackCheckpoints } from './chainData.ts'
import { type IndexerConfig, type IndexerOptions, readIndexerConfig } from './config.ts'
import { caughtUp } from './silence.ts'
import { readStartHashes, type StartHashes } from './startBlocks.ts'
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
  /** Networks that were left out of this start because none of their nodes answered. */
  leftOut: readonly NetworkName[]
  /** Resolves once a network that was left out answers, so that a new start would index it. */
  answersAgain: Promise<void>
  /** Ends Ponder, which then unlocks its schema. */
  close: () => Promise<void>
}

/**
 * Starts Ponder as a child process with the flags that this project needs.
 *
 * If a local chain was thrown away and started anew, the index of the old one is dropped. On any other network that is
 * an error, which somebody should look at (indexer/rebuild.ts).
 *
 * Ponder starts only if each of its chains answers, so a network without an answering node is left out of this start.
 *
 * @throws Error if no network answers.
 */
export async function startIndexer(options: IndexerOptions): Promise<Indexer> {
  const env = environmentOf(options)
  const config = readIndexerConfig(env)
  const host = options.host ?? loopback
  const port = options.port || (await reservePort())
  // Otherwise Ponder would take the next free port without saying so.
  if (!(await isPortFree(port))) throw new Error(`port ${port} is in use: set INDEXER_PORT to another one`)

  await requirePostgresAt(config.databaseUrl)
  const bundle = await bundlePonder()
  const { isReader = false } = options
  const { schema, present, absent } = await chooseSchema(config, options)
  if (!isReader) {
    for (const { network } of absent) {
      const msg = `${network.name} is left out: none of its nodes answers. It is not indexed until it does, the others are`
      options.onLog?.(JSON.stringify({ level: 50, time: Date.now(), msg, network: network.name }))
    }
    await removeMisfits({ ...config, networks: present }, schema)
    await releaseDeadLock(config.databaseUrl, schema)
    if (absent.length > 0) await takeBackCheckpoints(config.databaseUrl, schema, absent.map(chainIdOf))
    env.NETWORKS = present.map(({ network }) => network.name).join(',')
    // The schema's name says what is in it. Ponder's own check would refuse a schema with a chain more or less.
    if (options.schema === undefined) env.PONDER_EXPERIMENTAL_DB = 'platform'
  }

  const child = spawn(
    process.execPath,
    [
      '--max-semi-space-size=64', // a receipt is large and short-lived, so fewer of them survive into the old space
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
      // It would try for ten minutes more, fall behind meanwhile, and end then.
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
      if (!isReader)
        return showIndex(config.databaseUrl, schema, present, { signal: ended.signal, onLog: options.onLog })
    }),
    exited.then((code) => {
      ended.abort()
      throw new Error(`Ponder ended with status ${code}:\n${lastLines.join('\n')}`)
    }),
  ])
  ready.catch(() => {}) // those who wait for it hear of it

  return {
    url,
    port,
    pid: child.pid ?? 0,
    schema,
    ready,
    exited,
    leftOut: isReader ? [] : absent.map(({ network }) => network.name),
    answersAgain: isReader
      ? new Promise(() => {})
      : untilAnswered(absent, options.retryMs ?? retryMs, ended.signal),
    close: async () => {
      child.kill()
      const force = setTimeout(() => child.kill('SIGKILL'), 10_000)
      await exited
      clearTimeout(force)
    },
  }
}

const retryMs = 15_000

type Choice = {
  schema: string
  /** Networks that this start indexes. */
  present: NetworkSettings[]
  /** Networks that this start leaves out. */
  absent: NetworkSettings[]
}

/**
 * Chooses a schema that has the networks which don't answer now, if there is one. Otherwise it uses a schema without them
 * meanwhile.
 */
async function chooseSchema(config: IndexerConfig, options: IndexerOptions): Promise<Choice> {
  const { databaseUrl, networks } = config
  if (options.isReader) {
    const schema =
      options.schema ?? (await deriveSchema(config, await readStartHashes(databaseUrl, networks, true)))
    return { schema, present: networks, absent: [] }
  }
  const answered = await Promise.all(networks.map(isAnswering))
  const present = networks.filter((_, i) => answered[i])
  const absent = networks.filter((_, i) => !answered[i])
  const names = absent.map(({ network }) => network.name).join(', ')
  if (present.length === 0) throw new Error(`no node of ${names} answers: check RPC_URL_…`)
  if (options.schema !== undefined) {
    // Ponder identifies the schema by its chains.
    if (absent.length > 0) throw new Error(`no node of ${names} answers, and the schema is fixed`)
    return { schema: options.schema, present, absent }
  }
  const hashes = await readStartHashes(databaseUrl, networks)
  const schema = await deriveSchema(config, hashes)
  if (absent.length === 0 || (await holdsChains(databaseUrl, schema, absent.map(chainIdOf)))) {
    return { schema, present, absent }
  }
  return { schema: await deriveSchema({ ...config, networks: present }, hashes), present, absent }
}

function chainIdOf({ network }: NetworkSettings): number {
  return network.chainId
}

async function isAnswering(settings: NetworkSettings): Promise<boolean> {
  return openReader(settings)
    .getBlockNumber()
    .then(
      () => true,
      () => false,
    )
}

async function untilAnswered(
  absent: readonly NetworkSettings[],
  pauseMs: number,
  signal: AbortSignal,
): Promise<void> {
  const never = new Promise<void>(() => {})
  if (absent.length === 0) return never
  while (!signal.aborted) {
    await delay(pauseMs, undefined, { signal, ref: false }).catch(() => {})
    if (signal.aborted) break
    if ((await Promise.all(absent.map(isAnswering))).includes(true)) return
  }
  return never
}

/**
 * Names the schema after its contents: addresses, wallets, code, and which chains these are. A change of any of these
 * gets a new schema beside the old one, and the views move over once it has caught up.
 */
export async function deriveSchema(
  { networks, platformWallets }: IndexerConfig,
  hashes: StartHashes,
): Promise<string> {
  const chains = networks.map(({ network, deployment }) => [
    network.chainId,
    network.name,
    hashes[network.name] ?? null,
    deployment,
  ])
  const handlers = (await readdir(join(import.meta.dirname, 'src'))).filter((name) => name.endsWith('.ts'))
  // The source, where a bundle runs as well: checkout, image and package index into the same schema.
  const files = ['../ponder.config.ts', 'ponder.schema.ts', ...handlers.sort().map((name) => `src/${name}`)]
  const sources = await Promise.all(files.map((file) => readFile(join(import.meta.dirname, file), 'utf8')))
  const { version } = JSON.parse(await readFile(join(await bundlePonder(), 'package.json'), 'utf8'))
  const named = JSON.stringify([version, chains, platformWallets, batchSettlementAbi, usdcAbi, sources])
  return `indexer_${hash('sha256', named).slice(0, 10)}`
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
    const limit = AbortSignal.any([signal, AbortSignal.timeout(readyLimitMs)])
    const answer = await fetch(`${url}/ready`, { signal: limit }).catch(() => undefined)
    if (answer?.ok) return
    await delay(50)
  }
}

/** Time limit for Ponder's answer to whether it has caught up. */
const readyLimitMs = 5_000
