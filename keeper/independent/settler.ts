import { createGasMeter } from '@tollkeeper/chain/gasShares'
import { hasPending, readNonce } from '@tollkeeper/chain/receipts'
import { type BatchItem, feeOfItem } from '@tollkeeper/ledger/batches/items'
import { countDueSweeps } from '@tollkeeper/ledger/batches/sweeps'
import { groupByLane, type Lane, orderByTurns, rememberTurn } from '@tollkeeper/ledger/queue/lanes'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import type { Logger } from '@tollkeeper/runtime/log'
import type { Address, Hex } from 'viem'
import type { StepResult } from '../loops/worker.ts'
import type { Checkpoint } from '../settings/checkpoints.ts'
import { advanceBatch } from '../settler/advance.ts'
import { cutBatch } from '../settler/batchCut.ts'
import type { SettlementWallet, SettlerContext } from '../settler/context.ts'
import { createGasControl } from '../settler/gasControl.ts'
import { createFullCostPolicy } from '../settler/gasPolicy.ts'
import { type PlannedBatch, shapeOfTab } from '../settler/plan.ts'
import { payersOf } from '../settler/prepare.ts'
import type { Budget } from './budget.ts'
import { createMemoryJournal, type MemoryJournal } from './memoryJournal.ts'
import type { PendingBatch } from './pendingQueue.ts'

export type SettlerOptions = Pick<
  SettlerContext,
  'served' | 'settings' | 'payersWithCode' | 'now' | 'log' | 'metrics'
> & {
  wallet: SettlementWallet
  budget: Budget
  readPending: () => Promise<PendingBatch[]>
  randomBytes32: () => Hex
  /** For tests; does nothing otherwise. */
  checkpoint?: Checkpoint
}

export type Settler = ReturnType<typeof createSettler>

const holdWords = {
  gas_price: 'gas is more expensive than MAX_FEE_GWEI: waiting',
  gas_cost: 'gas costs too much for the fees that it settles: waiting',
  gas_budget: "the day's gas budget is used up",
} as const

/** One wallet that settles what a gateway publishes, at its own cost, with one transaction in flight. */
export function createSettler(options: SettlerOptions) {
  const { served, wallet, settings, now, log, metrics } = options
  const account = options.budget.openAccount()
  const sayOnce = createSayOnce(log)
  const journal = createMemoryJournal(account, now, (by) => {
    if (by === 'gas_allowance') return
    metrics.holds.inc({ network: served.network.name, reason: by })
    sayOnce(holdWords[by])
  })
  const context: SettlerContext = {
    served,
    settings,
    wallet,
    address: wallet.address,
    journal,
    gas: createGasControl({
      meter: createGasMeter(served, settings, now),
      policy: createFullCostPolicy(settings),
      draw: async (draws) =>
        account.reserve(
          draws.map(({ amount }) => amount),
          settings.dailyBudget,
        ),
      drawForSweeps: async (amount) => account.reserveSweeps(amount, settings.dailyBudget),
      now,
    }),
    payersWithCode: options.payersWithCode,
    readNotBefore: async () => 0n,
    missingSince: new Map(),
    now,
    checkpoint: options.checkpoint ?? (() => {}),
    log,
    metrics,
  }
  const mustWait = createEarlierWait(context)
  let turns: Lane[] = []

  async function settleNext(): Promise<StepResult> {
    // An attempt that failed before it sent anything may have left a reservation.
    account.release()
    if (journal.pausedUntil() > now().getTime() || (await mustWait())) return 'idle'
    for (const { lane, pending, items } of orderByTurns(await readDue(options, journal), turns)) {
      if (journal.pausedUntil() > now().getTime()) return 'idle'
      const batch: PlannedBatch = {
        batchId: options.randomBytes32(),
        token: served.token,
        feeRecipient: pending.feeRecipient,
        trigger: pending.trigger,
        lane,
      }
      if ((await advanceBatch(context, journal.begin(batch, items))) !== 'sent') continue
      turns = rememberTurn(turns, lane)
      sayOnce('')
      return 'busy'
    }
    sayOnce('nothing more to settle at the moment', 'info')
    return 'idle'
  }

  return {
    /** To be taken again and again: `busy` if there may be more to do at once. */
    async step(): Promise<StepResult> {
      const open = await journal.readOpen()
      const [highest] = open?.offers ?? []
      if (!open || !highest) return settleNext()
      if (
        highest.ageMs >= settings.replaceAfterMs &&
        (await readNonce(served.clients, wallet.address)) < highest.nonce
      ) {
        // A reorg dropped the transaction before it, and nobody sends that again, so the next batch starts from there.
        log.warn({ batch: open.batch.batchId }, 'a reorg took the nonce before this one back: starting anew')
        await open.close({ outcome: 'lost', failure: 'deferred' })
        return 'busy'
      }
      return (await advanceBatch(context, open)) === 'mined' ? 'busy' : 'idle'
    },
    /** What it has done so far, and what of it is still out. */
    report: journal.report,
  }
}

/** `worth`: the platform's part of them, USDC base units. */
type DueItems = { lane: Lane; pending: PendingBatch; items: BatchItem[]; worth: bigint }

/** Reads what is published, grouped by what can share a transaction, as much of each group as fits. */
async function readDue(
  { readPending, payersWithCode }: SettlerOptions,
  journal: MemoryJournal,
): Promise<DueItems[]> {
  const due: DueItems[] = []
  for (const pending of await readPending()) {
    const withCode = await payersWithCode(payersOf(pending.items))
    const payments = pending.items.flatMap((item) => toQueued(item, pending, withCode, journal) ?? [])
    for (const group of groupByLane(payments)) {
      const sweeps = countDueSweeps(
        group.payments.map(({ item }) => item),
        defaultTriggers.sweepCount,
      )
      const cut = cutBatch(group.lane, group.payments, { count: sweeps.length, mayTakePairAlone: false })
      const items = cut.payments.map(({ item, isIsolated }) =>
        isIsolated ? { ...item, isQuarantined: true } : item,
      )
      due.push({ lane: group.lane, pending, items, worth: cut.worth })
    }
  }
  return due
}

/** Returns an item with the fields that decide what it can share a transaction with; null if it isn't tried now. */
function toQueued(
  item: BatchItem,
  { trigger }: PendingBatch,
  withCode: ReadonlySet<Address>,
  journal: MemoryJournal,
) {
  const standing = journal.standing(item)
  if (standing === null || standing === 'blocked') return null
  const { from: payer, to: recipient } = item.provider.authorization
  return {
    item,
    payer,
    recipient,
    fee: feeOfItem(item),
    tab: shapeOfTab(item),
    isPair: item.fee !== null,
    isRefund: false,
    isTab: item.tab !== undefined,
    isHighValue: trigger === 'high_value',
    isIsolated: standing === 'isolated',
    hasCode: withCode.has(payer),
  }
}

/** Logs each obstacle once, not at every look. */
function createSayOnce(log: Logger) {
  let last = ''
  return (message: string, level: 'info' | 'warn' = 'warn'): void => {
    if (message !== last && message !== '') log[level](message)
    last = message
  }
}

/**
 * Waits for a transaction that an earlier run, killed since, may have sent. It settles what this run would, so it gets the time
 * of a transaction of our own. After that ours takes its nonce, and offers more.
 */
function createEarlierWait({ served, address, settings, now, log }: SettlerContext) {
  let since: number | 'not yet' | 'over' = 'not yet'
  return async (): Promise<boolean> => {
    if (since === 'over') return false
    if (!(await hasPending(served.clients, address))) {
      since = 'over'
      return false
    }
    if (since === 'not yet') {
      since = now().getTime()
      log.info('a transaction of this wallet from before the start is not mined yet: waiting for it')
    }
    if (now().getTime() - since < settings.replaceAfterMs) return true
    log.warn('the transaction from before the start is not mined in time: its nonce is used again')
    since = 'over'
    return false
  }
}
