import { setTimeout as delay } from 'node:timers/promises'
import type { Hono } from 'hono'
import type { Address, Hex, PrivateKeyAccount } from 'viem'
import { finalityOf } from '#chain/finality'
import { gasLimitsOf } from '#chain/gasLimits'
import { createPayerCode } from '#chain/payerCode'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '#ledger/database'
import { createDueBatches } from '#ledger/dueBatches'
import type { Logger } from '#process/log'
import { createRateLimiter } from '#process/rateLimiter'
import { createApp, type Readiness } from './http/app.ts'
import { defaultSubmitLimits, type SubmitLimits } from './http/submitRules.ts'
import { adoptAbandoned } from './loops/adopt.ts'
import { concludeMined } from './loops/conclude.ts'
import { createConfirmer } from './loops/confirm.ts'
import {
  type Checkpoint,
  type Context,
  createMemory,
  type KeeperSettings,
  type SettlementWallet,
} from './loops/context.ts'
import { collectEvidence, recheckEvidence, recheckVoided } from './loops/evidence.ts'
import { readIndexState } from './loops/indexState.ts'
import { createNotifier } from './loops/notify.ts'
import { createPusher } from './loops/push.ts'
import { createReporter } from './loops/report.ts'
import { keepUp } from './loops/upkeep.ts'
import { createWorker } from './loops/worker.ts'
import { createMetrics } from './metrics.ts'

export type KeeperDependencies = {
  database: Database
  networks: readonly ServedNetwork[]
  /** Wallets that pay the gas; each settles on every network. With `facilitatorUrl` none does, and that one settles. */
  accounts: readonly PrivateKeyAccount[]
  platformWallets: readonly Address[]
  settings: KeeperSettings
  submitTimeoutMs: number
  /** Default: {@link defaultSubmitLimits}. */
  submitLimits?: SubmitLimits
  /** Proxies in front of the HTTP server. Default 0. */
  trustedProxies?: number
  log: Logger
  now: () => Date
  randomBytes32: () => Hex
  /** Names this process among those that share the database. */
  holder: string
  /** For crash tests; does nothing otherwise. */
  checkpoint?: Checkpoint
}

export type Keeper = {
  app: Hono
  start: () => void
  /** Finishes the steps that are under way, gives the wallets back, and starts nothing new. */
  stop: () => Promise<void>
}

const upkeepMs = 5_000
const headStandsStillMs = 60_000
/** A probe wants an answer, also where a dependency gives none. */
const checkTimeoutMs = 3_000

/** Wires a keeper; nothing happens before `start`. */
export function createKeeper(dependencies: KeeperDependencies): Keeper {
  const { database, networks, accounts, settings, log, now, holder } = dependencies
  const metrics = createMetrics()
  const stopping = new AbortController()
  const sleepers = new Set<() => void>()
  const running: Promise<void>[] = []
  const releases: (() => Promise<void>)[] = []
  const heads = new Map<string, { block: bigint; at: number }>()
  const contexts = networks.map((served) => createContext(dependencies, served, metrics))

  function wake(): void {
    for (const rouse of sleepers) rouse()
  }

  async function sleep(ms: number): Promise<void> {
    const roused = new AbortController()
    const rouse = () => roused.abort()
    sleepers.add(rouse)
    await delay(ms, undefined, { signal: AbortSignal.any([stopping.signal, roused.signal]) }).catch(() => {})
    sleepers.delete(rouse)
  }

  /** Takes a step again and again. One that fails is logged and taken again, later and later while it goes on failing. */
  function loop(name: string, network: string, everyMs: number, step: () => Promise<unknown>): void {
    const run = async () => {
      let failures = 0
      while (!stopping.signal.aborted) {
        let result: unknown
        try {
          result = await step()
          failures = 0
        } catch (error) {
          failures += 1
          metrics.loopErrors.inc({ network, loop: name })
          log.warn({ err: error, loop: name, network, failures }, 'a step failed and will be taken again')
        }
        if (result !== 'busy') await sleep(Math.min(everyMs * 2 ** Math.min(failures, 6), everyMs + 10_000))
      }
    }
    running.push(run())
  }

  function start(): void {
    for (const context of contexts) {
      const { name } = context.served.network
      const own: Address[] = []
      const { facilitatorUrl } = settings
      const workers =
        facilitatorUrl === null
          ? walletsOf(accounts).map((wallet) => createWorker(context, holder, wallet))
          : [createPusher(context, holder, facilitatorUrl)]
      for (const worker of workers) {
        own.push(worker.address)
        releases.push(worker.release)
        loop(`wallet ${worker.address}`, name, settings.pollMs, worker.step)
      }
      const confirm = createConfirmer(context)
      const notify = createNotifier(context)
      loop('conclude', name, settings.pollMs, async () => {
        const index = await readIndexState(context)
        await concludeMined(context, index)
        await confirm(index)
        await notify(index)
        if (index.status === 'current') await collectEvidence(context)
      })
      const report = createReporter(context)
      loop('upkeep', name, upkeepMs, async () => {
        await report()
        await adoptAbandoned(context, holder, own)
        const index = await readIndexState(context)
        await recheckEvidence(context, index)
        if (index.status !== 'current') return
        await recheckVoided(context)
        await keepUp(context, index.head)
      })
    }
  }

  async function stop(): Promise<void> {
    stopping.abort()
    await Promise.all(running)
    await Promise.allSettled(releases.map((release) => release()))
  }

  async function readiness(): Promise<Readiness[]> {
    const checks = [check('database', async () => void (await database`select 1`))]
    for (const context of contexts) {
      const { network, client } = context.served
      checks.push(
        check(`rpc ${network.name}`, async () => {
          const block = await client.getBlockNumber({ cacheTime: 0 })
          const seen = heads.get(network.name)
          if (seen?.block !== block) heads.set(network.name, { block, at: now().getTime() })
          // A development chain rests while nobody sends anything.
          else if (network.name !== 'localhost' && now().getTime() - seen.at > headStandsStillMs) {
            throw new Error(`no new block since ${new Date(seen.at).toISOString()}`)
          }
        }),
        check(`index ${network.name}`, async () => {
          const index = await readIndexState(context)
          if (index.status === 'behind') throw new Error(`behind: ${index.reason}`)
        }),
        check(`gas ${network.name}`, async () => {
          const balances = await Promise.all(accounts.map(({ address }) => client.getBalance({ address })))
          if (accounts.length > 0 && balances.every((balance) => balance === 0n))
            throw new Error('every wallet is empty')
        }),
      )
    }
    return Promise.all(checks)
  }

  const app = createApp({
    submit: {
      sql: database,
      networks,
      platformWallets: dependencies.platformWallets,
      now,
      timeoutMs: dependencies.submitTimeoutMs,
      rateLimiter: createRateLimiter({ database, log, now: () => now().getTime() }),
      limits: dependencies.submitLimits ?? defaultSubmitLimits,
      payersWithCode: new Map(
        contexts.map(({ served, payersWithCode }) => [served.network.name, payersWithCode]),
      ),
      log,
      wake,
      checkpoint: dependencies.checkpoint ?? (() => {}),
    },
    trustedProxies: dependencies.trustedProxies ?? 0,
    readiness,
    metrics,
    log,
  })
  return { app, start, stop }
}

function createContext(
  dependencies: KeeperDependencies,
  served: ServedNetwork,
  metrics: Context['metrics'],
): Context {
  const { database, settings, now, randomBytes32, log, checkpoint = () => {} } = dependencies
  return {
    sql: database,
    served,
    settings: { ...settings, ...gasLimitsOf(served.network, settings) },
    finalityBlocks: finalityOf(served.network.chainId),
    payersWithCode: createPayerCode(served.client, now),
    readDueBatches: createDueBatches(database, served),
    now,
    randomBytes32,
    checkpoint,
    log: log.child({ network: served.network.name }),
    metrics,
    memory: createMemory(),
  }
}

function walletsOf(accounts: readonly PrivateKeyAccount[]): SettlementWallet[] {
  return accounts.map((account) => ({
    address: account.address.toLowerCase() as Address,
    sign: (transaction) => account.signTransaction({ ...transaction, type: 'eip1559' }),
  }))
}

async function check(name: string, ask: () => Promise<void>): Promise<Readiness> {
  const tooLate = new AbortController()
  try {
    const timeout = delay(checkTimeoutMs, undefined, { signal: tooLate.signal }).then(() => {
      throw new Error(`no answer within ${checkTimeoutMs} ms`)
    })
    await Promise.race([ask(), timeout])
    return { name, ok: true }
  } catch (error) {
    const words =
      error instanceof Error && 'shortMessage' in error ? String(error.shortMessage) : String(error)
    return { name, ok: false, detail: words.replaceAll(/[a-z]+:\/\/\S+/g, '<url>').slice(0, 200) }
  } finally {
    tooLate.abort()
  }
}
