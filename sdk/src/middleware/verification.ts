import {
  delayMs,
  type GatewayAnswer,
  type GatewayCall,
  type GatewayClientOptions,
  postOnce,
  sleep,
} from './gatewayClient.ts'

/** What the handler of a paid request gets. */
export type VerifiedPayment = {
  verified: true
  /** The gateway's receipt as JWS compact; `verifyReceipt` of `@tollkeeper/sdk/audit` reads it. */
  receipt: string
  /** The payment's identifier at the gateway, `pay_…`. */
  paymentId: string
}

/**
 * What a verification came to.
 *
 * `mayBeAccepted`: the gateway may have accepted the payment all the same, without an answer having come. Of what is
 * not served then, {@link voidLostVerification} takes care.
 */
export type Verification = {
  /** Undefined where nothing certain could be had in time. */
  answer: GatewayAnswer | undefined
  mayBeAccepted: boolean
}

/** Refusals with status 503 by which the gateway says for certain that it did not accept the payment, or not yet. */
const certainRefusals: ReadonlySet<unknown> = new Set([
  'index_behind',
  'provider_limit_exceeded',
  'settlement_pending',
  'token_paused',
])

/** Delays before asking again for a verification that stayed unknown, to void what it may have accepted. */
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
  const deadline = AbortSignal.timeout(options.timeoutMs)
  let mayBeAccepted = false
  for (let attempt = 0; !deadline.aborted; attempt++) {
    if (attempt > 0) await sleep(delayMs(attempt))
    const outcome = await postOnce(options, call, deadline)
    if (outcome.kind === 'answered' && isCertain(outcome.answer, mayBeAccepted)) {
      const { answer } = outcome
      // A refusal may overtake an acceptance that is still being committed.
      return { answer, mayBeAccepted: mayBeAccepted && !saysWhatIsStored(answer) }
    }
    if (outcome.kind !== 'refused') mayBeAccepted = true
    // Nobody listens at the gateway's address, and nobody did so before: nothing was accepted.
    else if (!mayBeAccepted && attempt === 2) break
  }
  return { answer: undefined, mayBeAccepted }
}

/**
 * Asks on for a verification that stayed unknown and whose request was not served, and voids what it accepted.
 *
 * @param voidPayment whether the payment is voided now.
 */
export async function voidLostVerification(
  options: GatewayClientOptions,
  call: GatewayCall,
  voidPayment: (paymentId: string) => Promise<boolean>,
): Promise<void> {
  for (const delay of recoveryDelaysMs) {
    await sleep(delay)
    const { answer } = await askForVerification(options, call)
    const { paymentId } = (answer?.body ?? {}) as { paymentId?: unknown }
    // Settled later, it is for the buyer to present again.
    if (answer !== undefined && answer.status !== 200 && saysWhatIsStored(answer)) return
    if (answer?.status === 200 && typeof paymentId === 'string' && (await voidPayment(paymentId))) return
  }
}

/** The payment's own answer, or that another request has it. */
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
