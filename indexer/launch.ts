import { spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { extname, join, resolve } from 'node:path'
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
import { dropIndex, findMismatches, holdsChains, releaseDeadLock, revertCheckpoints } from './chainData.ts'
import { type IndexerOptions, type IndexerSettings, readIndexerSettings } from './config.ts'
import { caughtUp } from './silence.ts'
import { readStartHashes, type StartHashes } from './startBlocks.ts'
import { showIndex } from './views.ts'

export type Indexer = {
  /** URL of the HTTP server with `/graphql`, `/health`, `/ready`, `/status` and `/metrics`. */
  url: string
  port: number
  pid: number
  schema: string
  /** Resolves when the index has caught up with its chains and the views show it. Rejects if Ponder ends before that. */
  ready: Promise<void>
  /** Resolves with the exit code when Ponder has ended, for any reason. */
  exited: Promise<number | null>
  /** Networks that were left out of this start because none of their nodes answered. */
  leftOut: readonly NetworkName[]
  /** Resolves once a network that was left out answers, so that a new start would index it. */
  answersAgain: Promise<void>
  /** Stops Ponder, which unlocks its schema when it ends. */
  close: () => Promise<void>
}

/**
 * Starts Ponder as a child process with the flags that this project needs.
 *
 * If a local chain was replaced by a new one with the same id, drops the old chain's index. On any other network, throws an error, because a person
 * must decide what to do (indexer/rebuild.ts).
 *
 * Ponder starts only if each of its chains answers, so this start leaves out a network without an answering node.
 *
 * @throws Error if no network answers
 */
export async function startIndexer(options: IndexerOptions): Promise<Indexer> {
  const env = environmentOf(options)
  const config = readIndexerSettings(env)
  const host = options.host ?? loopback
  const port = options.port || (await reservePort())
  // If the port is in use, Ponder would silently use the next free port.
  if (!(await isPortFree(port))) throw new Error(`port ${port} is in use: set INDEXER_PORT to another one`)

  await requirePostgresAt(config.databaseUrl)
  const bundle = await bundlePonder()
  const { isReader = false } = options
  const { schema, present, absent } = await chooseSchema(config, options)
  if (!isReader) {
    for (const { network } of absent) {
      const msg = `${network.name} is left out: none of its nodes answers. Until one of them answers, only the other networks are indexed`
      options.onLog?.(JSON.stringify({ level: 50, time: Date.now(), msg, network: network.name }))
    }
    await removeMismatches({ ...config, networks: present }, schema)
    await releaseDeadLock(config.databaseUrl, schema)
    if (absent.length > 0) await revertCheckpoints(config.databaseUrl, schema, absent.map(chainIdOf))
    env.NETWORKS = present.map(({ network }) => network.name).join(',')
    // Disables Ponder's check of the schema, which would reject a schema with more or fewer chains. The schema's derived name already identifies its
    // contents.
    if (options.schema === undefined) env.PONDER_EXPERIMENTAL_DB = 'platform'
  }

  const child = spawn(
    process.execPath,
    [
      '--max-semi-space-size=64', // receipts are large and short-lived, so a larger young generation lets V8 move fewer of them to the old generation
      join(bundle, 'dist/esm/bin/ponder.js'),
      ...[isReader ? 'serve' : 'start', '--root', import.meta.dirname],
      ...['--config', `ponder.config${extname(import.meta.filename)}`],
      ...['--schema', schema], // without Ponder's --views-schema, because views.ts creates the views
      ...['--hostname', host, '--port', String(port)],
      ...['--log-format', 'json', '--log-level', options.logLevel ?? 'warn'],
    ],
    {
      env,
      cwd: import.meta.dirname,
      // Ponder runs in a separate process group, so that a terminal's Ctrl-C reaches only this process, which then stops Ponder.
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
      // End Ponder at once. Otherwise it would retry for ten minutes, and end only then.
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
      child.send(caughtUp, () => {}) // an error means that Ponder has ended, which `exited` reports
      if (!isReader)
        return showIndex(config.databaseUrl, schema, present, { signal: ended.signal, onLog: options.onLog })
    }),
    exited.then((code) => {
      ended.abort()
      throw new Error(`Ponder ended with status ${code}:\n${lastLines.join('\n')}`)
    }),
  ])
  ready.catch(() => {}) // callers who await `ready` receive the error

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
 * Chooses the schema and the networks of this start. If some networks don't answer, chooses the schema that already contains them. If there is none,
 * chooses a schema without them, until they answer.
 */
async function chooseSchema(config: IndexerSettings, options: IndexerOptions): Promise<Choice> {
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
    // Ponder accepts a fixed schema only with the same chains as before.
    if (absent.length > 0)
      throw new Error(`no node of ${names} answers, and a fixed schema needs all networks`)
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
 * Derives the schema's name from everything that decides its contents: addresses, wallets, code, and the identity of the chains. If any of
 * these changes, a new schema is indexed next to the old one, and the views switch to it once it has caught up.
 */
export async function deriveSchema(
  { networks, platformWallets }: IndexerSettings,
  hashes: StartHashes,
): Promise<string> {
  const chains = networks.map(({ network, deployment }) => [
    network.chainId,
    network.name,
    hashes[network.name] ?? null,
    deployment,
  ])
  const handlers = (await readdir(join(import.meta.dirname, 'src'))).filter((name) => name.endsWith('.ts'))
  // Hashes the sources even if a bundle runs, so that checkout, image and package use the same schema.
  const files = ['../ponder.config.ts', 'ponder.schema.ts', ...handlers.sort().map((name) => `src/${name}`)]
  const sources = await Promise.all(files.map((file) => readFile(join(import.meta.dirname, file), 'utf8')))
  const { version } = JSON.parse(await readFile(join(await bundlePonder(), 'package.json'), 'utf8'))
  const named = JSON.stringify([version, chains, platformWallets, batchSettlementAbi, usdcAbi, sources])
  return `indexer_${hash('sha256', named).slice(0, 10)}`
}

async function removeMismatches(config: IndexerSettings, schema: string): Promise<void> {
  const mismatched = await findMismatches(config.databaseUrl, schema, config.networks)
  const foreign = mismatched.filter(({ network }) => network.name !== 'localhost')
  if (foreign.length > 0) {
    const list = foreign.map(({ network, schema: where, detail }) => `${network.name}, ${where}: ${detail}`)
    throw new Error(
      `the index belongs to another chain, or a reorg was deeper than Ponder's finality:\n${list.join('\n')}\n` +
        `Check the RPC URL, then run: ${ownCommand} indexer --rebuild`,
    )
  }
  if (mismatched.length > 0) {
    await dropIndex(config.databaseUrl, schema, [
      ...new Set(mismatched.map(({ network }) => network.chainId)),
    ])
  }
}

function environmentOf(options: IndexerOptions): Record<string, string> {
  // Leave out variables that Ponder would prefer over its flags and our settings.
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
    // An absolute path, because Ponder runs in another folder.
    NETWORKS_FILE: inherited.NETWORKS_FILE?.trim() && resolve(inherited.NETWORKS_FILE.trim()),
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

/** Time limit in ms for one answer of Ponder's `/ready`. */
const readyLimitMs = 5_000
