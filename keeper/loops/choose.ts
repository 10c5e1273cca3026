import type { GasPrices } from '@tollkeeper/chain/gasShares'
import type { DueBatch } from '@tollkeeper/ledger/queue/dueBatches'
import { type Lane, orderByTurns } from '@tollkeeper/ledger/queue/lanes'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'
import type { Address } from 'viem'
import { cutBatch } from '../settler/batchCut.ts'
import { decideGas, type GasDecision, type GasPolicy } from '../settler/gasPolicy.ts'

/** Minimum interval in ms between two pairs that go alone so that waiting splitters can be swept. */
const pairAloneEveryMs = 600_000

/** What one look at a network's queue shows a wallet. */
export type QueueSnapshot = {
  /** Empty while the token is paused. */
  due: readonly DueBatch[]
  /** Payments of blocked payers, which are still to be failed. */
  blocked: ReadonlySet<string>
  /** Null: nothing is due. */
  prices: GasPrices | null
  /** Splitters that wait to be swept, by platform. */
  waitingSplitters: ReadonlyMap<Address, number>
  /** The lanes of the wallet's last batches, the latest last. */
  turns: readonly Lane[]
  /** The wallet's next batch for callers of POST /settle is still open to others. */
  isGathering: boolean
  /** When (ms) a pair last went alone for the splitters' sake. */
  pairAloneAt: number
  now: Date
}

/** A batch that a wallet may claim next. */
export type ClaimPlan = {
  due: DueBatch
  /** The payments of the batch, the most urgent first. Those without gas wait instead. */
  payments: readonly QueuedPayment[]
  gas: GasDecision
  /** One pair goes alone, so that its batch can sweep. */
  isPairAlone: boolean
}

/** Plans what a wallet claims next by what it sees of the queue. It takes the plans in order, until one leads to a batch. */
export function* planClaims(snapshot: QueueSnapshot, policy: GasPolicy): Generator<ClaimPlan> {
  const { prices, turns, isGathering, now } = snapshot
  if (prices === null || policy.isPriceTooHigh(prices)) return
  const cuts = cutDue(snapshot)
  for (const { lane, payments, due, isPairAlone } of orderByTurns(cuts, turns)) {
    // The wallet stays free meanwhile: a batch of another lane would keep it busy for the block that these callers wait for.
    if (lane === 'facilitator' && isGathering) return
    const requests = payments.map((payment) => ({ ...payment, paymentId: payment.id }))
    const gas = decideGas(policy, requests, prices, { isWhole: lane === 'direct', now })
    yield { due, payments, gas, isPairAlone }
  }
}

/** Cuts each due batch to what its next transaction can settle. */
function cutDue({ due, blocked, waitingSplitters, pairAloneAt, now }: QueueSnapshot) {
  const mayTakePairAlone = now.getTime() - pairAloneAt >= pairAloneEveryMs
  return due
    .filter(({ payments }) => !payments.some(({ id }) => blocked.has(id)))
    .map((one) => {
      const count = waitingSplitters.get(one.group.feeRecipient) ?? 0
      const cut = cutBatch(one.lane, one.payments, { count, mayTakePairAlone })
      return { ...cut, due: one, lane: one.lane }
    })
}
