import { gasCutOf } from '@tollkeeper/chain/gas'
import { createGasMeter } from '@tollkeeper/chain/gasShares'
import { hasPending } from '@tollkeeper/chain/receipts'
import { type BatchItem, feeOfItem } from '@tollkeeper/ledger/batches/items'
import { countDueSweeps } from '@tollkeeper/ledger/batches/sweeps'
import { groupByLane, type Lane, orderByTurns, rememberTurn } from '@tollkeeper/ledger/queue/lanes'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import type { Logger } from '@tollkeeper/runtime/log'
import type { Address, Hex } from 'viem'
import type { StepResult } from '../loops/worker.ts'
import type { Checkpoint } from '../settings/checkpoints.ts'
import { beginBatch, followBatches, mayBegin } from '../settler/advance.ts'
import { cutBatch, mayBeginLane, toLanesInFlight } from '../settler/batchCut.ts'
import type { SettlementWallet, SettlerContext } from '../settler/context.ts'
import { createGasControl } from '../settler/gasControl.ts'
import { createFullCostPolicy } from '../settler/gasPolicy.ts'
import type { OpenBatch } from '../settler/journal.ts'
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
  /** Authorizations in flight, shared by the keeper's wallets on the network. Default: not shared. */
  inFlight?: Set<string>
  randomBytes32: () => Hex
  /** For tests; does nothing otherwise. */
  checkpoint?: Checkpoint
}

export type Settler = ReturnType<typeof createSettler>

const holdWords = {
  gas_price: 'waiting: the gas price is above MAX_FEE_GWEI',
  gas_cost: 'waiting: gas costs too much for the fees of the due payments',
  gas_budget: "waiting: the day's gas budget is used up",
} as const

/** Creates the settler of one wallet, which settles a gateway's published payments at its own cost. */
export function createSettler(options: SettlerOptions) {
  const { served, wallet, settings, now, log, metrics } = options
  const sayOnce = createSayOnce(log)
  const meter = createGasMeter(served, settings, now)
  const policy = createFullCostPolicy(settings)
  const journal = createMemoryJournal({
    openAccount: options.budget.openAccount,
    ...(options.inFlight && { authorizations: options.inFlight }),
    createGas: (account) =>
      createGasControl({
        meter,
        policy,
        draw: async (draws) =>
          account.reserve(
            draws.map(({ amount }) => amount),
            settings.dailyBudget,
          ),
        drawForSweeps: async (amount) => account.reserveSweeps(amount, settings.dailyBudget),
        now,
      }),
    now,
    onHold(by) {
      if (by === 'gas_allowance') return
      metrics.holds.inc({ network: served.network.name, reason: by })
      sayOnce(holdWords[by])
    },
  })
  const context: SettlerContext = {
    served,
    settings,
    wallet,
    address: wallet.address,
    journal,
    payersWithCode: options.payersWithCode,
    readNotBefore: async () => 0n,
    missingSince: new Map(),
    fundedInFlight: new Map(),
    now,
    checkpoint: options.checkpoint ?? (() => {}),
    log,
    metrics,
  }
  const mustWait = createEarlierWait(context)
  let turns: Lane[] = []

  async function settleNext(inFlight: readonly OpenBatch[]): Promise<StepResult> {
    if (journal.pausedUntil() > now().getTime() || (await mustWait())) return 'idle'
    const lanesInFlight = toLanesInFlight(inFlight)
    const gasCut = gasCutOf(served.network)
    const due = (await readDue(options, journal, inFlight)).filter(({ lane }) =>
      mayBeginLane(lane, lanesInFlight, gasCut),
    )
    for (const { lane, pending, items } of orderByTurns(due, turns)) {
      if (journal.pausedUntil() > now().getTime()) return 'idle'
      // Since the queue was read, another wallet has begun to settle some of these items.
      if (items.some(journal.isInFlight)) continue
      const batch: PlannedBatch = {
        batchId: options.randomBytes32(),
        token: served.token,
        feeRecipient: pending.feeRecipient,
        trigger: pending.trigger,
        lane,
      }
      if ((await beginBatch(context, journal.begin(batch, items), inFlight)) !== 'sent') continue
      turns = rememberTurn(turns, lane)
      sayOnce('')
      return 'busy'
    }
    sayOnce('waiting for due payments', 'info')
    return 'idle'
  }

  return {
    /** Runs one step; call it repeatedly. Returns `busy` if there may be more to do at once. */
    async step(): Promise<StepResult> {
      // Removes batches of an attempt that failed before it signed anything.
      journal.forgetUnsigned()
      const open = await journal.readOpen()
      const followed = await followBatches(context, open)
      if (followed.progress === 'mined') return 'busy'
      const [oldest] = open.flatMap(({ offers: [highest] }) => highest ?? [])
      if (followed.hasGap && oldest && oldest.ageMs >= settings.replaceAfterMs) {
        // A reorg dropped the transaction with the nonce before these batches, and no one sends that transaction again. So the next batches
        // start from the freed nonce.
        log.warn(
          { batches: open.length },
          'a reorg freed the nonce before these batches: the next batches start from that nonce',
        )
        for (const one of open.toReversed()) await one.close({ result: 'lost', failure: 'deferred' })
        return 'busy'
      }
      return mayBegin(context, open, false) ? settleNext(open) : 'idle'
    },
    /** Returns the totals so far, and the transactions that are still in flight. */
    report: journal.report,
  }
}

/** Items that can share a transaction. `worth` is the platform's part of them, in USDC base units. */
type DueItems = { lane: Lane; pending: PendingBatch; items: BatchItem[]; worth: bigint }

/** Reads the published items, in groups that can share a transaction. Each group has as many items as fit. */
async function readDue(
  { readPending, payersWithCode, served }: SettlerOptions,
  journal: MemoryJournal,
  inFlight: readonly OpenBatch[],
): Promise<DueItems[]> {
  const due: DueItems[] = []
  const highValue = inFlight.filter(({ batch }) => batch.lane === 'high_value')
  const busy = new Set((await Promise.all(highValue.map(({ readItems }) => readItems()))).flatMap(payersOf))
  for (const pending of await readPending()) {
    const withCode = await payersWithCode(payersOf(pending.items))
    const payments = pending.items.flatMap((item) => toQueued(item, pending, withCode, journal) ?? [])
    for (const group of groupByLane(payments)) {
      const sweeps = countDueSweeps(
        group.payments.map(({ item }) => item),
        defaultTriggers.sweepCount,
      )
      // If a payer's account has code, the payer can make all its transactions in flight fail at once. So such a payer may have only one transaction
      // in flight.
      const payments =
        group.lane === 'high_value'
          ? group.payments.filter(({ hasCode, payer }) => !hasCode || !busy.has(payer))
          : group.payments
      if (payments.length === 0) continue
      const waiting = { count: sweeps.length, mayTakePairAlone: false }
      const cut = cutBatch(group.lane, payments, waiting, gasCutOf(served.network))
      const items = cut.payments.map(({ item, isIsolated }) =>
        isIsolated ? { ...item, isIsolated: true } : item,
      )
      due.push({ lane: group.lane, pending, items, worth: cut.worth })
    }
  }
  return due
}

/** Returns an item together with the fields that decide which other items its transaction can contain. Returns null if the item isn't tried now. */
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

/** Returns a function that logs a message only if it differs from the last one, so that each obstacle is logged once. */
function createSayOnce(log: Logger) {
  let last = ''
  return (message: string, level: 'info' | 'warn' = 'warn'): void => {
    if (message !== last && message !== '') log[level](message)
    last = message
  }
}

/**
 * Returns a function that waits for a transaction that an earlier, killed run may have sent. That transaction settles what this run would settle, so
 * it gets as much time to be mined as a transaction of this run. After that time, this run reuses its nonce with a higher fee.
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
      log.info(
        "waiting for a transaction that this wallet sent before the keeper started and that isn't mined yet",
      )
    }
    if (now().getTime() - since < settings.replaceAfterMs) return true
    log.warn(
      "the transaction that this wallet sent before the keeper started wasn't mined in time: reusing its nonce",
    )
    since = 'over'
    return false
  }
}
