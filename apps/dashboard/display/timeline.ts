import type { Payment, Timeline } from '../gateway/answers.ts'
import { countOf, describeCode, nameTrigger } from './format.ts'

export type Step = {
  title: string
  /** Time in ISO 8601; null: the step has not happened. */
  at: string | null
  state: 'done' | 'now' | 'ahead' | 'failed'
  detail?: string
  txHash?: string
}

function done(title: string, at: string | null, detail: string, txHash?: string): Step {
  return { title, at, state: 'done', detail, ...(txHash && { txHash }) }
}

function ahead(title: string, at: string | null = null, detail?: string): Step {
  return { title, at, state: 'ahead', ...(detail && { detail }) }
}

/**
 * Returns a payment's timeline: past steps, the current step, and later steps.
 *
 * The chain decides: a payment that another keeper settled is shown as mined, although this gateway broadcast nothing.
 */
export function stepsOf(payment: Payment, timeline: Timeline): Step[] {
  const steps = payment.tab
    ? stepsOfTab(payment, payment.tab, timeline)
    : payment.source === 'facilitator'
      ? // The challenge came from an x402 middleware, which serves only after the settlement.
        [
          done(
            'Verified',
            timeline.acceptedAt,
            'The signature is valid. Your x402 middleware requested the settlement.',
          ),
        ]
      : stepsHere(timeline)
  const tries = [...failedTries(timeline), ...broadcasts(timeline)].sort(byTime)
  steps.push(...tries)

  const stop = endOf(payment, timeline)
  if (stop) return [...steps, stop]

  const isMined = timeline.mined !== null
  const last = steps.at(-1)
  if (!isMined && last) {
    // If the payment is settling, the current step is its broadcast. Otherwise the payment waits in the queue again.
    const isSent = payment.payment_status === 'settling'
    if (payment.held_by !== null) {
      steps.push({ title: 'Waits for gas', at: null, state: 'now', detail: heldBecause[payment.held_by] })
    } else if (last.state === 'done') last.state = 'now'
    if (payment.payment_status === 'retrying' && payment.nextAttemptAt !== null) {
      steps.push(ahead('Next attempt', payment.nextAttemptAt))
    }
    if (!isSent) steps.push(ahead('Broadcast'))
  }
  const end = [minedStep(timeline, payment), confirmedStep(timeline)]
  return [...steps, ...end, ...(payment.splitter === null ? [] : [paidOutStep(payment)])]
}

const heldBecause = {
  gas_price: 'Gas on this network is currently too expensive for any payment to settle.',
  gas_cost:
    'Its gas costs too much compared with its fee. It settles when gas is cheaper, or shortly before it expires.',
  gas_budget: 'Its gas costs more than its fee, and the operator’s gas budget for today is used up.',
  gas_allowance: 'It pays no fee, and the operator’s gas allowance for such payments is used up for today.',
} satisfies Record<NonNullable<Payment['held_by']>, string>

function stepsHere({ challengedAt, acceptedAt }: Timeline): Step[] {
  return [
    done('Challenged', challengedAt, 'The buyer received the price and a macaroon.'),
    done(
      'Verified',
      acceptedAt,
      'The signatures are valid. The service was rendered and the receipt signed.',
    ),
    done('Queued', acceptedAt, 'Until a settlement trigger fires.'),
  ]
}

/** Returns the steps of a tab. All requests on a tab are served before it closes. */
function stepsOfTab(
  { payment_status, failureCode }: Payment,
  { isOpen, openedAt, closedAt, requests }: NonNullable<Payment['tab']>,
  timeline: Timeline,
): Step[] {
  const count = countOf(requests, 'request')
  const opened = done('Opened', openedAt, 'The buyer signed the first state.')
  if (isOpen) {
    const detail = `${count} from all providers so far, each with its receipt.`
    return [opened, { title: 'In use', at: null, state: 'now', detail }, ahead('Closed'), ahead('Queued')]
  }
  const closed = done('Closed', closedAt, `With ${count} from all providers, each with its receipt.`)
  // This tab never becomes a payment, so it was never in the queue.
  if (payment_status === 'voided' || failureCode === 'tab_too_small') return [opened, closed]
  return [opened, closed, done('Queued', timeline.acceptedAt, 'Until a settlement trigger fires.')]
}

function byTime(a: Step, b: Step): number {
  return Date.parse(a.at ?? '') - Date.parse(b.at ?? '')
}

function failedTries({ failures }: Timeline): Step[] {
  return failures.map(({ attempt, code, detail, failedAt }) => ({
    title: `Attempt ${attempt} failed`,
    at: failedAt,
    state: 'failed',
    detail: detail === '' ? describeCode(code) : `${describeCode(code)}: ${detail}`,
  }))
}

/**
 * Returns one step for each batch that contained the payment: the batch's transaction, and how often a keeper replaced it.
 */
function broadcasts({ batches, mined }: Timeline): Step[] {
  return batches.flatMap(({ trigger, transactions }): Step[] => {
    const [first] = transactions
    if (first === undefined || transactions.every(({ broadcastAt }) => broadcastAt === null)) return []
    const shown =
      transactions.find(({ hash }) => hash === mined?.transactionHash) ?? transactions.at(-1) ?? first
    const replaced = transactions.filter(({ kind }) => kind === 'replacement').length
    const again = replaced === 0 ? '' : replaced === 1 ? ', replaced once' : `, replaced ${replaced} times`
    const detail = `Trigger: ${nameTrigger(trigger).toLowerCase()}${again}.`
    // Show the time of the first broadcast, because later broadcasts only repeat it.
    return [done('Broadcast', first.signedAt, detail, shown.hash)]
  })
}

function minedStep(timeline: Timeline, { platform }: Payment): Step {
  const { mined, batches } = timeline
  if (mined === null) return ahead('Mined')
  const isOurs = batches.some(({ transactions }) =>
    transactions.some(({ hash }) => hash === mined.transactionHash),
  )
  const who = isOurs ? '' : ' Another keeper settled the payment.'
  // Block times are whole seconds, so a transaction that was mined quickly can appear older than its broadcast.
  const isEarly = broadcasts(timeline).some(({ at }) => at !== null && at > mined.at)
  const clock = isEarly ? ', by the chain’s clock' : ''
  const fee =
    platform === null || platform.state === 'settled' || platform.value === '0'
      ? ''
      : ' The platform’s part has not moved yet.'
  const detail = `In block ${mined.blockNumber}${clock}.${who}${fee}`
  return done('Mined', mined.at, detail, mined.transactionHash)
}

function confirmedStep({ mined, confirmedAt, confirmations, confirmationsRequired }: Timeline): Step {
  const blocks = confirmationsRequired === 1 ? '1 block' : `${confirmationsRequired} blocks`
  if (confirmedAt !== null) return done('Confirmed', confirmedAt, `${blocks} on top of it.`)
  if (mined === null) return ahead('Confirmed')
  return { title: 'Confirmed', at: null, state: 'now', detail: `${confirmations} of ${blocks} on top of it.` }
}

/** Returns the payout: the buyer paid a splitter, which pays out both parts when someone sweeps it. */
function paidOutStep({ paidOut, provider }: Payment): Step {
  if (paidOut === null) {
    const isWaiting = provider.state === 'settled'
    const detail = 'Your part waits in the splitter, which can pay it only to you.'
    return ahead('Paid out', null, isWaiting ? detail : undefined)
  }
  const waits = paidOut.platformPaid ? '' : ' The platform’s part waits in a separate splitter.'
  return done('Paid out', paidOut.at, `In block ${paidOut.blockNumber}.${waits}`, paidOut.transactionHash)
}

/** Returns the last step of a payment that did not settle. */
function endOf({ payment_status, failureCode }: Payment, { voidedAt, failedAt }: Timeline): Step | undefined {
  if (payment_status === 'voided')
    return done('Voided', voidedAt, 'No service was rendered, so nothing is charged.')
  if (payment_status !== 'failed') return undefined
  const detail = failureCode === null ? 'Its authorizations have expired.' : describeCode(failureCode)
  return { title: 'Failed', at: failedAt, state: 'failed', detail }
}
