import type { Hono } from 'hono'
import type { Address, Hex } from 'viem'
import { finalityOf } from '#chain/finality'
import { gasLimitsOf } from '#chain/gasLimits'
import { createGasMeter } from '#chain/gasShares'
import { probeHead } from '#chain/head'
import { createPayerCode } from '#chain/payerCode'
import type { KeeperAccount } from '#chain/remoteSigner'
import type { ServedNetwork } from '#chain/servedNetworks'
import { probeGas } from '#chain/walletState'
import { releaseReservations } from '#ledger/acceptance/facilitations'
import { type Catalogue, createCatalogue } from '#ledger/discovery/catalogue'
import { createDueBatches } from '#ledger/queue/dueBatches'
import type { Database } from '#ledger/store/database'
import { onOnePostgres, type TabDatabase } from '#ledger/tabs/tabDatabase'
import { closingTimes, createTabUpkeep } from '#ledger/tabs/upkeep'
import { type Probe, probeLoop, readReadiness } from '#process/health'
import type { Logger } from '#process/log'
import { createRateLimiter } from '#process/rateLimiter'
import { type Loop, repeat } from '#process/repeat'
import type { Tracer } from '#process/trace'
import { createApp } from './http/app.ts'
import { createFacilitatorDependencies } from './http/facilitator/dependencies.ts'
import { adoptAbandoned } from './loops/adopt.ts'
import { concludeMined } from './loops/conclude.ts'
import { type Context, createMemory } from './loops/context.ts'
import { createVoidWatch, lookUpRequested } from './loops/lookups.ts'
import { createKeeperRecorder } from './loops/recorder.ts'
import { readRecordState } from './loops/recordState.ts'
import { createReporter } from './loops/report.ts'
import { sweepPayments } from './loops/sweep.ts'
import { createWorker } from './loops/worker.ts'
import type { Checkpoint } from './settings/checkpoints.ts'
import { createMetrics } from './settings/metrics.ts'
import type { DiscoverySettings, FacilitatorSettings } from './settings/settings.ts'
import {
  defaultDiscovery,
  defaultSubmitLimits,
  defaultSubmitTimeoutMs,
  defaultTabSettings,
  type KeeperSettings,
  type SubmitLimits,
  type TabSettings,
} from './settings/settings.ts'
import type { SettlementWallet } from './settler/context.ts'
import { createWallet, signerProbes } from './settler/wallet.ts'

export type KeeperDependencies = {
  database: Database
  /** The tab store, and when tabs are closed. Default: the same database, and an api's defaults. */
  tabs?: TabSettings & { database: TabDatabase }
  networks: readonly ServedNetwork[]
  /** The wallets that pay the gas; each settles on every network. */
  accounts: readonly KeeperAccount[]
  platformWallets: readonly Address[]
  settings: KeeperSettings
  /** How long POST /submit waits for its transaction. Default {@link defaultSubmitTimeoutMs}. */
  submitTimeoutMs?: number
  /** Default: {@link defaultSubmitLimits}. */
  submitLimits?: SubmitLimits
  /** Default: {@link defaultFacilitatorSettings}. */
  facilitator?: Partial<FacilitatorSettings>
  /** What is listed for buyers; null: nothing is. Default: at SPEC 2.9's fees. */
  discovery?: DiscoverySettings | null
  /** Number of proxies in front of the HTTP server. Default 0. */
  trustedProxies?: number
  /** The token that Prometheus sends to read the metrics. Default: anybody may. */
  metricsToken?: string | null
  log: Logger
  now: () => Date
  randomBytes32: () => Hex
  /** Names this process among those that share the database. */
  holder: string
  /** Pause between two rounds of work that nobody waits for: reports, abandoned batches, the sweep. Default 5 s. */
  upkeepMs?: number
  /** For crash tests; does nothing otherwise. */
  checkpoint?: Checkpoint
  /** Default: none, and nothing is traced. */
  tracer?: Tracer | null
}

export type Keeper = {
  app: Hono
  start: () => void
  /** Finishes the steps under way, gives the wallets back, and starts nothing new. */
  stop: () => Promise<void>
}

/** Wires a keeper; nothing happens before `start`. */
export function createKeeper(dependencies: KeeperDependencies): Keeper {
  const { database, networks, accounts, settings, log, now, holder, upkeepMs = 5_000 } = dependencies
  const metrics = createMetrics()
  const loops: Loop[] = []
  const probes: Probe[] = [{ name: 'database', ask: () => database`select 1` }]
  const releases: (() => Promise<void>)[] = []
  const contexts = networks.map((served) => createContext(dependencies, served, metrics))
  const wallets = new Map(
    contexts.map((context) => [context, accounts.map((one) => createWallet(one, context.served.network))]),
  )
  for (const [context, own] of wallets) probes.push(...probesOf(context, own))

  /** @param network null: the loop is for all networks, and asks none. */
  function loop(name: string, network: string | null, everyMs: number, step: () => Promise<unknown>): void {
    const started = repeat({
      name: network === null ? name : `${name} ${network}`,
      everyMs,
      step,
      onError(error, failures) {
        metrics.loopErrors.inc({ network: network ?? '', loop: name })
        log.warn({ err: error, loop: name, network, failures }, 'a step failed and will be taken again')
      },
    })
    loops.push(started)
    probes.push(probeLoop(started, network ?? undefined))
  }

  const {
    database: tabDatabase,
    credit,
    minimumPrices,
  } = {
    ...{ database: onOnePostgres(database), ...defaultTabSettings },
    ...dependencies.tabs,
  }
  const tabs = createTabUpkeep({
    ...{ sql: database, tabs: tabDatabase, networks, minimumPrices, now },
    rules: { ...closingTimes, amount: settings.triggers.highValue, credit },
    ...(dependencies.checkpoint && { checkpoint: dependencies.checkpoint }),
  })

  function start(): void {
    loop('tabs', null, upkeepMs, async () => {
      await tabs.closeAndTake()
      await tabs.releaseUnopened()
    })
    for (const [context, ownWallets] of wallets) {
      const { name } = context.served.network
      const own: Address[] = []
      for (const wallet of ownWallets) {
        const worker = createWorker(context, holder, wallet)
        own.push(worker.address)
        releases.push(worker.release)
        loop(`wallet ${worker.address}`, name, settings.pollMs, worker.step)
      }
      const recorder = createKeeperRecorder(context)
      loop('conclude', name, settings.pollMs, async () => {
        const record = await readRecordState(context)
        const safeBlock = await recorder.followReorgs(record)
        await concludeMined(context, safeBlock)
        context.memory.isFollowed = safeBlock !== null && record.status === 'current'
        if (safeBlock !== null) await recorder.record()
        if (context.memory.isFollowed) await lookUpRequested(context)
      })
      const report = createReporter(context)
      const watchVoided = createVoidWatch(context)
      loop('upkeep', name, upkeepMs, async () => {
        await report()
        await releaseReservations(database, now())
        await tabs.watch(context.served)
        await adoptAbandoned(context, holder, own)
        const record = await readRecordState(context)
        if (record.status !== 'current' || !context.memory.isFollowed) return
        await watchVoided()
        await sweepPayments(context)
      })
    }
  }

  async function stop(): Promise<void> {
    await Promise.all(loops.map((one) => one.stop()))
    await Promise.allSettled(releases.map((release) => release()))
  }

  const wake = () => {
    for (const one of loops) one.wake()
  }
  const { discovery = defaultDiscovery } = dependencies
  const facilitator = createFacilitatorDependencies({ ...dependencies, discovery: discovery !== null }, wake)
  const rateLimiter = createRateLimiter({ sql: database, log, now: () => now().getTime() })
  const app = createApp({
    facilitator,
    tracer: dependencies.tracer ?? null,
    catalogue: discovery && openCatalogue(dependencies, facilitator.platformWallet, discovery),
    submit: {
      ...facilitator,
      platformWallets: dependencies.platformWallets,
      timeoutMs: dependencies.submitTimeoutMs ?? defaultSubmitTimeoutMs,
      limits: dependencies.submitLimits ?? defaultSubmitLimits,
      rateLimiter,
      wake,
    },
    rateLimiter,
    trustedProxies: dependencies.trustedProxies ?? 0,
    readiness: () => readReadiness(probes),
    metrics,
    metricsToken: dependencies.metricsToken ?? null,
    log,
  })
  return { app, start, stop }
}

function openCatalogue(
  { database, networks, tabs, now }: KeeperDependencies,
  platformWallet: Address,
  discovery: DiscoverySettings,
): Catalogue {
  return createCatalogue({
    ...{ sql: database, networks, platformWallet, ...discovery },
    minimumPrice: ({ name, minimumPrice }) => {
      const configured = tabs?.minimumPrices[name] ?? 0n
      return configured > minimumPrice ? configured : minimumPrice
    },
    now: () => now().getTime(),
  })
}

function createContext(
  dependencies: KeeperDependencies,
  served: ServedNetwork,
  metrics: Context['metrics'],
): Context {
  const { database, now, randomBytes32, log, checkpoint = () => {} } = dependencies
  const settings = { ...dependencies.settings, ...gasLimitsOf(served.network, dependencies.settings) }
  return {
    sql: database,
    served,
    settings,
    finalityBlocks: finalityOf(served.network.chainId),
    payersWithCode: createPayerCode(served.client, now),
    readDueBatches: createDueBatches(database, served),
    meter: createGasMeter(served, settings, now),
    now,
    randomBytes32,
    checkpoint,
    log: log.child({ network: served.network.name }),
    metrics,
    memory: createMemory(),
    tracer: dependencies.tracer ?? null,
  }
}

function probesOf(context: Context, wallets: readonly SettlementWallet[]): Probe[] {
  const { network } = context.served
  return [
    probeHead(context.served),
    {
      name: `index ${network.name}`,
      network: network.name,
      async ask() {
        const record = await readRecordState(context)
        if (record.status === 'behind') throw new Error(`behind: ${record.reason}`)
      },
    },
    probeGas(
      context.served,
      wallets.map(({ address }) => address),
    ),
    ...signerProbes(wallets),
  ]
}
