import { formatUsdc } from '../protocol/amount.ts'
import { encodeUtf8 } from '../protocol/bytes.ts'
import { selectionOf } from '../protocol/selection.ts'
import { ChallengeRefusedError, ClientError, settlesUntil } from './errors.ts'
import type { GatewayReport } from './gatewayReport.ts'
import type { Asked } from './offers.ts'
import { isFree, isServed, isUnclear, outcomeOf, type Paid } from './outcome.ts'
import { fromSaved, idOf, type PaymentScope, type PaymentStore, toSaved } from './paymentStore.ts'
import type { Attempt, Present } from './presentation.ts'
import { sha256 } from './sentBody.ts'
import type { SignedPayment } from './signedPayment.ts'
import type { Answer, Deadline } from './transport.ts'

type RepeatSettings = OpenPaymentSettings & {
  present: Present
  /** Asks the gateway about a payment. */
  ask: (payment: SignedPayment, signal: AbortSignal) => Promise<GatewayReport>
}

type OpenPaymentSettings = {
  /** The wallet, network and gateway of the payments. Payments of other scopes are ignored. */
  scope: PaymentScope
  /** Keeps payments beyond the end of the process. Default: only memory. */
  store?: PaymentStore | undefined
  log: (message: string) => void
}

/** Maximum number of payments with an unknown outcome that are remembered. */
const maxOpen = 1_000

/**
 * Presents payments, and remembers the requests whose payment has an unknown outcome. If such a request is repeated, it presents the same payment
 * again before it signs anything else. After an error, it asks the gateway and doesn't rely on the seller alone.
 */
export function createRepeats({ present, ask, ...settings }: RepeatSettings) {
  const open = createOpenPayments(settings)
  const { log } = settings

  async function presentFor<A extends Answer>(attempt: Attempt<A>, payment: SignedPayment): Promise<Paid<A>> {
    const { asked, deadline, isReadLater } = attempt
    try {
      const answer = await present(attempt, payment)
      const paid = { answer, payment }
      if (!isServedFor(paid)) return await askAgain(asked, paid, deadline)
      if (!isReadLater) await open.settle(payment)
      return paid
    } catch (error) {
      const report = await ask(payment, deadline.signal)
      if (report === 'not_charged') await open.settle(payment)
      else await open.add(asked, payment)
      if (error instanceof ClientError) Object.assign(error, outcomeOf(report))
      throw error
    }
  }

  /** Asks the gateway about a payment for which the response was an error. */
  async function askAgain<A extends Answer>(
    asked: Asked,
    { answer, payment }: { answer: A; payment: SignedPayment },
    deadline: Deadline,
  ): Promise<Paid<A>> {
    const report = await ask(payment, deadline.signal)
    // `header` is set for a seller that doesn't use Tollkeeper. No gateway knows such a payment, and the seller's refusal proves nothing.
    const isOpen = (payment.header || isUnclear(answer)) && !isFree({ answer, report })
    await (isOpen ? open.add(asked, payment) : open.settle(payment))
    return { answer, payment, report }
  }

  return {
    presentFor,
    askAgain,
    /**
     * Presents a payment that the caller passes. The caller's next request must not present the same payment again, because it would get the same
     * response.
     */
    async presentGiven<A extends Answer>(attempt: Attempt<A>, payment: SignedPayment): Promise<Paid<A>> {
      await open.loaded()
      open.forget(payment)
      return presentFor(attempt, payment)
    },
    /** Saves a signed payment before it is sent. Undefined without a store. */
    keep: settings.store && open.keep,
    /** Remembers a payment whose response broke off while the caller read it. */
    remember: open.add,
    /** Forgets a payment, because its response is complete or because it was never sent. */
    settle: open.settle,
    /**
     * Presents the payment of an earlier attempt of the request.
     *
     * @returns undefined if there is no such payment.
     * @throws {ChallengeRefusedError} `spending_limit_exceeded` if that payment exceeds this call's own limit.
     */
    async presentOpen<A extends Answer>(attempt: Attempt<A>): Promise<Paid<A> | undefined> {
      await open.loaded()
      const payment = await open.take(attempt.asked, Date.now() / 1000)
      if (!payment) return undefined
      try {
        requireOwnLimit(attempt, payment)
      } catch (error) {
        await open.add(attempt.asked, payment)
        throw error
      }
      log('presenting the payment of an earlier attempt')
      return presentFor(attempt, payment)
    },
  }
}

export type Repeats = ReturnType<typeof createRepeats>

/**
 * Returns whether a response is what the payment bought, so that the payment can be forgotten. At sellers that don't use Tollkeeper,
 * only a successful response counts.
 */
export function isServedFor({ answer, payment }: Paid<Answer>): boolean {
  return answer.status < 400 || (isServed(answer) && !payment?.header)
}

/** Remembers payments by their requests until the payments can no longer settle. */
export function createOpenPayments({ scope, store, log }: OpenPaymentSettings) {
  const open: { payment: SignedPayment; request: string; body: string }[] = []
  let loading: Promise<void> | undefined

  async function load(from: PaymentStore): Promise<void> {
    const now = Date.now() / 1000
    for (const saved of await from.load()) {
      const { request, body } = saved
      if (saved.settlesUntil > now) open.push({ payment: fromSaved(saved), request, body })
      else await from.remove(saved.id)
    }
  }

  /**
   * Removes a payment from the store. If that fails, the payment stays there until it expires. At worst, the client presents it again, and gets the
   * same response.
   *
   * @returns whether the payment is removed.
   */
  async function settle(payment: SignedPayment): Promise<boolean> {
    try {
      await store?.remove(idOf(payment))
      return true
    } catch (error) {
      log(`a payment could not be removed from the store: ${error}`)
      return false
    }
  }

  return {
    settle,
    /**
     * Loads the payments of the store once. If that fails, the next request tries again.
     *
     * @throws {ChallengeRefusedError} `payment_store_failed`
     */
    async loaded(): Promise<void> {
      if (!store) return
      loading ??= load(store)
      await loading.catch((cause) => {
        loading = undefined
        open.length = 0
        throw storeFailed(cause)
      })
    },
    /** Saves a payment that is about to be presented. @throws {ChallengeRefusedError} `payment_store_failed` */
    async keep(asked: Asked, payment: SignedPayment): Promise<void> {
      const body = await bodyOf(asked)
      if (body === undefined) return
      await store?.save(toSaved(payment, { request: await keyOf(scope, asked), body })).catch((cause) => {
        throw storeFailed(cause)
      })
    },
    forget(payment: SignedPayment): void {
      const at = open.findIndex((one) => signatureOf(one.payment) === signatureOf(payment))
      if (at >= 0) open.splice(at, 1)
    },
    async add(asked: Asked, payment: SignedPayment): Promise<void> {
      const body = await bodyOf(asked)
      if (body === undefined) return
      const request = await keyOf(scope, asked)
      const oldest = open.push({ payment, request, body }) > maxOpen ? open.shift() : undefined
      if (oldest) await settle(oldest.payment)
      const saved = toSaved(payment, { request, body })
      await store?.save(saved).catch((error) => log(`a payment was not kept: ${error}`))
    },
    /** Returns a payment, and forgets it. @param now Unix seconds. Payments that can no longer settle are not returned. */
    async take(asked: Asked, now: number): Promise<SignedPayment | undefined> {
      if (open.length === 0) return undefined
      const request = await keyOf(scope, asked)
      const isOpen = (one: (typeof open)[number]) =>
        one.request === request && settlesUntil(one.payment) > now
      // A body may be long or endless, so read it only if a payment for the request may exist.
      if (!open.some(isOpen)) return undefined
      const body = await bodyOf(asked)
      const at = open.findIndex((one) => one.body === body && isOpen(one))
      return at < 0 ? undefined : open.splice(at, 1)[0]?.payment
    },
  }
}

/** Rejects a payment of more than this call's maximum price. */
export function requireOwnLimit({ own }: Pick<Attempt<Answer>, 'own'>, payment: SignedPayment): void {
  if (own === undefined || payment.amount <= own.amount) return
  const signed = `an earlier attempt of this request signed ${formatUsdc(payment.amount)} USDC`
  throw new ChallengeRefusedError(`${signed}, ${own.option} is ${formatUsdc(own.amount)}`, {
    code: 'spending_limit_exceeded',
    payment,
  })
}

function storeFailed(cause: unknown): ChallengeRefusedError {
  return new ChallengeRefusedError('the store of signed payments failed', {
    code: 'payment_store_failed',
    cause,
  })
}

/** Returns a digest of a request without its body. It includes the headers by which sellers select a response. */
function keyOf(
  { payer, network, gatewayUrl }: PaymentScope,
  { method, url, headers }: Asked,
): Promise<string> {
  const request = [method.toUpperCase(), url, selectionOf((name) => headers?.get(name))]
  return digestOfText(JSON.stringify([payer.toLowerCase(), network, gatewayUrl, ...request]))
}

function digestOfText(text: string): Promise<string> {
  return sha256(encodeUtf8(text))
}

/** Returns a digest of a request's body. Returns undefined if the body can't be compared. */
async function bodyOf({ body }: Asked): Promise<string | undefined> {
  const compared =
    typeof body === 'function' ? await (body() as Promise<unknown>).catch(() => undefined) : (body ?? '')
  return typeof compared === 'string' ? digestOfText(compared) : undefined
}

/** Returns a key that is the same for a payment in memory and for its copy from a store. */
function signatureOf({ payloads, tab }: SignedPayment): string {
  return tab ? tab.signature : payloads.join()
}
