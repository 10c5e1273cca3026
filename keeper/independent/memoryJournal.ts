import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { countDueSweeps } from '@tollkeeper/ledger/batches/sweeps'
import type { SignedTransaction } from '@tollkeeper/ledger/batches/transactions'
import { type PayerStanding, payerStanding } from '@tollkeeper/ledger/queue/quarantine'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import type { Address } from 'viem'
import type { GasHold } from '../settler/gasPolicy.ts'
import type { Journal, MinedVerdict, OpenBatch } from '../settler/journal.ts'
import { authorizationKey } from '../settler/outcomes.ts'
import type { Drop, PlannedBatch } from '../settler/plan.ts'
import { payersOf } from '../settler/prepare.ts'
import type { Account } from './budget.ts'

type Attempt = SignedTransaction & { at: number; triedAt: number | null }

type InFlight = { batch: PlannedBatch; items: BatchItem[]; attempts: Attempt[]; at: number }

/** What a wallet has done since the start. `spent` and `earned`: gas and rewards, USDC base units. */
type Done = { batches: number; payments: number; spent: bigint; earned: bigint }

export type MemoryJournal = ReturnType<typeof createMemoryJournal>

/** How long we leave an item alone that failed on chain or was used by others, though its gateway still publishes it. */
const deferMs = 60_000
/** How long we leave an item alone when nothing pays for its gas. */
const heldMs = 15_000
/** How long we wait while the token is paused. */
const pausedTokenMs = 15_000

/** The journal of a keeper without a database. When it ends, chain and gateway still know what it forgets. */
export function createMemoryJournal(
  account: Account,
  now: () => Date,
  onHold: (by: GasHold) => void = () => {},
) {
  let inFlight: InFlight | null = null
  let pausedUntil = 0
  const done: Done = { batches: 0, payments: 0, spent: 0n, earned: 0n }
  const minedFailures = new Map<Address, number>()
  /** By authorization: until when (ms) we leave it alone. */
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

  function opened(current: InFlight): OpenBatch {
    const end = () => {
      if (inFlight === current) inFlight = null
    }
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
      readItems: async () => current.items,
      // Only an index knows what earlier payments left in splitters.
      readSweeps: async (items, most) => countDueSweeps(items, defaultTriggers.sweepCount).slice(0, most),
      async save(transaction, drops) {
        sayHeld(drops)
        const left = new Set(drops.flatMap(({ item, isPartial }) => (isPartial ? [] : item)))
        current.items = current.items.filter((item) => !left.has(item))
        current.attempts.unshift({ ...transaction, at: now().getTime(), triedAt: null })
      },
      async markMined({ hash, receipt }, verdict, books) {
        account.book(books)
        done.spent += books.cost
        done.earned += books.reward
        learn(verdict)
        const mined = current.attempts.find((attempt) => attempt.hash === hash)
        if (receipt.status === 'success' && mined && mined.kind !== 'cancellation') {
          done.batches += 1
          done.payments += current.items.length - new Set(verdict.failed.map(({ item }) => item)).size
        }
        end()
      },
      async close({ outcome, drops = [] }) {
        const at = now().getTime()
        // A reorg dropped the transaction, so the items may be settled again at once.
        if (outcome === 'lost') deferredUntil.clear()
        sayHeld(drops)
        for (const { item, reason } of drops)
          deferredUntil.set(keyOf(item), at + (reason === 'held' ? heldMs : deferMs))
        // The token is paused: every batch would find the same.
        if (drops.some(({ reason }) => reason === 'token_paused')) pausedUntil = at + pausedTokenMs
        end()
        return true
      },
    }
  }

  return {
    begin(batch: PlannedBatch, items: BatchItem[]): OpenBatch {
      inFlight = { batch, items, attempts: [], at: now().getTime() }
      return opened(inFlight)
    },
    /** Returns how an item may be tried now; null: it is left alone for a while. */
    standing(item: BatchItem): PayerStanding | null {
      if ((deferredUntil.get(keyOf(item)) ?? 0) > now().getTime()) return null
      const standing = payerStanding(minedFailures.get(item.provider.authorization.from) ?? 0)
      return standing === 'good' && untried.has(keyOf(item)) ? 'isolated' : standing
    },
    pausedUntil: () => pausedUntil,
    report: () => ({ ...done, stillOut: inFlight?.attempts[0]?.hash ?? null }),
    readOpen: async () => (inFlight ? opened(inFlight) : null),
    // It has forgotten its earlier batches, or seen them mined.
    readOffers: async () => [],
    async markTried(hash) {
      for (const attempt of inFlight?.attempts ?? [])
        if (attempt.hash === hash) attempt.triedAt = now().getTime()
    },
    async pause(ms) {
      pausedUntil = now().getTime() + ms
    },
  } satisfies Journal & Record<string, unknown>
}
