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

/** The payment that the handler of a paid request gets. */
export type VerifiedPayment = {
  verified: true
  /** The gateway's receipt as JWS compact; `verifyReceipt` of `@tollkeeper/sdk/audit` reads it. */
  receipt: string
  /** The payment's identifier at the gateway, `pay_…`; on a tab, that of the payment that the whole tab settles as. */
  paymentId: string
  /** Set if it was bought on a tab: the tab's id, and the number of the request. */
  tab?: { id: string; sequence: number }
  /**
   * Charges less than the price, for a request on a tab whose cost is known only afterwards. The last call
   * counts. The buyer hears it at once if it comes before the answer's head is sent, otherwise when the tab closes.
   *
   * @param usdc decimal USDC, at most the price; 0 charges nothing.
   * @returns false if it stays at the price: it wasn't bought on a tab, the tab is closed, the middleware has no `apiKey`,
   *   the gateway doesn't answer, or the amount is over the price.
   * @throws {ProtocolError} `invalid_field` if it isn't a USDC amount.
   */
  charge: (usdc: string | number) => Promise<boolean>
}

/**
 * The outcome of a verification.
 *
 * `mayBeAccepted`: the gateway may have accepted the payment although its answer was lost. If the request isn't served,
 * {@link voidLostVerification} voids that payment.
 */
type Verification = {
  /** Undefined if no certain answer came in time. */
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

/**
 * Asks the gateway to verify, again and again with the same Idempotency-Key until it knows, within `timeoutMs`.
 *
 * A lost answer, and one that says that something behind the gateway failed, leave open whether the payment was
 * accepted. If it was, the same call again gets the same answer.
 *
 * @param isAskedAgain an earlier call with this key may be under way.
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
      // A refusal may overtake an acceptance that is still being committed.
      return { answer, mayBeAccepted: mayBeAccepted && !saysWhatIsStored(answer) }
    }
    if (outcome.kind !== 'answered') options.onFailure?.(outcome)
    if (outcome.kind !== 'refused') mayBeAccepted = true
    // At no attempt did anything listen at the gateway's address, so nothing was accepted.
    else if (!mayBeAccepted && attempt === 2) break
  }
  return { answer: undefined, mayBeAccepted }
}

/**
 * Remembers verifications with an unknown outcome by what was asked: whoever presents the same payment for the same request continues
 * under its `Idempotency-Key`, and is served.
 */
export function createLostVerifications() {
  const keys = new Map<string, string>()
  const nameOf = ({ body }: GatewayCall) => JSON.stringify(body)

  return {
    add(call: GatewayCall): void {
      if (keys.size >= maxOpen) keys.delete(keys.keys().next().value ?? '')
      keys.set(nameOf(call), call.idempotencyKey ?? '')
    },
    /** @returns false if somebody else has taken it. */
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
  /** Waits before a question. Default: a timer that doesn't keep the process alive. */
  pause?: ((ms: number) => Promise<void>) | undefined
}

/**
 * Asks the gateway to verify, or continues an equal call whose outcome isn't known. What stays unknown is voided in the background if
 * there is an `apiKey`: nothing is served for it, so nothing may be charged.
 *
 * @returns undefined if no certain answer came in time.
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
  // The earlier call may be accepted while this one is refused: then nobody serves it, and its buyer pays anew.
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
 * Asks whether a verification with an unknown outcome was accepted, and if so voids its payment. Asking accepts nothing, since its
 * buyer may have paid again.
 *
 * It ends early if the verification is no longer remembered: its buyer has presented it again, or too many are.
 *
 * @returns whether its outcome is known, or somebody else sees to it.
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
    // By then the gateway has accepted what was on its way, or never will.
    const isOver = isLate || performance.now() - began > options.timeoutMs / 2
    const { answer } = await askForVerification(options, { ...call, isAboutStored: true })
    if (isOver && codeOf(answer) === 'unknown_payment') return true
    const { paymentId, tab } = (answer?.body ?? {}) as Partial<VerifiedPayment>
    // Another request has the payment, or it is being settled and the buyer will present it again.
    if (answer !== undefined && answer.status !== 200 && saysWhatIsStored(answer)) return true
    if (answer?.status !== 200 || typeof paymentId !== 'string') continue
    // From here on, whoever presents it again hears that it was used.
    if (!lost.take(call)) return true
    if ((await voidPayment({ paymentId, ...(tab && { tab }) })).outcome !== 'unknown') return true
    lost.add(call)
  }
  return false
}

/** Whether the answer comes from what is stored: it is the payment's own, or says that another request has it. */
function saysWhatIsStored(answer: GatewayAnswer): boolean {
  return answer.status === 200 || answer.status === 409 || codeOf(answer) === 'settlement_pending'
}

function codeOf(answer: GatewayAnswer | undefined): unknown {
  return (answer?.body as { code?: unknown } | undefined)?.code
}

function isCertain(answer: GatewayAnswer, mayBeAccepted: boolean): boolean {
  const { status } = answer
  // The gateway counts the limit before it looks at what it has stored.
  if (status === 429) return !mayBeAccepted
  if (status < 500) return status !== 408
  return certainRefusals.has(codeOf(answer))
}
