import { batchGasCut, roomForSweeps } from '@tollkeeper/chain/gas'
import { createGasMeter } from '@tollkeeper/chain/gasShares'
import { hasPending, readNonce } from '@tollkeeper/chain/receipts'
import { type BatchItem, feeOfItem } from '@tollkeeper/ledger/batches/items'
import { countDueSweeps } from '@tollkeeper/ledger/batches/sweeps'
import { type Lane, orderLanes, rememberTurn, worthOfNext } from '@tollkeeper/ledger/queue/lanes'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import type { Logger } from '@tollkeeper/runtime/log'
import type { Hex } from 'viem'
import type { StepResult } from '../loops/worker.ts'
import type { Checkpoint } from '../settings/checkpoints.ts'
import { advanceBatch } from '../settler/advance.ts'
import { createCeiling } from '../settler/ceiling.ts'
import { countFitting, takeAlike } from '../settler/company.ts'
import type { SettlementWallet, SettlerContext } from '../settler/context.ts'
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
  gas_price: 'gas is dearer than MAX_FEE_GWEI: waiting',
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
    ceiling: createCeiling({
      meter: createGasMeter(served, settings, now),
      settings,
      draw: async (draws) =>
        account.reserve(
          draws.map(({ amount }) => amount),
          settings.dailyBudget,
        ),
      drawForSweeps: async (amount) => account.reserveSweeps(amount, settings.dailyBudget),
      bears: 'all',
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
    const due = await readLanes(options, journal)
    for (const lane of orderLanes(worthOfNext(due), turns)) {
      for (const { pending, items } of due.filter((one) => one.lane === lane)) {
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
    }
    sayOnce('nothing more to settle at the moment', 'info')
    return 'idle'
  }

  return {
    /** To be taken again and again: `busy` if there may be more to do at once. */
    async step(): Promise<StepResult> {
      const open = await journal.readOpen()
      const [dearest] = open?.offers ?? []
      if (!open || !dearest) return settleNext()
      if (
        dearest.ageMs >= settings.replaceAfterMs &&
        (await readNonce(served.clients, wallet.address)) < dearest.nonce
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

/** Reads what is published, and groups what can share a transaction, as much as fits. */
async function readLanes(
  { readPending, payersWithCode }: SettlerOptions,
  journal: MemoryJournal,
): Promise<DueItems[]> {
  const due: DueItems[] = []
  for (const pending of await readPending()) {
    const withCode = await payersWithCode(payersOf(pending.items))
    const hasCode = ({ provider }: BatchItem) => withCode.has(provider.authorization.from)
    const laneOf = (item: BatchItem): Lane | 'refused' => {
      const standing = journal.standing(item)
      if (standing !== 'good') return standing
      if (pending.trigger === 'high_value') return 'high_value'
      if (item.tab) return 'tab'
      return hasCode(item) ? 'code' : 'shared'
    }
    // Tabs of payers with code go apart within their lane.
    const kinds = Map.groupBy(pending.items, (item) => `${laneOf(item)} ${item.tab ? hasCode(item) : ''}`)
    for (const items of kinds.values()) {
      const lane = items[0] ? laneOf(items[0]) : 'refused'
      if (lane === 'refused') continue
      const isIsolated = lane === 'quarantined' || items.some(hasCode)
      const fitting = takeFitting(lane, items, isIsolated)
      const worth = fitting.reduce((sum, item) => sum + feeOfItem(item), 0n)
      due.push({ lane, pending, items: fitting, worth })
    }
  }
  return due
}

function takeFitting(lane: Lane, items: BatchItem[], isIsolated: boolean): BatchItem[] {
  // One of each quarantined payer at a time: what it costs is counted by transactions.
  const ofPayers = Map.groupBy(items, (item) => item.provider.authorization.from)
  const firsts = [...ofPayers.values()].flatMap(([item]) => (item ? { ...item, isQuarantined: true } : []))
  const alike = takeAlike(
    (lane === 'quarantined' ? firsts : items).map((item) => ({
      item,
      isPair: item.fee !== null,
      isRefund: false,
      recipient: item.provider.authorization.to,
      tab: shapeOfTab(item),
    })),
  )
  const own = alike.map(({ item }) => item)
  const sweeps = alike[0]?.isPair ? 0 : countDueSweeps(own, defaultTriggers.sweepCount).length
  return own.slice(0, countFitting(alike, isIsolated, batchGasCut - roomForSweeps(sweeps)))
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
