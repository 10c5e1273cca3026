import {
  delayMs,
  type GatewayAnswer,
  type GatewayCall,
  type GatewayClientOptions,
  postOnce,
  sleep,
  startDeadline,
} from './gatewayClient.ts'
import { askUntilCertain, maxOpen, type WaitUntil } from './recovery.ts'
import type { UsedPass } from './usedPass.ts'

/** The payment that the handler of a paid request receives. */
export type VerifiedPayment = {
  verified: true
  /**
   * The gateway's receipt as JWS compact. Read it with `verifyReceipt` of `@tollkeeper/sdk/audit`. Empty for a request with a pass: the request that
   * paid for the pass has the receipt.
   */
  receipt: string
  /** The payment's id at the gateway, `pay_…`. All requests on a tab have the id of the payment that settles the whole tab. */
  paymentId: string
  /** Set for a request on a tab: the tab's id, and the number of the request. */
  tab?: { id: string; sequence: number }
  /** Set if `beforeAccept` served the request for free. `receipt` and `paymentId` are empty then. */
  free?: true
  /** Set if the payment bought a pass, or if the request presented one. If you send a stream, end it at `expiresAt`. */
  pass?: UsedPass
  /**
   * Charges less than the price. Use it for a request on a tab whose cost is known only afterwards. The last call counts. The response informs the
   * buyer if you call this before its head is sent. Otherwise, the buyer finds out when the tab closes.
   *
   * @param usdc decimal USDC, at most the price. 0 charges nothing.
   * @returns false if the price is charged: the request isn't on a tab, the tab is closed, the middleware has no `apiKey`, the gateway isn't
   * responding, or the amount exceeds the price.
   * @throws {ProtocolError} `invalid_field` if the argument isn't a USDC amount.
   */
  charge: (usdc: string | number) => Promise<boolean>
}

/**
 * The result of a verification.
 *
 * `mayBeAccepted`: the gateway may have accepted the payment although its response was lost. If the request isn't served, {@link
 * voidLostVerification} voids that payment.
 */
type Verification = {
  /** Undefined if no definite response arrived in time. */
  answer: GatewayAnswer | undefined
  mayBeAccepted: boolean
}

/** Codes of 503 responses which guarantee that the gateway has not accepted the payment so far. */
const certainRefusals: ReadonlySet<unknown> = new Set([
  'decision_unavailable',
  'overloaded',
  'provider_limit_exceeded',
  'sales_stopped',
  'settlement_pending',
  'token_paused',
])

/**
 * Asks the gateway to verify a payment. Repeats the call with the same Idempotency-Key until the response is definite, within `timeoutMs`.
 *
 * If a response is lost, or is a 5xx, the gateway may have accepted the payment. If it has, the repeated call gets the response of that acceptance.
 *
 * @param isAskedAgain whether an earlier call with this key may still be in progress.
 */
async function askForVerification(
  options: GatewayClientOptions,
  call: GatewayCall,
  isAskedAgain = false,
): Promise<Verification> {
  const deadline = startDeadline(options.timeoutMs)
  let mayBeAccepted = isAskedAgain
  for (let attempt = 0; !deadline.signal.aborted; attempt++) {
    if (attempt > 0) await sleep(delayMs(attempt))
    const outcome = await postOnce(options, call, deadline)
    if (outcome.kind === 'answered' && isCertain(outcome.answer, mayBeAccepted)) {
      const { answer } = outcome
      // The gateway may still be committing the acceptance of an earlier attempt. So a rejection is final only if it reports stored state.
      return { answer, mayBeAccepted: mayBeAccepted && !saysWhatIsStored(answer) }
    }
    if (outcome.kind !== 'answered') options.onFailure?.(outcome)
    if (outcome.kind !== 'refused') mayBeAccepted = true
    // No server listened at the gateway's address in any attempt, so nothing was accepted.
    else if (!mayBeAccepted && attempt === 2) break
  }
  return { answer: undefined, mayBeAccepted }
}

/**
 * Creates a memory of verifications whose outcome is unknown, by request. If a caller presents the same payment for the same request again, the
 * middleware repeats the verification with the same `Idempotency-Key`. If the gateway has accepted the payment, the request is then served.
 */
export function createLostVerifications() {
  const keys = new Map<string, string>()
  const nameOf = ({ body }: GatewayCall) => JSON.stringify(body)

  return {
    add(call: GatewayCall): void {
      if (keys.size >= maxOpen) keys.delete(keys.keys().next().value ?? '')
      keys.set(nameOf(call), call.idempotencyKey ?? '')
    },
    /** Removes the verification. @returns false if another caller has already removed it, and is handling it. */
    take: (call: GatewayCall): boolean =>
      keys.get(nameOf(call)) === call.idempotencyKey && keys.delete(nameOf(call)),
    keyOf: (call: GatewayCall): string | undefined => keys.get(nameOf(call)),
  }
}

export type LostVerifications = ReturnType<typeof createLostVerifications>

type Recovery = {
  lost: LostVerifications
  voidPayment: (
    payment: Pick<VerifiedPayment, 'paymentId' | 'tab'>,
  ) => Promise<{ outcome: 'done' | 'refused' | 'unknown' }>
  /** Waits before a retry. Default: a timer that doesn't keep the process alive. */
  pause?: ((ms: number) => Promise<void>) | undefined
}

/**
 * Asks the gateway to verify a payment, or continues an identical call whose outcome isn't known. If the outcome stays unknown and there is an
 * `apiKey`, the payment is voided in the background, because nothing is served for it.
 *
 * @returns undefined if no definite response arrived in time.
 */
export async function verifyOrGoOn(
  options: GatewayClientOptions,
  given: GatewayCall,
  { waitUntil, ...recovery }: Recovery & { waitUntil: WaitUntil | undefined },
): Promise<GatewayAnswer | undefined> {
  const { lost } = recovery
  const before = lost.keyOf(given)
  const call = before === undefined ? given : { ...given, idempotencyKey: before }
  lost.take(call)
  // The gateway may still accept the payment by an earlier call, although it rejects this call. Nothing is served then, so the payment is voided
  // below.
  const { answer, mayBeAccepted } = await askForVerification(options, call, before !== undefined)
  if (!mayBeAccepted) return answer
  lost.add(call)
  if (options.apiKey)
    askUntilCertain(
      (delaysMs, isLate) => voidLostVerification(options, call, recovery, delaysMs, isLate),
      waitUntil,
    )
  return answer
}

/**
 * Finds out whether a payment with an unknown outcome was accepted. If it was, voids it. This call itself never causes an acceptance, because the
 * buyer may have paid again.
 *
 * Ends early if the verification is no longer remembered, because the buyer has presented the payment again, or because newer verifications replaced
 * it.
 *
 * @returns whether the outcome is known, or another caller handles the verification.
 */
async function voidLostVerification(
  options: GatewayClientOptions,
  call: GatewayCall,
  { voidPayment, lost, pause = sleep }: Recovery,
  delaysMs: Iterable<number>,
  isLate: boolean,
): Promise<boolean> {
  const began = performance.now()
  for (const delay of delaysMs) {
    await pause(delay)
    if (lost.keyOf(call) !== call.idempotencyKey) return true
    // After this time, the gateway can no longer accept the call that was in progress.
    const isOver = isLate || performance.now() - began > options.timeoutMs / 2
    const { answer } = await askForVerification(options, { ...call, isAboutStored: true })
    if (isOver && codeOf(answer) === 'unknown_payment') return true
    const { paymentId, tab } = (answer?.body ?? {}) as Partial<VerifiedPayment>
    // Another request used the payment, or the payment is being settled and the buyer will present it again.
    if (answer !== undefined && answer.status !== 200 && saysWhatIsStored(answer)) return true
    if (answer?.status !== 200 || typeof paymentId !== 'string') continue
    // Remove the verification before the void. A caller who presents the payment from now on gets the response that it was used.
    if (!lost.take(call)) return true
    if ((await voidPayment({ paymentId, ...(tab && { tab }) })).outcome !== 'unknown') return true
    lost.add(call)
  }
  return false
}

/** Returns whether the response comes from stored state: it is the payment's own response, or reports that another request used the payment. */
function saysWhatIsStored(answer: GatewayAnswer): boolean {
  return answer.status === 200 || answer.status === 409 || codeOf(answer) === 'settlement_pending'
}

function codeOf(answer: GatewayAnswer | undefined): unknown {
  return (answer?.body as { code?: unknown } | undefined)?.code
}

function isCertain(answer: GatewayAnswer, mayBeAccepted: boolean): boolean {
  const { status } = answer
  // The gateway checks the rate limit before it reads its stored state, so the response doesn't prove anything about the payment.
  if (status === 429) return !mayBeAccepted
  if (status < 500) return status !== 408
  return certainRefusals.has(codeOf(answer))
}
