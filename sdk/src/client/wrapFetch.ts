import { eitherSignal } from './abort.ts'
import type { Client } from './createClient.ts'
import { ChallengeRefusedError, HttpError } from './errors.ts'
import { isServed } from './outcome.ts'
import { acceptChallenge, createPaymentFlow, type PaymentOptions } from './paymentFlow.ts'
import { withPayment } from './presentation.ts'
import { carriesPayment, fetchPaid } from './redirects.ts'
import { fixBody, isReplayable, type SentBody } from './sentBody.ts'
import type { PaymentHeader } from './signedPayment.ts'
import { type Answer, type Deadline, readAnswer, startDeadline, toNetworkError } from './transport.ts'

type Fetch = typeof globalThis.fetch

/** A `fetch` that pays, with the methods for tabs of `createClient`'s clients. */
export type PayingFetch = Fetch & Pick<Client, 'tabs' | 'close'>

/** The first argument of `fetch`. */
type Input = Parameters<Fetch>[0]

/** An answer whose body is left to the caller, unless `body` had to be read. */
type OpenAnswer = Answer & { response: Response }

/**
 * Wraps a `fetch` so that it pays for what answers 402, with the checks and limits of `createClient`.
 *
 * Call it like `fetch`; it returns the paid request's response as it came. Without a payment it makes no other call,
 * keeps no body and throws nothing of its own. It has no timeout: pass a `signal`, as with `fetch`. Only the wait for a settlement that
 * the seller calls pending ends by itself, after `pendingTimeout`. Each call that is answered by a
 * 402 is a payment of its own, so a library that repeats requests pays again, within the limits.
 *
 * A request is sent a second time with the payment, next to an `Authorization` of its own. So its body must be one that can be
 * sent again: text, bytes, a Blob, a form or a `Request`, whose body is kept until the answer; not a stream. A call with an equal body
 * after a lost answer presents the same payment again.
 *
 * Redirects of a paid request are followed, but its payment goes to no other origin.
 *
 * @param fetch the `fetch` to call. It must follow redirects, or not follow them, as the global one does.
 * @returns a function that throws what `fetch` throws, and {@link ClientError} once there is something to pay:
 * {@link ChallengeRefusedError} if nothing was paid, {@link RequestTimeoutError} after `pendingTimeout`, others with the `payment` that was presented.
 * @throws {TypeError} for a key, account, URL, host or missing `usdcAddress` that it can't work with.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 * @example
 * import { wrapFetch } from '@tollkeeper/sdk'
 *
 * export async function readWeather() {
 *   const payingFetch = wrapFetch(fetch, {
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     maxPaymentUsdc: '0.10',
 *     maxDailyUsdc: '5',
 *   })
 *   const response = await payingFetch('https://api.example/weather')
 *   return { weather: await response.json(), receipt: response.headers.get('service-receipt') }
 * }
 */
export function wrapFetch(
  fetch: Fetch,
  options: PaymentOptions & {
    /** Milliseconds for which a payment with a pending settlement is presented again. Default 30,000. */
    pendingTimeout?: number
  },
): PayingFetch {
  const flow = createPaymentFlow(options, (input, init) => fetch(input, init))
  const { warn = console.warn, pendingTimeout = 30_000 } = options

  const payingFetch: Fetch = async (input, init) => {
    const request = requestOf(input)
    const headers = new Headers(init?.headers ?? request?.headers)
    // The caller presents a payment itself.
    if (carriesPayment(headers)) return fetch(input, init)
    acceptChallenge(headers)
    const url = urlOf(input)
    const spare = request?.clone()
    const callerSignal = init?.signal === undefined ? request?.signal : init.signal
    const deadline = startDeadline(undefined, callerSignal)
    const canReplay = isReplayable(init?.body)
    // Only a payment needs it, so a request that costs nothing is sent as it came.
    let fixed: Promise<SentBody> | undefined
    const fix = () => {
      fixed ??= fixBody(init?.body, spare)
      return fixed
    }
    const asked = {
      method: init?.method ?? request?.method ?? 'GET',
      url,
      headers,
      body: async () => (await fix()).digest(),
    }
    const send = async (header: PaymentHeader, within: Deadline): Promise<OpenAnswer> => {
      const { init: withBody, contentType, read } = await fix()
      const paid = withPayment({ ...init, ...withBody, headers: withType(headers, contentType) }, header)
      // The wait for a pending settlement has a time limit, but the body that the caller reads afterwards has none.
      const ended = new AbortController()
      const end = () => ended.abort(within.signal.reason)
      if (within.timeoutMs !== undefined) {
        within.signal.addEventListener('abort', end)
        paid.signal = callerSignal ? eitherSignal(ended.signal, callerSignal) : ended.signal
      }
      try {
        const sent = { url, request: spare?.clone(), init: paid, readBody: read }
        return await openAnswer(await fetchPaid(fetch, sent), url, within)
      } catch (error) {
        throw error instanceof HttpError ? error : toNetworkError(error, url, within)
      } finally {
        within.signal.removeEventListener('abort', end)
      }
    }
    const hasAuthorization = headers.has('authorization')
    const attempt = { asked, send, deadline, pendingTimeoutMs: pendingTimeout, hasAuthorization }
    let paid = canReplay ? await flow.payRemembered(attempt) : undefined
    if (!paid) {
      const response = await fetch(input, { ...init, headers })
      if (response.status !== 402) return response

      const challenged = await readAnswer(response.clone(), url, deadline).catch(() => undefined)
      if (!challenged || !flow.isDemand(challenged)) return response
      void response.body?.cancel().catch(() => {})
      if (!canReplay) {
        throw new ChallengeRefusedError('the body is a stream, which can not be sent again with a payment', {
          code: 'body_not_replayable',
        })
      }
      paid = await flow.pay(attempt, challenged)
    }
    const { answer, payment } = paid
    if (options.onReceipt) {
      const { receiptError } = await flow.takeReceipt(answer, payment, deadline)
      if (receiptError !== undefined) warn(`[tollkeeper] A receipt was not kept: ${receiptError}`)
    }
    if (!payment || (answer.status >= 400 && !isServed(answer))) return answer.response
    return watchBody(answer.response, () => {
      // Whoever leaves on purpose doesn't come back for it.
      const hasLeft = callerSignal?.aborted && callerSignal.reason?.name !== 'TimeoutError'
      return hasLeft ? undefined : flow.remember(asked, payment)
    })
  }
  return Object.assign(payingFetch, { tabs: flow.tabs, close: flow.close })
}

/**
 * The same response, with a call if its body breaks off while the caller reads it. The caller hears of it after that call has ended, so
 * that a repeated request finds what the call has stored.
 */
function watchBody(response: Response, onBroken: () => Promise<void> | undefined): Response {
  const { body, url, redirected, type } = response
  if (!body) return response
  const reader = body.getReader()
  const watched = new ReadableStream({
    async pull(controller) {
      const read = await reader.read().catch(async (error: unknown) => {
        await onBroken()
        throw error
      })
      if (read.done) controller.close()
      else controller.enqueue(read.value)
    },
    cancel: (reason) => reader.cancel(reason),
  })
  const same = new Response(watched, response)
  for (const [name, value] of Object.entries({ url, redirected, type }))
    Object.defineProperty(same, name, { value })
  return same
}

/** Reads a body only if it may say that the settlement is pending, or name another price. */
export async function openAnswer(response: Response, url: string, deadline: Deadline): Promise<OpenAnswer> {
  if ([402, 409, 503].includes(response.status))
    return { ...(await readAnswer(response.clone(), url, deadline)), response }
  const { status, headers } = response
  return { url: response.url || url, status, headers, body: undefined, response }
}

/** Absolute, also where a page asked by a path. */
export function urlOf(input: Input): string {
  return requestOf(input)?.url ?? new Request(input).url
}

/** Recognizes a `Request` by its form, since a library may replace the class, and others aren't instances of it. */
export function requestOf(input: Input): Request | undefined {
  return typeof input === 'object' && 'clone' in input ? input : undefined
}

/** The headers of a form's body, unless the caller names a type of its own. */
export function withType(given: Headers, contentType: string | undefined): Headers {
  const headers = new Headers(given)
  if (contentType !== undefined && !headers.has('content-type')) headers.set('content-type', contentType)
  return headers
}
