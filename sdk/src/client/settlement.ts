import type { Hash } from 'viem'
import { type ReceiptKeys, verifyReceipt } from '../audit/verifyReceipt.ts'
import type { PaymentStatus } from '../protocol/paymentStatus.ts'
import { isPaymentStatus } from '../protocol/paymentStatus.ts'
import { zeroHash } from '../protocol/receipt.ts'
import { HttpError, InsufficientGasError, NetworkError, readProblem, SettlementError } from './errors.ts'
import type { SignedPayment } from './signedPayment.ts'
import { type Answer, type Deadline, pause, sendToGateway, startDeadline, urlOf } from './transport.ts'

/** A payment that is settled and confirmed on chain. */
export type Settlement = {
  paymentId: string
  status: PaymentStatus
  /** The transaction that paid the provider. */
  paymentTxHash: Hash
  /** The receipt, which the gateway signed again after the settlement so that it names the transaction. */
  receipt: string
}

/** The connection to the client's gateway, which all calls share. */
export type Gateway = {
  fetch: typeof globalThis.fetch
  log: (message: string) => void
  defaultTimeoutMs: number
  /** The gateway's public keys. */
  receiptKeys: ReceiptKeys
}

/**
 * Default wait in ms. A payment waits for its batch at most an hour (conformance 8.1-8); five more minutes are for the chain.
 */
const defaultWaitMs = 65 * 60 * 1000
const defaultPollingInterval = 2_000

/** Timeout and polling interval of a wait for a settlement. */
export type WaitOptions = {
  /** Timeout in ms. When it passes, the wait throws a `RequestTimeoutError`. Default: 65 minutes. */
  timeoutMs?: number
  /**
   * Interval in ms between requests to the gateway. Default: the client's `pollingInterval`, otherwise 2,000.
   */
  pollingInterval?: number
  signal?: AbortSignal
}

/** Polls the gateway until the payment's receipt names its transaction. Retries a failed request. */
export async function waitForSettlement(
  gatewayUrl: string,
  paymentId: string,
  options: WaitOptions,
  gateway: Gateway,
): Promise<Settlement> {
  const deadline: Deadline = {
    ...startDeadline(options.timeoutMs ?? defaultWaitMs, options.signal),
    outcome: 'unknown',
  }
  try {
    for (;;) {
      const settlement = await lookUp(gatewayUrl, paymentId, gateway, deadline)
      if (settlement) return settlement
      await pause(options.pollingInterval ?? defaultPollingInterval, deadline)
    }
  } finally {
    deadline.signal.end?.()
  }
}

/** Sends both transfers to a facilitator (conformance 4.2). If the same transfers are sent again, the facilitator returns the same hash. */
export async function settleNow(
  facilitatorUrl: string,
  payment: SignedPayment,
  options: { timeout?: number; signal?: AbortSignal },
  { fetch, log, defaultTimeoutMs }: Gateway,
): Promise<{ paymentTxHash: Hash }> {
  if (payment.tab)
    throw new TypeError('A request on a tab settles with its tab: call close() to close the tab')
  if (payment.header) throw new TypeError('A seller that does not use Tollkeeper settles its payments itself')
  const deadline = startDeadline(options.timeout ?? defaultTimeoutMs, options.signal)
  const init = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ network: payment.network, transfers: payment.payloads }),
  }
  const url = urlOf(facilitatorUrl, 'submit')
  const answer = await sendToGateway(fetch, url, init, deadline).finally(deadline.signal.end)
  const { status, body } = answer
  const { code, detail } = readProblem(status, body)
  if (code === 'insufficient_gas_funds') throw new InsufficientGasError(detail, { status, body, payment })
  const { txHash } = (body ?? {}) as { txHash?: unknown }
  if (status !== 200 || typeof txHash !== 'string' || !/^0x[0-9a-f]{64}$/i.test(txHash)) {
    throw new HttpError(code ?? 'http_error', `Settlement failed with status ${status}: ${detail}`, {
      status,
      body,
      payment,
    })
  }
  log(`settled by ${txHash}`)
  return { paymentTxHash: txHash as Hash }
}

async function lookUp(
  gatewayUrl: string,
  paymentId: string,
  gateway: Gateway,
  deadline: Deadline,
): Promise<Settlement | undefined> {
  const payment = await get(urlOf(gatewayUrl, `payments/${encodeURIComponent(paymentId)}`), gateway, deadline)
  const status = (payment?.body as { payment_status?: unknown } | undefined)?.payment_status
  if (!payment || !isPaymentStatus(status)) return undefined
  gateway.log(`${paymentId} is ${status}`)
  if (status === 'failed' || status === 'voided') {
    const code = status === 'failed' ? 'settlement_failed' : 'payment_voided'
    throw new SettlementError(code, `Payment ${paymentId} is ${status}`, { paymentId, body: payment.body })
  }
  if (status !== 'settled') return undefined
  const answer = await get(urlOf(gatewayUrl, `receipts/${encodeURIComponent(paymentId)}`), gateway, deadline)
  const receipt = (answer?.body as { receipt?: unknown } | undefined)?.receipt
  if (typeof receipt !== 'string') return undefined
  const claims = await verifyReceipt(receipt, gateway.receiptKeys).catch(() => undefined)
  // The receipt names no transaction until the transaction has the network's confirmations.
  if (claims?.paymentId !== paymentId || claims.transactionHash === zeroHash) return undefined
  return { paymentId, status, paymentTxHash: claims.transactionHash, receipt }
}

/** Returns undefined if a retry may help. Throws for a definite rejection. */
async function get(url: string, { fetch }: Gateway, deadline: Deadline): Promise<Answer | undefined> {
  let answer: Answer
  try {
    answer = await sendToGateway(fetch, url, { headers: { accept: 'application/json' } }, deadline)
  } catch (error) {
    if (error instanceof NetworkError) return undefined
    throw error
  }
  if (answer.status === 200) return answer
  if (answer.status === 429 || answer.status >= 500) return undefined
  const { code, detail } = readProblem(answer.status, answer.body)
  throw new HttpError(code ?? 'http_error', `Look-up failed with status ${answer.status}: ${detail}`, {
    ...answer,
    outcome: 'unknown',
  })
}
