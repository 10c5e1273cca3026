import type { ChainReads, PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createCache } from '@tollkeeper/runtime/cache'
import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import type { Address } from 'viem'
import type { Database } from '../store/database.ts'
import { type Exposure, readExposures } from './exposure.ts'

/** Maximum unsettled amounts, in USDC base units; null if only the balance decides. */
export type PayerCaps = {
  payer: bigint | null
  /** For a payer of whom no payment has ever settled. */
  newPayer: bigint | null
}

/**
 * Maximum that a payer may owe for tabs: a base plus its earned credit. A payer earns a share of everything that it settled, but at most
 * the fees that the platform kept of that.
 */
export type TabCredit = { base: bigint; basisPoints: bigint }

/** Time in ms for which the gateway uses a cached balance. It is renewed in the background after about half of that. */
export const balanceTtlMs = 30_000

export type PayersOptions = {
  database: Database
  /** Whether a payer's balance must cover its unsettled payments. */
  checkBalance: boolean
  caps: PayerCaps
  /** Absent if payers can't buy on tabs. */
  tabCredit?: TabCredit | undefined
  /** Time in ms for which a cached balance is used. */
  balanceTtlMs: number
  now: () => number
  /** Spreads renewals; returns a number in [0, 1). Default: `Math.random`. */
  random?: () => number
}

/** The amount that a payer may still spend. */
export type Allowance = {
  /**
   * Maximum for `payer.accepted_total`; null if unlimited.
   *
   * It is the balance (or cap) plus all accepted amounts that are no longer owed. When a payment settles, the balance falls by its amount, and the
   * amounts that are no longer owed rise by it, so the limit doesn't change. It can therefore be cached, and the database compares it with the
   * payer's total without reading the index.
   */
  limit: bigint | null
  /** The source of the limit. */
  by: 'balance' | 'cap'
  /** The limit for purchases on tabs, which also depends on the payer's settled payments; null if unlimited. */
  tabLimit: bigint | null
  /** Maximum that the payer may owe on tabs, the base plus its earned credit, in USDC base units; null if unlimited. */
  credit: bigint | null
  /**
   * Like `tabLimit`, but only with the credit that the payer's own settlements earned and that an operator granted. Purchases beyond this limit draw
   * on the common budget. Null if the payer has neither earned credit nor a grant.
   */
  earnedLimit: bigint | null
  /** The lower one of balance and cap, in USDC base units. The balance is that of the block for which `limit` was computed. */
  available: bigint
  /** USDC base units. */
  unsettled: bigint
  /**
   * USDC base units that the payer owes through its own fault (packages/ledger/acceptance/badDebt.ts). It can't buy until they are paid.
   */
  debt: bigint
  /** Reason why none of this payer's payments can settle; undefined if they can, or if this wasn't read. */
  blockedBy: 'payer_blacklisted' | 'payer_blocked' | 'token_paused' | undefined
  /** Whether the account has code, if that was read with the balance. */
  hasCode: boolean | undefined
}

/** A payer's debts at a block, and its state on chain at that block, which is undefined if balances don't count. */
type CachedStanding = { exposure: Exposure; state: PayerState | undefined }

type ExposureAsked = { payer: Address; block: bigint }

export type Payers = ReturnType<typeof createPayers>

const maxPayers = 200_000
/**
 * Time in ms for which a payer's debts are cached if a balance or a cap bounds them. Payments that were settled, voided or expired since then still
 * count as owed, which errs on the safe side. If the cached debts leave too little for a payment, they are read again. They are cached this long
 * because every process reads them, and the cost of a read grows with the payer's open payments.
 */
const exposureTtlMs = 300_000
// Minimum interval in ms between two fresh reads for the same payer. It limits how many reads of the chain a buyer without money can cause.
const minRefreshMs = 100
/**
 * Maximum concurrent renewals. Payers that were first seen at the same time, for example after a start, become due together, and renewals
 * take CPU time from concurrent requests.
 */
const maxRefreshes = 64
/** Renewals are grouped, because a single renewal costs nearly as much as many together. The delay doesn't matter: no caller waits for a renewal. */
const renewed = { items: 32, afterMs: 250 }
const renewals = {
  maxItems: renewed.items,
  concurrency: maxRefreshes / renewed.items,
  alone: renewed,
  beside: renewed,
  isItemFault: () => false,
}
const queriesInFlight = 2
const payersAQuery = 200
const maxBlock = 2n ** 62n

/** Creates the cache of the payers of one network. */
export function createPayers(served: ServedNetwork, reads: Pick<ChainReads, 'read'>, options: PayersOptions) {
  const { checkBalance, caps, balanceTtlMs, now, random } = options

  async function readGroup(asked: ExposureAsked[]): Promise<Exposure[]> {
    const read = await readExposures(options.database, served, {
      payers: asked.map(({ payer }) => payer),
      // Use the earliest block: payments that moved after it count as unsettled, which is also safe for later blocks.
      block: asked.reduce((least, { block }) => (block < least ? block : least), maxBlock),
      now: Math.floor(now() / 1000),
      withHistory: caps.newPayer !== null,
      withSettled: options.tabCredit !== undefined,
    })
    return asked.map(({ payer }) => read.get(payer) as Exposure)
  }

  const exposures = createGroupCommit<ExposureAsked, Exposure>({
    commit: readGroup,
    // A query for many payers costs little more than for one, so payers are grouped while a query runs.
    maxItems: payersAQuery,
    concurrency: queriesInFlight,
    isItemFault: () => false,
  })
  const renewedExposures = createGroupCommit<ExposureAsked, Exposure>({ ...renewals, commit: readGroup })
  const renewedStates = createGroupCommit<Address, PayerState>({
    ...renewals,
    commit: (asked) => Promise.all(asked.map((payer) => reads.read({ payer }))),
  })

  async function readState(payer: Address, isBehind: boolean): Promise<PayerState> {
    return isBehind ? renewedStates.submit(payer) : reads.read({ payer })
  }

  async function readPayerStanding(
    payer: Address,
    isBehind: boolean,
    seen?: PayerState,
  ): Promise<CachedStanding> {
    const state = checkBalance ? (seen ?? (await readState(payer, isBehind))) : undefined
    const block = state?.blockNumber ?? (await served.client.getBlockNumber())
    return { exposure: await (isBehind ? renewedExposures : exposures).submit({ payer, block }), state }
  }

  const states = createCache<Address, PayerState>({
    load: readState,
    ...relyOn(balanceTtlMs),
    max: maxPayers,
    now,
    ...(random && { random }),
  })

  async function stateOf(payer: Address, seen?: PayerState): Promise<PayerState | undefined> {
    if (!checkBalance) return undefined
    const known = states.get(payer, seen && (async () => seen))
    return seen ?? known
  }

  const isBounded = checkBalance || caps.payer !== null
  const standingTtlMs = isBounded ? Math.max(exposureTtlMs, balanceTtlMs) : balanceTtlMs
  const standings = createCache<Address, CachedStanding>({
    load: readPayerStanding,
    ...relyOn(standingTtlMs),
    max: maxPayers,
    now,
    ...(random && { random }),
  })

  return {
    /** Returns whether the account has code (a contract wallet, or an EIP-7702 delegation), at the last read of the chain. */
    hasCode: async (payer: Address) => (await states.get(payer)).hasCode,
    /** @param seen the payer's state that was just read from the chain. Its balance counts if it is lower than the cached balance. */
    async allowance(payer: Address, seen?: PayerState): Promise<Allowance> {
      const state = await stateOf(payer, seen)
      return toAllowance(
        await standings.get(payer, (one, isBehind) => readPayerStanding(one, isBehind, state)),
        state,
        options,
      )
    },
    /** Returns whether `allowance` would answer without a query to the chain. */
    isCached: (payer: Address) => standings.has(payer) && (!checkBalance || states.has(payer)),
    /** Reads the current allowance, because the cached allowance didn't cover a payment. */
    async freshAllowance(payer: Address, seen?: PayerState): Promise<Allowance> {
      const state = checkBalance ? (seen ?? (await states.refresh(payer, minRefreshMs))) : undefined
      const standing = await standings.refresh(payer, minRefreshMs, (one, isBehind) =>
        readPayerStanding(one, isBehind, state),
      )
      return toAllowance(standing, state, options)
    },
    /** Removes the payer's allowance from the cache, because this process voided one of its payments. */
    forget: (payer: Address) => standings.delete(payer),
  }
}

/** Returns cache options for values that are served for `ttlMs` and renewed after a quarter to three quarters of that. */
function relyOn(ttlMs: number) {
  return { ttlMs, refreshAfterMs: ttlMs / 2, refreshJitterMs: ttlMs / 4, maxRefreshes }
}

/**
 * Combines a payer's debts with two states of the chain: the state when the debts were read, and the latest. The lower balance counts, which
 * never allows too much. Settlements since the debts were read lowered the latest balance, although they still count as owed. A reorg
 * raises the latest balance, but the earlier balance still reflects the payments that counted as settled.
 */
function toAllowance(
  { exposure, state: earlier }: CachedStanding,
  latest: PayerState | undefined,
  { caps, tabCredit }: Pick<PayersOptions, 'caps' | 'tabCredit'>,
): Allowance {
  const state = lower(earlier, latest)
  const { acceptedTotal, unsettled, debt, everSettled, isBlocked } = exposure
  const cap = everSettled ? caps.payer : (caps.newPayer ?? caps.payer)
  const balance = state?.balance ?? null
  const by = cap !== null && (balance === null || cap < balance) ? 'cap' : 'balance'
  const available = by === 'cap' ? cap : balance
  const earned = tabCredit ? earnedCredit(exposure, tabCredit) : 0n
  const lost = exposure.leftUnpaid + exposure.covered
  const { granted } = exposure
  const credit = tabCredit ? (granted ?? tabCredit.base) + earned - lost : null
  const limitFor = (amount: bigint | null) =>
    amount === null ? null : amount + acceptedTotal - unsettled - debt
  return {
    limit: limitFor(available),
    credit,
    tabLimit: limitFor(credit !== null && (available === null || credit < available) ? credit : available),
    earnedLimit: earned > 0n || granted !== null ? limitFor((granted ?? 0n) + earned - lost) : null,
    by,
    available: available ?? 0n,
    unsettled,
    debt,
    hasCode: state?.hasCode,
    blockedBy: blockOf(state, isBlocked),
  }
}

/**
 * Returns the payer's earned credit, which is never more than the fees that the platform kept of it. So the platform can bear a default
 * within earned credit without a loss, and no one gains by trading between their own wallets.
 */
function earnedCredit({ settled, keptFees }: Exposure, { basisPoints }: TabCredit): bigint {
  const share = (settled * basisPoints) / 10_000n
  return share < keptFees ? share : keptFees
}

/** Returns the latest state with the lower of both balances. */
function lower(earlier: PayerState | undefined, latest: PayerState | undefined): PayerState | undefined {
  if (earlier === undefined || latest === undefined) return earlier
  return { ...latest, balance: earlier.balance < latest.balance ? earlier.balance : latest.balance }
}

function blockOf(state: PayerState | undefined, isBlocked: boolean): Allowance['blockedBy'] {
  if (state?.isPaused) return 'token_paused'
  if (state?.isBlacklisted) return 'payer_blacklisted'
  return isBlocked ? 'payer_blocked' : undefined
}
