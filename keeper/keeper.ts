import { finalityOf } from '@tollkeeper/chain/finality'
import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter } from '@tollkeeper/chain/gasShares'
import { probeHead } from '@tollkeeper/chain/head'
import { createPayerCode } from '@tollkeeper/chain/payerCode'
import type { KeeperAccount } from '@tollkeeper/chain/remoteSigner'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { probeGas } from '@tollkeeper/chain/walletState'
import { releaseReservations } from '@tollkeeper/ledger/acceptance/facilitations'
import { type Catalogue, createCatalogue } from '@tollkeeper/ledger/discovery/catalogue'
import { createDueBatches } from '@tollkeeper/ledger/queue/dueBatches'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import { closingTimes, createTabUpkeep } from '@tollkeeper/ledger/tabs/upkeep'
import { type Probe, readReadiness } from '@tollkeeper/runtime/health'
import type { Logger } from '@tollkeeper/runtime/log'
import { createRateLimiter } from '@tollkeeper/runtime/rateLimiter'
import type { Loop } from '@tollkeeper/runtime/repeat'
import { takeParts } from '@tollkeeper/runtime/stepBack'
import type { Tracer } from '@tollkeeper/runtime/trace'
import type { Hono } from 'hono'
import type { Address, Hex } from 'viem'
import { createApp } from './http/app.ts'
import { createHttpContext } from './http/context.ts'
import { adoptAbandoned } from './loops/adopt.ts'
import { type Context, createMemory } from './loops/context.ts'
import { failBlocked } from './loops/failBlocked.ts'
import { finalizeMined } from './loops/finalize.ts'
import { createVoidWatch, lookUpRequested } from './loops/lookups.ts'
import { reconcilePayments } from './loops/reconcile.ts'
import { createKeeperRecorder } from './loops/recorder.ts'
import { readRecordState } from './loops/recordState.ts'
import { createReporter } from './loops/report.ts'
import { probeToken, watchToken } from './loops/tokenPause.ts'
import { createWorker } from './loops/worker.ts'
import type { Checkpoint } from './settings/checkpoints.ts'
import type { KeeperEnvironment } from './settings/config.ts'
import { createMetrics } from './settings/metrics.ts'
import { reportBadRow, startLoop } from './settings/startLoop.ts'
import type { SettlementWallet } from './settler/context.ts'
import { createFeeCoveredPolicy } from './settler/gasPolicy.ts'
import { createWallet, signerProbes } from './settler/wallet.ts'

/** The settings of a keeper's environment, and the connections and accounts that were opened with them. */
export type KeeperOptions = Pick<
  KeeperEnvironment,
  | 'platformWallets'
  | 'settings'
  | 'submitTimeoutMs'
  | 'submitLimits'
  | 'facilitator'
  | 'discovery'
  | 'trustedProxies'
  | 'webhookAllowPrivate'
  | 'metricsToken'
> & {
  database: Database
  /** The store of open tabs, and the rules by which they are closed. */
  tabs: Omit<KeeperEnvironment['tabs'], 'databaseUrl'> & { database: TabDatabase }
  networks: readonly ServedNetwork[]
  /** The wallets that pay the gas; each settles on every network. */
  accounts: readonly KeeperAccount[]
  log: Logger
  now: () => Date
  randomBytes32: () => Hex
  /** A name for this process, different from those of all other processes that use the database. */
  holder: string
  /** Pause in ms between rounds of work for which no caller waits: reports, abandoned batches, reconciliation. Default 5 s. */
  upkeepMs?: number
  /** For crash tests; does nothing otherwise. */
  checkpoint?: Checkpoint
  /** Null if nothing is traced. */
  tracer: Tracer | null
}

export type Keeper = {
  app: Hono
  start: () => void
  /** Finishes the current steps, starts no new ones, releases the wallets' leases, and answers callers that wait for a settlement. */
  stop: () => Promise<void>
}

/**
 * Interval in ms between searches for payments of blocked payers. The keeper marks these payments as failed. One second is short enough, because such
 * payments are rare, and no wallet sends them in the meantime.
 */
const blockedEveryMs = 1_000

/** Creates a keeper. Nothing runs before `start`. */
export function createKeeper(options: KeeperOptions): Keeper {
  const { database, networks, accounts, settings, log, now, holder, upkeepMs = 5_000 } = options
  const metrics = createMetrics()
  const loops: Loop[] = []
  const probes: Probe[] = [{ name: 'database', ask: () => database`select 1` }]
  const releases: (() => Promise<void>)[] = []
  const stopping = new AbortController()
  const contexts = networks.map((served) => createContext(options, served, metrics))
  const wallets = new Map(
    contexts.map((context) => [context, accounts.map((one) => createWallet(one, context.served.network))]),
  )
  for (const [context, own] of wallets) probes.push(...probesOf(context, own))

  const loop = (name: string, network: string | null, everyMs: number, step: () => Promise<unknown>) => {
    const started = startLoop({ metrics, log, probes }, name, network, everyMs, step)
    loops.push(started)
    return started
  }

  const { database: tabDatabase, earnedHours, minimumPrices } = options.tabs
  const tabs = createTabUpkeep({
    sql: database,
    tabs: tabDatabase,
    networks,
    minimumPrices,
    now,
    rules: { ...closingTimes, amount: settings.triggers.highValue, earnedTimes: earnedHours },
    onBadRow: reportBadRow({ metrics, log }, ''),
    ...(options.checkpoint && { checkpoint: options.checkpoint }),
  })

  function start(): void {
    loop('tabs', null, upkeepMs, async () => {
      let progress: 'busy' | 'idle' = 'idle'
      await takeParts({
        'close and take': async () => {
          progress = await tabs.closeAndTake()
        },
        'release unopened': tabs.releaseUnopened,
      })
      return progress
    })
    for (const [context, ownWallets] of wallets) {
      const { name } = context.served.network
      const recorder = createKeeperRecorder(context)
      const finalizations = loop('finalize', name, settings.pollMs, async () => {
        const record = await readRecordState(context)
        const safeBlock = await recorder.followReorgs(record)
        await finalizeMined(context, safeBlock)
        context.memory.isFollowed = safeBlock !== null && record.status === 'current'
        if (safeBlock !== null) await recorder.record()
      })
      const own: Address[] = []
      for (const wallet of ownWallets) {
        // After a batch is mined, finalize runs at once, because a caller may be waiting for the result.
        const worker = createWorker(context, holder, wallet, finalizations.wake)
        own.push(worker.address)
        releases.push(worker.release)
        loop(`wallet ${worker.address}`, name, settings.pollMs, worker.step)
      }
      loop('blocked payers', name, Math.max(settings.pollMs, blockedEveryMs), () => failBlocked(context))
      // A separate loop, because a search can take a minute at a node that limits block ranges or request rates. The loop has no probe,
      // because a slow search delays no other work.
      const lookups = startLoop({ metrics, log, probes: [] }, 'lookups', name, settings.pollMs, async () => {
        if (context.memory.isFollowed) await lookUpRequested(context, stopping.signal)
      })
      // This loop has no probe either, because a late count delays no payment.
      const reports = startLoop(
        { metrics, log, probes: [] },
        'reports',
        name,
        upkeepMs,
        createReporter(context),
      )
      loops.push(lookups, reports)
      // A separate loop, because anyone can open so many tabs that a round takes minutes.
      loop('tab watch', name, upkeepMs, () => tabs.watch(context.served))
      const watchVoided = createVoidWatch(context)
      loop('upkeep', name, upkeepMs, () =>
        takeParts({
          token: () => watchToken(context),
          reservations: () => releaseReservations(database, now()),
          adopt: () => adoptAbandoned(context, holder, own),
          record: async () => {
            const record = await readRecordState(context)
            if (record.status !== 'current' || !context.memory.isFollowed) return
            await takeParts({ 'voided payments': watchVoided, reconcile: () => reconcilePayments(context) })
          },
        }),
      )
    }
  }

  async function stop(): Promise<void> {
    stopping.abort()
    await Promise.all(loops.map((one) => one.stop()))
    await Promise.allSettled(releases.map((release) => release()))
  }

  const wake = () => {
    for (const one of loops) one.wake()
  }
  const rateLimiter = createRateLimiter({ sql: database, log, now: () => now().getTime() })
  const context = createHttpContext({
    ...options,
    rateLimiter,
    wake,
    stopping: stopping.signal,
    onHookOutcome: (outcome) => metrics.hookQuestions.inc({ outcome }),
  })
  const app = createApp(context, openCatalogue(options, context.platformWallet), {
    readiness: () => readReadiness(probes),
    metrics,
    metricsToken: options.metricsToken,
    log,
  })
  return { app, start, stop }
}

function openCatalogue(
  { database, networks, tabs, discovery, now }: KeeperOptions,
  platformWallet: Address,
): Catalogue | null {
  if (discovery === null) return null
  return createCatalogue({
    sql: database,
    networks,
    platformWallet,
    ...discovery,
    minimumPrice: ({ name, minimumPrice }) => {
      const configured = tabs.minimumPrices[name] ?? 0n
      return configured > minimumPrice ? configured : minimumPrice
    },
    now: () => now().getTime(),
  })
}

function createContext(options: KeeperOptions, served: ServedNetwork, metrics: Context['metrics']): Context {
  const { database, now, randomBytes32, log, tracer, checkpoint = () => {} } = options
  const settings = { ...options.settings, ...gasLimitsOf(served.network, options.settings) }
  return {
    sql: database,
    served,
    settings,
    finalityBlocks: finalityOf(served.network.chainId),
    payersWithCode: createPayerCode(served.client, now),
    readDueBatches: createDueBatches(database, served),
    meter: createGasMeter(served, settings, now),
    gasPolicy: createFeeCoveredPolicy(settings),
    now,
    randomBytes32,
    checkpoint,
    log: log.child({ network: served.network.name }),
    metrics,
    memory: createMemory(),
    tracer,
  }
}

function probesOf(context: Context, wallets: readonly SettlementWallet[]): Probe[] {
  const { network } = context.served
  return [
    probeHead(context.served),
    probeToken(context),
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
