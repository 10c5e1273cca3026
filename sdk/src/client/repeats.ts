import { selectionOf } from '../protocol/selection.ts'
import { ClientError, settlesUntil } from './errors.ts'
import type { Asked } from './offers.ts'
import { type GatewayWord, isFree, isServed, isUnclear, outcomeOf, type Paid } from './outcome.ts'
import type { Attempt, Present } from './presentation.ts'
import type { SignedPayment } from './signedPayment.ts'
import type { Answer, Deadline } from './transport.ts'

type RepeatSettings = {
  present: Present
  /** Asks the gateway about a payment. */
  ask: (payment: SignedPayment, signal: AbortSignal) => Promise<GatewayWord>
  log: (message: string) => void
}

/** Most payments that are remembered because their outcome isn't known. */
const maxOpen = 1_000

/**
 * Presents payments, and remembers by request those whose outcome isn't known: a repeated request presents the same payment again
 * before anything is signed anew. After an error it asks the gateway, and doesn't rely on the seller alone.
 */
export function createRepeats({ present, ask, log }: RepeatSettings) {
  const open = createOpenPayments()

  async function presentFor<A extends Answer>(attempt: Attempt<A>, payment: SignedPayment): Promise<Paid<A>> {
    const { asked, deadline } = attempt
    try {
      const answer = await present(attempt, payment)
      if (answer.status < 400 || (isServed(answer) && !payment.header)) return { answer, payment }
      return await askAgain(asked, { answer, payment }, deadline)
    } catch (error) {
      const word = await ask(payment, deadline.signal)
      if (word !== 'not_charged') await open.add(asked, payment)
      if (error instanceof ClientError) Object.assign(error, outcomeOf(word))
      throw error
    }
  }

  /** Asks the gateway now about a payment that was answered with an error. */
  async function askAgain<A extends Answer>(
    asked: Asked,
    { answer, payment }: { answer: A; payment: SignedPayment },
    deadline: Deadline,
  ): Promise<Paid<A>> {
    const word = await ask(payment, deadline.signal)
    // Of another seller's payment only that seller knows, and its refusal proves nothing, whatever the status.
    if ((payment.header || isUnclear(answer)) && !isFree({ answer, word })) await open.add(asked, payment)
    return { answer, payment, word }
  }

  return {
    presentFor,
    askAgain,
    /** Presents a payment that the caller brings. The caller's next request must not present it once more, and get the same answer. */
    presentGiven<A extends Answer>(attempt: Attempt<A>, payment: SignedPayment): Promise<Paid<A>> {
      open.forget(payment)
      return presentFor(attempt, payment)
    },
    /** Remembers a payment whose answer broke off while it was read. */
    remember: open.add,
    /** Presents the payment of an earlier attempt. @returns undefined if there is none. */
    async presentOpen<A extends Answer>(attempt: Attempt<A>): Promise<Paid<A> | undefined> {
      const payment = await open.take(attempt.asked, Date.now() / 1000)
      if (!payment) return undefined
      log('presenting the payment of an earlier attempt')
      return presentFor(attempt, payment)
    },
  }
}

/** Remembers payments by their requests, until they can't settle any more. */
export function createOpenPayments() {
  const open: { payment: SignedPayment; key: string; body: string }[] = []

  return {
    forget(payment: SignedPayment): void {
      const at = open.findIndex((one) => signatureOf(one.payment) === signatureOf(payment))
      if (at >= 0) open.splice(at, 1)
    },
    async add(asked: Asked, payment: SignedPayment): Promise<void> {
      const body = await bodyOf(asked)
      if (body !== undefined && open.push({ payment, key: keyOf(asked), body }) > maxOpen) open.shift()
    },
    /** Hands a payment out, once. @param now Unix seconds: payments that can't settle any more are not handed out. */
    async take(asked: Asked, now: number): Promise<SignedPayment | undefined> {
      const key = keyOf(asked)
      const isOpen = (entry: (typeof open)[number]) => entry.key === key && settlesUntil(entry.payment) > now
      // A body may be long, or have no end, so it is read only if a payment may be for it.
      if (!open.some(isOpen)) return undefined
      const body = await bodyOf(asked)
      const at = open.findIndex((entry) => entry.body === body && isOpen(entry))
      return at < 0 ? undefined : open.splice(at, 1)[0]?.payment
    },
  }
}

/** The request without its body. Sellers keep the answers to requests of other selecting headers apart, too. */
function keyOf({ method, url, headers }: Asked): string {
  return [method.toUpperCase(), url, selectionOf((name) => headers?.get(name))].join('\n')
}

/** @returns undefined if the body can't be compared. */
async function bodyOf({ body }: Asked): Promise<string | undefined> {
  const compared =
    typeof body === 'function' ? await (body() as Promise<unknown>).catch(() => undefined) : (body ?? '')
  return typeof compared === 'string' ? compared : undefined
}

/** What tells payments apart, however they were stored in between. */
function signatureOf({ payloads, tab }: SignedPayment): string {
  return tab ? tab.signature : payloads.join()
}
