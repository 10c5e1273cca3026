import {
  delayMs,
  type GatewayAnswer,
  type GatewayCall,
  type GatewayClientOptions,
  postOnce,
  sleep,
  startDeadline,
} from './gatewayClient.ts'

/** What the handler of a paid request gets. */
export type VerifiedPayment = {
  verified: true
  /** The gateway's receipt as JWS compact; `verifyReceipt` of `@tollkeeper/sdk/audit` reads it. */
  receipt: string
  /** The payment's identifier at the gateway, `pay_…`; of a tab, that of the payment as which it settles. */
  paymentId: string
  /** Where it was bought on a tab: which, and the number of the request. */
  tab?: { id: string; sequence: number }
  /**
   * Charges less than the price, where what a request costs is known only afterwards and it was bought on a tab. The last call
   * counts. The buyer is told at once if it comes before the answer's head is sent, and otherwise when the tab closes.
   *
   * @param usdc decimal USDC, at most the price; 0 charges nothing.
   * @returns false where it stays at the price: it wasn't bought on a tab, the tab is closed, the middleware has no `apiKey`,
   *   the gateway doesn't answer, or the amount is over the price.
   * @throws {ProtocolError} `invalid_field` for what isn't a USDC amount.
   */
  charge: (usdc: string | number) => Promise<boolean>
}

/**
 * The outcome of a verification.
 *
 * `mayBeAccepted`: the gateway may have accepted the payment although its answer was lost. If the request isn't served,
 * {@link voidLostVerification} voids that payment.
 */
export type Verification = {
  /** Undefined where no certain answer came in time. */
  answer: GatewayAnswer | undefined
  mayBeAccepted: boolean
}

/** Codes of status 503 by which the gateway says for certain that it has not accepted the payment, or not yet. */
const certainRefusals: ReadonlySet<unknown> = new Set([
  'overloaded',
  'provider_limit_exceeded',
  'settlement_pending',
  'token_paused',
])

/** How long to wait before each further question about a verification whose outcome is unknown. */
const recoveryDelaysMs = [1000, 4000, 16_000, 60_000]

/**
 * Asks the gateway to verify, again and again with the same Idempotency-Key until it knows, within `timeoutMs`.
 *
 * An answer that is lost, and one that says that something behind the gateway failed, leave open whether the payment was
 * accepted. The same call again gets the same answer, if it was.
 */
export async function askForVerification(
  options: GatewayClientOptions,
  call: GatewayCall,
): Promise<Verification> {
  const deadline = startDeadline(options.timeoutMs)
  let mayBeAccepted = false
  for (let attempt = 0; !deadline.signal.aborted; attempt++) {
    if (attempt > 0) await sleep(delayMs(attempt))
    const outcome = await postOnce(options, call, deadline)
    if (outcome.kind === 'answered' && isCertain(outcome.answer, mayBeAccepted)) {
      const { answer } = outcome
      // A refusal may overtake an acceptance that is still being committed.
      return { answer, mayBeAccepted: mayBeAccepted && !saysWhatIsStored(answer) }
    }
    if (outcome.kind !== 'answered') options.onFailure?.(outcome)
    if (outcome.kind !== 'refused') mayBeAccepted = true
    // Nothing has listened at the gateway's address at any attempt, so nothing was accepted.
    else if (!mayBeAccepted && attempt === 2) break
  }
  return { answer: undefined, mayBeAccepted }
}

/**
 * Goes on asking for a verification whose outcome is unknown, and voids the payment if it was accepted.
 *
 * @param voidPayment voids a payment, and tells whether it is voided.
 */
export async function voidLostVerification(
  options: GatewayClientOptions,
  call: GatewayCall,
  voidPayment: (payment: Pick<VerifiedPayment, 'paymentId' | 'tab'>) => Promise<boolean>,
): Promise<void> {
  for (const delay of recoveryDelaysMs) {
    await sleep(delay)
    const { answer } = await askForVerification(options, call)
    const { paymentId, tab } = (answer?.body ?? {}) as Partial<VerifiedPayment>
    // Another request has the payment, or it is being settled and the buyer will present it again.
    if (answer !== undefined && answer.status !== 200 && saysWhatIsStored(answer)) return
    const isAccepted = answer?.status === 200 && typeof paymentId === 'string'
    if (isAccepted && (await voidPayment({ paymentId, ...(tab && { tab }) }))) return
  }
}

/** Whether the answer comes from what is stored: it is the payment's own, or says that another request has it. */
function saysWhatIsStored(answer: GatewayAnswer): boolean {
  return answer.status === 200 || answer.status === 409 || codeOf(answer) === 'settlement_pending'
}

function codeOf({ body }: GatewayAnswer): unknown {
  return (body as { code?: unknown } | undefined)?.code
}

function isCertain(answer: GatewayAnswer, mayBeAccepted: boolean): boolean {
  const { status } = answer
  // The limit is counted before the gateway looks at what it has stored.
  if (status === 429) return !mayBeAccepted
  if (status < 500) return status !== 408
  return certainRefusals.has(codeOf(answer))
}
