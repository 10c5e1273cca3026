import { createChainReads } from '@tollkeeper/chain/chainReads'
import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter } from '@tollkeeper/chain/gasShares'
import { checkSignaturesHere } from '@tollkeeper/chain/payerSignatures'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createAccept } from '@tollkeeper/ledger/acceptance/acceptance'
import { createPayers } from '@tollkeeper/ledger/acceptance/payers'
import { createSettlementWatch } from '@tollkeeper/ledger/acceptance/settlementWatch'
import { createTraceRecorder } from '@tollkeeper/ledger/acceptance/traces'
import { createHooks, type HookOutcome } from '@tollkeeper/ledger/hooks/askHook'
import { createSalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import type { Logger } from '@tollkeeper/runtime/log'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import type { Tracer } from '@tollkeeper/runtime/trace'
import type { Address } from 'viem'
import type { Checkpoint } from '../settings/checkpoints.ts'
import type { KeeperEnvironment } from '../settings/config.ts'
import { createListings } from './facilitator/listing.ts'
import { createOpenLimit } from './facilitator/openLimit.ts'
import { createHookedPayees } from './hookedPayees.ts'

/**
 * Time in ms for which a payer's balance and the sum of its unsettled payments are cached. For each payment, the keeper reads the nonce and the
 * current balance together, and uses that balance instead of the cached one.
 */
const standingTtlMs = 30_000
/** Maximum time in ms for a contract wallet to check a signature. */
const contractTimeoutMs = 2_000

type HttpOptions = Pick<
  KeeperEnvironment,
  | 'platformWallets'
  | 'settings'
  | 'facilitator'
  | 'discovery'
  | 'submitLimits'
  | 'submitTimeoutMs'
  | 'trustedProxies'
  | 'webhookAllowPrivate'
> & {
  database: Database
  networks: readonly ServedNetwork[]
  /** The wallets that pay the gas. */
  accounts: readonly { address: Address }[]
  rateLimiter: RateLimiter
  log: Logger
  tracer: Tracer | null
  /** Called with the outcome of each request to a provider's hook. */
  onHookOutcome?: (outcome: HookOutcome) => void
  now: () => Date
  checkpoint?: Checkpoint
  /** Wakes the workers, because there is something to do. */
  wake: () => void
  /** Aborted when the process stops, so that waiting callers are answered. Default: never aborted. */
  stopping?: AbortSignal
}

/** The context of the routes that take signed transfers: x402's facilitator, and `POST /submit`. */
export type HttpContext = ReturnType<typeof createHttpContext>

export function createHttpContext({ database, settings, facilitator, ...options }: HttpOptions) {
  const { platformWallets, submitLimits, submitTimeoutMs, trustedProxies, rateLimiter, log, tracer } = options
  const { now, wake, checkpoint = () => {}, stopping = new AbortController().signal } = options
  const [platformWallet] = platformWallets
  if (platformWallet === undefined) throw new TypeError('A keeper needs a platform wallet')
  const clock = () => now().getTime()
  let isWaking = false
  return {
    platformWallets,
    submitLimits,
    submitTimeoutMs,
    trustedProxies,
    rateLimiter,
    tracer,
    sql: database,
    served: options.networks,
    networks: new Map(
      options.networks.map((served) => {
        const reads = createChainReads(served)
        const payers = createPayers(served, reads, {
          database,
          checkBalance: true,
          caps: { payer: null, newPayer: null },
          balanceTtlMs: standingTtlMs,
          now: clock,
        })
        const limits = gasLimitsOf(served.network, settings)
        const meter = createGasMeter(served, { ...settings, ...limits }, now)
        return [served.network.chainId, { served, reads, payers, meter, gasPerFee: limits.gasPerFee }]
      }),
    ),
    accept: createAccept(database),
    hooks: createHooks({
      sql: database,
      guard: createAddressGuard({ allowPrivate: options.webhookAllowPrivate }),
      now: clock,
      ...(options.onHookOutcome && { onOutcome: options.onHookOutcome }),
    }),
    hookedPayees: createHookedPayees(database),
    sales: createSalesSwitch(database),
    recordTrace: tracer ? createTraceRecorder(database, log) : () => {},
    watch: createSettlementWatch(database, stopping),
    stopping,
    signatures: { payerSignatures: checkSignaturesHere, contractTimeoutMs },
    /**
     * The fee recipient that is stored with a facilitator's payment. Such a payment has no fee, so the recipient only decides which payments
     * can be in the same batch.
     */
    platformWallet,
    settings: facilitator,
    /** Maximum gas money that all callers without a grant may draw in total per UTC day, in USDC base units. */
    gasAllowance: settings.gasAllowance,
    openLimit: createOpenLimit(database, facilitator.maxOpen),
    /** The wallets that send the transactions. */
    signers: options.accounts.map(({ address }) => address),
    /** Null if this keeper lists no resources. */
    listings: options.discovery && createListings(database, { log, now: clock }),
    windowMs: settings.triggers.windowMs,
    /** Wakes the workers after this many ms, when a payment will be due. */
    wakeIn(ms: number) {
      if (isWaking) return
      isWaking = true
      setTimeout(() => {
        isWaking = false
        wake()
      }, ms).unref()
    },
    wake,
    checkpoint,
    now,
  }
}

/** A served network with the cached state of its payers. */
export type HttpNetwork = ReturnType<typeof networkOf>

export function networkOf({ networks }: HttpContext, { network: { chainId, name } }: ServedNetwork) {
  const network = networks.get(chainId)
  if (!network) throw new Error(`the network ${name} is served, but the cache of its payers is missing`)
  return network
}
