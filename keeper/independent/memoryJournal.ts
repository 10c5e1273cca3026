import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { countDueSweeps } from '@tollkeeper/ledger/batches/sweeps'
import type { SignedTransaction } from '@tollkeeper/ledger/batches/transactions'
import { type PayerStanding, payerStanding } from '@tollkeeper/ledger/queue/isolation'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import type { Address } from 'viem'
import type { GasControl } from '../settler/gasControl.ts'
import type { GasHold } from '../settler/gasPolicy.ts'
import type { Journal, MinedVerdict, OpenBatch } from '../settler/journal.ts'
import { authorizationKey } from '../settler/outcomes.ts'
import type { Drop, PlannedBatch } from '../settler/plan.ts'
import { payersOf } from '../settler/prepare.ts'
import type { Account } from './budget.ts'

type Attempt = SignedTransaction & { at: number; triedAt: number | null; isTaken: boolean }

type InFlight = {
  batch: PlannedBatch
  items: BatchItem[]
  /** The keys of the items with which the batch began. */
  keys: string[]
  attempts: Attempt[]
  at: number
  account: Account
}

type MemoryJournalOptions = {
  /** Opens the account that counts a transaction's cost towards the keeper's daily budget. */
  openAccount: () => Account
  /** Creates the `GasControl` that decides whether the transaction of this account may spend its gas. */
  createGas: (account: Account) => GasControl
  now: () => Date
  /** Keys of the authorizations in flight. Wallets that share this set never settle the same authorization. Default: not shared. */
  authorizations?: Set<string>
  /** Called with the reason when an item is held back because of gas cost. */
  onHold?: (by: GasHold) => void
}

/** Totals of a wallet since the start. `spent` is for gas and `earned` from rewards, both in USDC base units. */
type Done = { batches: number; payments: number; spent: bigint; earned: bigint }

export type MemoryJournal = ReturnType<typeof createMemoryJournal>

/**
 * Time in ms for which the keeper skips an item that failed on chain, or whose authorization is used already. The gateway may still publish the item.
 */
const deferMs = 60_000
/** Time in ms for which the keeper skips an item that it holds back because of gas cost. */
const heldMs = 15_000
/** Time in ms for which the wallet waits after it found the token paused. */
const pausedTokenMs = 15_000

/**
 * Creates the journal of a keeper without a database. The journal is lost when the process ends, but the chain and the gateway have all that matters.
 */
export function createMemoryJournal({
  openAccount,
  createGas,
  now,
  authorizations = new Set(),
  onHold = () => {},
}: MemoryJournalOptions) {
  const inFlight = new Set<InFlight>()
  const isInFlight = (item: BatchItem) => authorizations.has(keyOf(item))
  let pausedUntil = 0
  const done: Done = { batches: 0, payments: 0, spent: 0n, earned: 0n }
  const minedFailures = new Map<Address, number>()
  /** For each authorization, the time in ms until which the keeper skips it. */
  const deferredUntil = new Map<string, number>()
  const untried = new Set<string>()
  const keyOf = ({ provider }: BatchItem) => authorizationKey(provider.authorization)

  function sayHeld(drops: readonly Drop[]): void {
    for (const drop of drops) if (drop.reason === 'held') onHold(drop.by)
  }

  function learn({ failed, spent, untried: perhaps }: MinedVerdict): void {
    const at = now().getTime()
    for (const payer of new Set(payersOf(failed.map(({ item }) => item))))
      minedFailures.set(payer, (minedFailures.get(payer) ?? 0) + 1)
    for (const item of [...failed.map((one) => one.item), ...spent])
      deferredUntil.set(keyOf(item), at + deferMs)
    for (const item of perhaps) untried.add(keyOf(item))
    for (const [key, until] of deferredUntil) if (until < at) deferredUntil.delete(key)
  }

  /** Forgets batches for which nothing was signed, and releases their reservations. Their items are planned again from the gateway's next answer. */
  function forgetUnsigned(): void {
    for (const one of inFlight) if (one.attempts.length === 0) end(one)
  }

  function end(one: InFlight): void {
    if (!inFlight.delete(one)) return
    one.account.release()
    for (const key of one.keys) authorizations.delete(key)
  }

  function opened(current: InFlight): OpenBatch {
    return {
      batch: current.batch,
      get offers() {
        const at = now().getTime()
        return current.attempts.map(({ at: storedAt, triedAt, raw, ...rest }) => ({
          ...rest,
          readRaw: async () => raw,
          ageMs: at - storedAt,
          triedAgoMs: triedAt === null ? null : at - triedAt,
        }))
      },
      ageMs: now().getTime() - current.at,
      gas: createGas(current.account),
      readItems: async () => current.items,
      // Sweeps only splitters that this batch pays, because without an index the balances of other splitters aren't known.
      readSweeps: async (items, most) => countDueSweeps(items, defaultTriggers.sweepCount).slice(0, most),
      async save(transaction, drops) {
        sayHeld(drops)
        const left = new Set(drops.flatMap(({ item, isPartial }) => (isPartial ? [] : item)))
        current.items = current.items.filter((item) => !left.has(item))
        for (const item of left) authorizations.delete(keyOf(item))
        current.attempts.unshift({ ...transaction, at: now().getTime(), triedAt: null, isTaken: false })
      },
      async markMined({ hash, receipt }, verdict, books) {
        current.account.book(books)
        done.spent += books.cost
        done.earned += books.reward
        learn(verdict)
        const mined = current.attempts.find((attempt) => attempt.hash === hash)
        if (receipt.status === 'success' && mined && mined.kind !== 'cancellation') {
          done.batches += 1
          done.payments += current.items.length - new Set(verdict.failed.map(({ item }) => item)).size
        }
        end(current)
      },
      async close({ result, drops = [] }) {
        const at = now().getTime()
        // A reorg dropped the transaction, so the items may be settled again at once.
        if (result === 'lost') deferredUntil.clear()
        sayHeld(drops)
        for (const { item, reason } of drops)
          deferredUntil.set(keyOf(item), at + (reason === 'held' ? heldMs : deferMs))
        // Pauses the wallet, because every other batch would find the token paused as well.
        if (drops.some(({ reason }) => reason === 'token_paused')) pausedUntil = at + pausedTokenMs
        end(current)
        return true
      },
    }
  }

  return {
    begin(batch: PlannedBatch, items: BatchItem[]): OpenBatch {
      forgetUnsigned()
      const keys = items.map(keyOf)
      const begun = { batch, items, keys, attempts: [], at: now().getTime(), account: openAccount() }
      inFlight.add(begun)
      for (const key of keys) authorizations.add(key)
      return opened(begun)
    },
    forgetUnsigned,
    /** Whether a wallet has an item in flight. */
    isInFlight,
    /**
     * Returns whether an item may be tried now, and if so whether it must be tried separately. Null means that it is in flight or skipped for
     * a while.
     */
    standing(item: BatchItem): PayerStanding | null {
      if (isInFlight(item)) return null
      if ((deferredUntil.get(keyOf(item)) ?? 0) > now().getTime()) return null
      const standing = payerStanding(minedFailures.get(item.provider.authorization.from) ?? 0)
      return standing === 'good' && untried.has(keyOf(item)) ? 'isolated' : standing
    },
    pausedUntil: () => pausedUntil,
    report: () => ({
      ...done,
      stillOut: [...inFlight].flatMap(({ attempts: [highest] }) => highest?.hash ?? []),
    }),
    readOpen: async () => {
      const nonceOf = ({ attempts: [highest] }: InFlight) => highest?.nonce ?? Number.POSITIVE_INFINITY
      return [...inFlight].toSorted((a, b) => nonceOf(a) - nonceOf(b)).map(opened)
    },
    readNonces: async () =>
      new Set([...inFlight].flatMap(({ attempts }) => attempts.map(({ nonce }) => nonce))),
    // The journal removes each batch with its offers once the batch is mined or closed, so there are no earlier offers.
    readOffers: async () => [],
    async markTried(hash, isTaken) {
      for (const attempt of [...inFlight].flatMap(({ attempts }) => attempts)) {
        if (attempt.hash !== hash) continue
        attempt.triedAt = now().getTime()
        attempt.isTaken ||= isTaken
      }
    },
    async pause(ms) {
      pausedUntil = now().getTime() + ms
    },
  } satisfies Journal & Record<string, unknown>
}
