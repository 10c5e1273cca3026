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
type Verification = {
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
const recoveryDelaysMs = [3000, 6000, 16_000, 60_000]
/** Of how many verifications it is remembered that their outcome is unknown. */
const maxLost = 1_000

/**
 * Asks the gateway to verify, again and again with the same Idempotency-Key until it knows, within `timeoutMs`.
 *
 * An answer that is lost, and one that says that something behind the gateway failed, leave open whether the payment was
 * accepted. The same call again gets the same answer, if it was.
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
    // Nothing has listened at the gateway's address at any attempt, so nothing was accepted.
    else if (!mayBeAccepted && attempt === 2) break
  }
  return { answer: undefined, mayBeAccepted }
}

/**
 * Remembers verifications whose outcome is unknown, by what was asked: who presents the same payment for the same goes on with its own
 * `Idempotency-Key`, and is served.
 */
export function createLostVerifications() {
  const keys = new Map<string, string>()
  const nameOf = ({ body }: GatewayCall) => JSON.stringify(body)

  return {
    add(call: GatewayCall): void {
      if (keys.size >= maxLost) keys.delete(keys.keys().next().value ?? '')
      keys.set(nameOf(call), call.idempotencyKey ?? '')
    },
    /** @returns false where somebody else has taken it. */
    take: (call: GatewayCall): boolean =>
      keys.get(nameOf(call)) === call.idempotencyKey && keys.delete(nameOf(call)),
    keyOf: (call: GatewayCall): string | undefined => keys.get(nameOf(call)),
  }
}

export type LostVerifications = ReturnType<typeof createLostVerifications>

type VoidPayment = (payment: Pick<VerifiedPayment, 'paymentId' | 'tab'>) => Promise<boolean>

/**
 * Asks the gateway to verify, or goes on where the same was asked before and its outcome isn't known. What stays unknown is voided in the
 * background, where there is an `apiKey` to do it with: nothing is served for it, so nothing may be charged.
 *
 * @returns undefined where no certain answer came in time.
 */
export async function verifyOrGoOn(
  options: GatewayClientOptions,
  given: GatewayCall,
  {
    lost,
    voidPayment,
    waitUntil,
  }: {
    lost: LostVerifications
    voidPayment: VoidPayment
    waitUntil: ((work: Promise<unknown>) => void) | undefined
  },
): Promise<GatewayAnswer | undefined> {
  const before = lost.keyOf(given)
  const call = before === undefined ? given : { ...given, idempotencyKey: before }
  lost.take(call)
  // What was asked before may be accepted while this is refused: then nobody serves it, and its buyer pays anew.
  const { answer, mayBeAccepted } = await askForVerification(options, call, before !== undefined)
  if (!mayBeAccepted) return answer
  lost.add(call)
  if (options.apiKey) {
    const recovery = voidLostVerification(options, call, voidPayment, lost)
    waitUntil?.(recovery)
  }
  return answer
}

/**
 * Asks whether a verification was accepted whose outcome is unknown, and voids the payment then. Nothing is accepted by asking: its buyer
 * may have paid anew since.
 *
 * @param voidPayment voids a payment, and tells whether it is voided.
 * @param lost what takes it where its buyer presents it again meanwhile.
 */
async function voidLostVerification(
  options: GatewayClientOptions,
  call: GatewayCall,
  voidPayment: VoidPayment,
  lost: LostVerifications,
): Promise<void> {
  const began = performance.now()
  for (const delay of recoveryDelaysMs) {
    await sleep(delay)
    if (lost.keyOf(call) !== call.idempotencyKey) return
    // What was on its way by then, the gateway has accepted, or never will.
    const isOver = performance.now() - began > options.timeoutMs / 2
    const { answer } = await askForVerification(options, { ...call, isAboutStored: true })
    if (isOver && codeOf(answer) === 'unknown_payment') return
    const { paymentId, tab } = (answer?.body ?? {}) as Partial<VerifiedPayment>
    // Another request has the payment, or it is being settled and the buyer will present it again.
    if (answer !== undefined && answer.status !== 200 && saysWhatIsStored(answer)) return
    if (answer?.status !== 200 || typeof paymentId !== 'string') continue
    // From here on, who presents it again is told that it was used.
    if (!lost.take(call)) return
    if (await voidPayment({ paymentId, ...(tab && { tab }) })) return
    lost.add(call)
  }
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
  // The limit is counted before the gateway looks at what it has stored.
  if (status === 429) return !mayBeAccepted
  if (status < 500) return status !== 408
  return certainRefusals.has(codeOf(answer))
}
