import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { errorCodes, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { textOf } from '@tollkeeper/sdk/protocol/fields'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import { type GatewayFlags, request } from '../provider/gateway.ts'
import { CliError } from '../terminal/cliError.ts'
import { printable, printJson, printLines } from '../terminal/output.ts'
import { describeStatus } from './paymentRow.ts'

export type ShowFlags = GatewayFlags

type Half = { to: string; value: string; transactionHash: string | null }

/** The fields of `GET /payments/{paymentId}` that are shown here. */
export type Payment = {
  paymentId: string
  payment_status: PaymentStatus
  tab: { isOpen: boolean; requests: number } | null
  network: string
  testnet: boolean
  payer: string
  resource: string
  totalUsdc: string
  providerUsdc: string
  platformUsdc: string
  acceptedAt: string
  provider: Half
  splitter: string | null
  paidOut: { at: string } | null
  nextAttemptAt: string | null
  held_by: string | null
  failureCode: string | null
  refunds: { refund_status: string; valueUsdc: string }[]
}

/** Prints a payment: its status, what happens next, its transaction and its receipt. */
export async function showPayment(id: string, flags: ShowFlags): Promise<void> {
  const answer = await request(flags, { method: 'GET', path: `/payments/${encodeURIComponent(id)}` })
  const payment = answer as unknown as Payment
  const receipt = await readReceipt(id, flags)
  const expectedAt = payment.payment_status === 'verified' ? await readEstimate(payment, flags) : null
  const meaning = describeStatus(payment.payment_status)
  const next = describeNext(payment, expectedAt)
  if (flags.json) return printJson({ ...answer, meaning, next, receipt })
  const { provider, totalUsdc, providerUsdc, platformUsdc, testnet } = payment
  const usdc = (amount: string) => formatUsdc(BigInt(amount))
  const requests = payment.tab === null ? '' : `, ${payment.tab.requests} requests on a tab`
  printLines(
    `${printable(payment.paymentId)}: ${meaning}`,
    `${usdc(totalUsdc)} USDC${testnet ? ' (testnet funds)' : ''} from ${printable(payment.payer)} on ${printable(payment.network)}` +
      ` for ${printable(payment.resource)}${requests}, accepted ${printable(payment.acceptedAt)}`,
    `Net ${usdc(providerUsdc)} USDC to ${printable(provider.to)}, fee ${usdc(platformUsdc)} USDC${describeRefunds(payment)}`,
    `Next: ${next}`,
    provider.transactionHash === null ? '' : `Transaction: ${printable(provider.transactionHash)}`,
    receipt === null ? '' : `Receipt: ${printable(receipt)}`,
  )
}

function describeRefunds({ refunds }: Payment): string {
  const sum = refunds
    .filter(({ refund_status }) => refund_status === 'settled')
    .reduce((total, { valueUsdc }) => total + BigInt(valueUsdc), 0n)
  return sum === 0n ? '' : `, refunded ${formatUsdc(sum)} USDC`
}

const heldBecause: Record<string, string> = {
  gas_price: 'gas is too expensive on this network',
  gas_cost: 'its gas costs too much compared with its fee',
  gas_budget: "its gas costs more than its fee, and today's budget for such payments is used up",
  gas_allowance: "it pays no fee, and today's gas allowance for such payments is used up",
}

/**
 * Describes what will happen to a payment, and what its provider can do. @param expectedAt ISO 8601 time, if the gateway expects
 * one.
 */
export function describeNext(payment: Payment, expectedAt: string | null): string {
  const { payment_status: status, tab, nextAttemptAt, held_by: heldBy, failureCode } = payment
  const { splitter, paidOut, paymentId } = payment
  const held = heldBy === null ? '' : `it waits for gas, because ${heldBecause[heldBy] ?? printable(heldBy)}`
  switch (status) {
    case 'verified':
      if (tab?.isOpen) return 'the tab settles once it is closed'
      if (held !== '') return held
      return expectedAt === null
        ? 'it settles with the next batch'
        : `it settles with the next batch, expected at ${expectedAt}`
    case 'settling':
      return 'it is settled once its transaction is mined'
    case 'retrying':
      return (
        held ||
        `the next attempt is ${nextAttemptAt === null ? 'due' : `at ${nextAttemptAt}`}${because(failureCode)}`
      )
    case 'partially_settled':
      return 'the other transfer is settled with a later batch'
    case 'failed':
      return `nothing happens by itself${because(failureCode)}. Once the cause is fixed, queue the payment again in the dashboard`
    case 'voided':
      return 'nothing: the payment is final'
    case 'settled':
      if (splitter !== null && paidOut === null)
        return `the splitter ${splitter} pays it out with a later batch, or immediately with \`tollkeeper sweep\``
      return `nothing. Refund it with \`tollkeeper provider refund ${printable(paymentId)}\``
  }
}

function because(code: string | null): string {
  if (code === null) return ''
  return `. Cause: ${isErrorCode(code) ? errorCodes[code].title : printable(code)}`
}

/** Returns the receipt. @returns null if the payment has no receipt because it came through the facilitator. */
async function readReceipt(id: string, flags: ShowFlags): Promise<string | null> {
  try {
    return textOf(
      (await request(flags, { method: 'GET', path: `/receipts/${encodeURIComponent(id)}` })).receipt,
    )
  } catch (error) {
    if (error instanceof CliError && error.code === 'unknown_payment') return null
    throw error
  }
}

/** Returns the time at which payments to the provider's wallet are expected to settle; null if the gateway expects no time. */
async function readEstimate({ provider, network }: Payment, flags: ShowFlags): Promise<string | null> {
  try {
    const query = { wallet: provider.to, network }
    const answer = await request(flags, { method: 'GET', path: '/settlements/status', query })
    return textOf(answer.estimated_settlement) || null
  } catch (error) {
    if (error instanceof CliError && error.code === 'unknown_wallet') return null
    throw error
  }
}
