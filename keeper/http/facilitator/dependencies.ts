import type { Address } from 'viem'
import { createChainReads } from '#chain/chainReads'
import { gasLimitsOf } from '#chain/gasLimits'
import { createGasMeter } from '#chain/gasShares'
import { checkSignaturesHere } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { createAccept } from '#ledger/acceptance/acceptance'
import { createPayers } from '#ledger/acceptance/payers'
import { createTraceRecorder } from '#ledger/acceptance/traces'
import type { Database } from '#ledger/store/database'
import type { Logger } from '#process/log'
import type { Tracer } from '#process/trace'
import type { Checkpoint } from '../../settings/checkpoints.ts'
import type { FacilitatorSettings, KeeperSettings } from '../../settings/settings.ts'
import { createListings } from './listing.ts'
import { createOpenLimit } from './openLimit.ts'
import type { FacilitatorDependencies } from './routes.ts'
import { createSettlementWatch } from './settlementWatch.ts'

const defaultFacilitatorSettings: FacilitatorSettings = {
  isOpen: false,
  reserveMs: 90_000,
  timeoutMs: 40_000,
  // A standard client waits for 90 s.
  holdMs: 80_000,
  fee: 0n,
  maxOpen: 1_000,
}

/** How long payers' debts are cached. Balances are fresher: each look-up of a nonce brings one. */
const standingTtlMs = 30_000
const contractTimeoutMs = 2_000

export type FacilitatorOptions = {
  database: Database
  networks: readonly ServedNetwork[]
  /** The wallets that pay the gas. */
  accounts: readonly { address: Address }[]
  platformWallets: readonly Address[]
  settings: KeeperSettings
  facilitator?: Partial<FacilitatorSettings>
  /** Whether resources are listed. */
  discovery: boolean
  log: Logger
  tracer?: Tracer | null
  now: () => Date
  checkpoint?: Checkpoint
}

/** The facilitator's dependencies; `wake` tells the keeper's workers that there is something to do. */
export function createFacilitatorDependencies(
  {
    database,
    networks,
    accounts,
    platformWallets,
    settings,
    facilitator,
    discovery,
    log,
    tracer = null,
    now,
    checkpoint = () => {},
  }: FacilitatorOptions,
  wake: () => void,
): FacilitatorDependencies {
  const [platformWallet] = platformWallets
  if (platformWallet === undefined) throw new TypeError('A keeper needs a platform wallet')
  const clock = () => now().getTime()
  const effective = { ...defaultFacilitatorSettings, ...facilitator }
  let isWaking = false
  return {
    sql: database,
    networks: new Map(
      networks.map((served) => {
        const reads = createChainReads(served)
        const options = {
          database,
          checkBalance: true,
          caps: { payer: null, newPayer: null },
          balanceTtlMs: standingTtlMs,
        }
        const payers = createPayers(served, reads, { ...options, now: clock })
        const limits = gasLimitsOf(served.network, settings)
        const meter = createGasMeter(served, { ...settings, ...limits }, now)
        return [served.network.chainId, { served, reads, payers, meter, gasPerFee: limits.gasPerFee }]
      }),
    ),
    accept: createAccept(database),
    recordTrace: tracer ? createTraceRecorder(database, log) : () => {},
    watch: createSettlementWatch(database),
    payerSignatures: checkSignaturesHere,
    contractTimeoutMs,
    platformWallet,
    settings: effective,
    gasAllowance: settings.gasAllowance,
    openLimit: createOpenLimit(database, effective.maxOpen),
    signers: accounts.map(({ address }) => address),
    listings: discovery ? createListings(database, { log, now: clock }) : null,
    windowMs: settings.triggers.windowMs,
    wakeIn(ms) {
      if (isWaking) return
      isWaking = true
      setTimeout(() => {
        isWaking = false
        wake()
      }, ms).unref()
    },
    checkpoint,
    now,
  }
}
