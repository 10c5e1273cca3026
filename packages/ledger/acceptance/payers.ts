import type { ChainReads, PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createCache } from '@tollkeeper/runtime/cache'
import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import type { Address } from 'viem'
import type { Database } from '../store/database.ts'
import { type Exposure, readExposures } from './exposure.ts'

/** What may be unsettled at a time, USDC base units; null: the balance alone decides. */
export type PayerCaps = {
  payer: bigint | null
  /** For a payer that never settled anything here. */
  newPayer: bigint | null
}

/**
 * What a payer may owe for tabs: a base, and what it has earned. A payer earns a share of all that it settled, but no more than the fees
 * that the platform kept of that.
 */
export type TabCredit = { base: bigint; basisPoints: bigint }

/** How long the gateway relies on a balance. It renews it in the background after about half of that. */
export const balanceTtlMs = 30_000

export type PayersOptions = {
  database: Database
  /** Whether a payer's balance must cover what it has unsettled. */
  checkBalance: boolean
  caps: PayerCaps
  /** Default: there are no tabs. */
  tabCredit?: TabCredit | undefined
  /** How long a balance is relied on. */
  balanceTtlMs: number
  now: () => number
  /** Spreads renewals, from 0 to below 1. Default: `Math.random`. */
  random?: () => number
}

/** What a payer may still do. */
export type Allowance = {
  /**
   * What `payer.accepted_total` may reach; null: nothing limits it.
   *
   * It is the balance (or cap), plus all that was accepted and is no longer owed. A settlement lowers the balance by what it adds
   * to the rest. So a cached limit stays true, and the database checks the payer's total against it without reading the index.
   */
  limit: bigint | null
  /** What the limit comes from. */
  by: 'balance' | 'cap'
  /** The limit for purchases on tabs, which also depends on what the payer has settled so far; null: nothing limits it. */
  tabLimit: bigint | null
  /** What the payer may owe on tabs: the base and what it has earned, USDC base units; null: nothing limits it. */
  credit: bigint | null
  /** The limit by the payer's own settlements and what an operator granted. Beyond it, the common budget lends; null: it has neither. */
  earnedLimit: bigint | null
  /** USDC base units, at the block that the limit was computed for. */
  available: bigint
  /** USDC base units. */
  unsettled: bigint
  /** USDC base units that the payer owes through its own fault (packages/ledger/acceptance/badDebt.ts). Until they are paid it buys nothing. */
  debt: bigint
  /** Why no payment of this payer would or may move; undefined: it would, or this wasn't read. */
  blockedBy: 'payer_blacklisted' | 'payer_quarantined' | 'token_paused' | undefined
  /** Whether the account has code, if that was read with the balance. */
  hasCode: boolean | undefined
}

/** What a payer owes as of a block, and what the chain says of it there; undefined if balances don't count. */
type Standing = { exposure: Exposure; state: PayerState | undefined }

type ExposureAsked = { payer: Address; block: bigint }

export type Payers = ReturnType<typeof createPayers>

const maxPayers = 200_000
/**
 * How long we rely on a payer's debts, where a balance or a cap bounds them. Payments settled, voided or expired since then
 * still count as owed, which is the safe side. If a payment doesn't fit, the debts are read anew. Each process reads them, at a
 * cost that grows with the payer's open payments.
 */
const exposureTtlMs = 300_000
// Shortest time between two reads of the chain that a buyer without money can cause.
const minRefreshMs = 100
/**
 * Most renewals at a time. Payers that were first seen together, as after a start, come due together, and renewals take
 * processor time from the requests beside them.
 */
const maxRefreshes = 64
/** Renewals gather: nobody waits for one, and one alone costs nearly as much as many together. */
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

/** What is known about the payers of one network, cached. */
export function createPayers(served: ServedNetwork, reads: Pick<ChainReads, 'read'>, options: PayersOptions) {
  const { checkBalance, caps, balanceTtlMs, now, random } = options

  async function readGroup(asked: ExposureAsked[]): Promise<Exposure[]> {
    const read = await readExposures(options.database, served, {
      payers: asked.map(({ payer }) => payer),
      // The earliest block: what moved after it counts as unsettled, which is right for later ones, too.
      block: asked.reduce((least, { block }) => (block < least ? block : least), maxBlock),
      now: Math.floor(now() / 1000),
      withHistory: caps.newPayer !== null,
      withSettled: options.tabCredit !== undefined,
    })
    return asked.map(({ payer }) => read.get(payer) as Exposure)
  }

  const exposures = createGroupCommit<ExposureAsked, Exposure>({
    commit: readGroup,
    // One query for many costs little more than for one, so payers gather while a query runs.
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

  async function readStanding(payer: Address, isBehind: boolean, seen?: PayerState): Promise<Standing> {
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
  const standings = createCache<Address, Standing>({
    load: readStanding,
    ...relyOn(standingTtlMs),
    max: maxPayers,
    now,
    ...(random && { random }),
  })

  return {
    /** Whether the account has code (a contract wallet, or an EIP-7702 delegation), as of the last look at the chain. */
    hasCode: async (payer: Address) => (await states.get(payer)).hasCode,
    /** @param seen what the chain just said of the payer: its balance counts where it is lower than the one remembered. */
    async allowance(payer: Address, seen?: PayerState): Promise<Allowance> {
      const state = await stateOf(payer, seen)
      return toAllowance(
        await standings.get(payer, (one, isBehind) => readStanding(one, isBehind, state)),
        state,
        options,
      )
    },
    /** Whether `allowance` would answer without asking the chain. */
    isCached: (payer: Address) => standings.has(payer) && (!checkBalance || states.has(payer)),
    /** The allowance as of now, where the cached one did not suffice. */
    async freshAllowance(payer: Address, seen?: PayerState): Promise<Allowance> {
      const state = checkBalance ? (seen ?? (await states.refresh(payer, minRefreshMs))) : undefined
      const standing = await standings.refresh(payer, minRefreshMs, (one, isBehind) =>
        readStanding(one, isBehind, state),
      )
      return toAllowance(standing, state, options)
    },
    /** Forgets the payer's allowance: something of it was voided here. */
    forget: (payer: Address) => standings.delete(payer),
  }
}

/** How long a value is served, and when it is renewed: after a quarter to three quarters of that. */
function relyOn(ttlMs: number) {
  return { ttlMs, refreshAfterMs: ttlMs / 2, refreshJitterMs: ttlMs / 4, maxRefreshes }
}

/**
 * Combines a payer's debts with two states of the chain: the one when the debts were read, and the latest.
 * The lower balance counts, which never allows too much: settlements since then lowered the latest balance but still count as
 * owed, and a reorg raises the latest balance, while the earlier one knows what had settled.
 * reorg raises it, and of what was taken for settled the balance of then knows. So the lower one never allows too much.
 */
function toAllowance(
  { exposure, state: earlier }: Standing,
  latest: PayerState | undefined,
  { caps, tabCredit }: Pick<PayersOptions, 'caps' | 'tabCredit'>,
): Allowance {
  const state = lower(earlier, latest)
  const { acceptedTotal, unsettled, debt, everSettled, isQuarantined } = exposure
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
    blockedBy: blockOf(state, isQuarantined),
  }
}

/**
 * The credit that a payer has earned: never more than the fees that the platform kept of it. So the platform can bear a default within
 * earned credit without losing, and nobody gains by trading with wallets of one's own.
 */
function earnedCredit({ settled, keptFees }: Exposure, { basisPoints }: TabCredit): bigint {
  const share = (settled * basisPoints) / 10_000n
  return share < keptFees ? share : keptFees
}

/** The latest state, but with the lower of both balances. */
function lower(earlier: PayerState | undefined, latest: PayerState | undefined): PayerState | undefined {
  if (earlier === undefined || latest === undefined) return earlier
  return { ...latest, balance: earlier.balance < latest.balance ? earlier.balance : latest.balance }
}

function blockOf(state: PayerState | undefined, isQuarantined: boolean): Allowance['blockedBy'] {
  if (state?.isPaused) return 'token_paused'
  if (state?.isBlacklisted) return 'payer_blacklisted'
  return isQuarantined ? 'payer_quarantined' : undefined
}
