import { eitherSignal } from './abort.ts'
import { type Closable, disposable } from './dispose.ts'
import { ChallengeRefusedError, HttpError } from './errors.ts'
import { acceptChallenge, createPaymentFlow, type PaymentFlow, type PaymentOptions } from './paymentFlow.ts'
import { withPayment } from './presentation.ts'
import { carriesPayment, fetchPaid } from './redirects.ts'
import { isServedFor } from './repeats.ts'
import { fixBody, isReplayable, type SentBody } from './sentBody.ts'
import type { PaymentHeader } from './signedPayment.ts'
import type { OpenTab } from './tabs.ts'
import { type Answer, type Deadline, readAnswer, startDeadline, toNetworkError } from './transport.ts'

type Fetch = typeof globalThis.fetch

/** The methods of a client that concern its tabs. */
export type TabMethods = {
  /**
   * Returns the open tabs, each with its gateway and its amounts.
   *
   * @throws {ChallengeRefusedError} `tab_store_failed`
   */
  tabs(): Promise<OpenTab[]>
  /**
   * Closes all tabs, each with exactly what was bought on it, once no request is in progress. If you don't call it, the gateway closes a tab after
   * minutes without a request. A tab that is too small to settle stays open. Later requests open new tabs.
   *
   * @throws {HttpError} if the gateway rejects closing a tab.
   * @throws {NetworkError}
   * @throws {RequestTimeoutError}
   */
  close(): Promise<void>
}

/** A `fetch` that pays. It also has the methods for tabs that a client from `createClient` has. */
export type PayingFetch = Fetch & Closable & TabMethods

/** Options of {@link wrapFetch}. */
export type WrapFetchOptions = PaymentOptions & {
  /** Maximum time in ms during which the client presents a payment again while its settlement is pending. Default 30,000. */
  pendingTimeout?: number
}

/** The first argument of `fetch`. */
type Input = Parameters<Fetch>[0]

/** A response. `body` is set only if the client had to read the body; otherwise only the caller reads it. */
type OpenAnswer = Answer & { response: Response }

/**
 * Wraps a `fetch` so that it pays when the response is a 402, with the checks and limits of `createClient`.
 *
 * Call it like `fetch`. It returns the paid request's response unchanged. If nothing has to be paid, it makes no other call, keeps no body and throws
 * only errors of `fetch`. It has no timeout: pass a `signal`, as with `fetch`. Only the wait for a settlement that the seller reports as pending is
 * limited, by `pendingTimeout`. Each call whose response is a 402 is a separate payment. So a library that repeats requests pays again, within the
 * limits.
 *
 * A request that must be paid is sent a second time, with the payment and the caller's own `Authorization` header. The body must therefore be text,
 * bytes, a Blob, a form, or a `Request` (whose body is kept until the response), not a stream. After a lost response, a call with an equal body
 * presents the same payment again.
 *
 * The function follows redirects of a paid request, but sends the payment to no other origin.
 *
 * @param fetch the `fetch` to call. It must handle redirects like the global `fetch`.
 * @returns a function that throws what `fetch` throws. If there is something to pay, it also throws {@link ClientError}: {@link
 * ChallengeRefusedError} if nothing was paid, {@link RequestTimeoutError} after `pendingTimeout`, and other errors with the `payment` that was
 * presented.
 * @throws {TypeError} for an invalid key, account, URL or host, or a missing `usdcAddress`.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 * @example
 * import { wrapFetch } from '@tollkeeper/sdk'
 *
 * export async function readWeather() {
 *   const payingFetch = wrapFetch(fetch, {
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     limits: { perPayment: '0.10', perDay: '5' },
 *   })
 *   const response = await payingFetch('https://api.example/weather')
 *   return { weather: await response.json(), receipt: response.headers.get('service-receipt') }
 * }
 */
export function wrapFetch(fetch: Fetch, options: WrapFetchOptions): PayingFetch {
  const flow = createPaymentFlow(options, (input, init) => fetch(input, init))
  return createPayingFetch(fetch, flow, options)
}

/** Creates a `fetch` that pays through a payment flow. The client's other functions may use the same flow. */
export function createPayingFetch(
  fetch: Fetch,
  flow: PaymentFlow,
  options: Pick<WrapFetchOptions, 'warn' | 'pendingTimeout' | 'onReceipt'>,
): PayingFetch {
  const { warn = console.warn, pendingTimeout = 30_000 } = options

  const payingFetch: Fetch = async (input, init) => {
    const request = requestOf(input)
    const headers = new Headers(init?.headers ?? request?.headers)
    // The caller already presents a payment, so send the request unchanged.
    if (carriesPayment(headers)) return fetch(input, init)
    acceptChallenge(headers)
    const url = urlOf(input)
    const spare = request?.clone()
    const callerSignal = init?.signal === undefined ? request?.signal : init.signal
    const deadline = startDeadline(undefined, callerSignal)
    const canReplay = isReplayable(init?.body)
    // Only a payment needs the fixed body, so a free request is sent unchanged.
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
      // Only the wait for a pending settlement has a time limit. The caller may take any time to read the body afterwards.
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
    const isReadLater = true
    const attempt = { asked, send, deadline, pendingTimeoutMs: pendingTimeout, hasAuthorization, isReadLater }
    let paid = canReplay ? await flow.payRemembered(attempt) : undefined
    if (!paid) {
      const response = await fetch(input, { ...init, headers })
      if (response.status !== 402) return response

      const challenged = await readAnswer(response.clone(), url, deadline).catch(() => undefined)
      if (!challenged || !(await flow.isDemand(challenged))) return response
      void response.body?.cancel().catch(() => {})
      if (!canReplay) {
        throw new ChallengeRefusedError('the body is a stream, which can’t be sent again with a payment', {
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
    if (!payment || !isServedFor(paid)) return answer.response
    const settle = async () => void (await flow.settle(payment))
    return watchBody(answer.response, {
      onRead: settle,
      onBroken: () => {
        // A caller that aborts on purpose doesn't repeat the request.
        const hasLeft = callerSignal?.aborted && callerSignal.reason?.name !== 'TimeoutError'
        return hasLeft ? settle() : flow.remember(asked, payment)
      },
    })
  }
  return Object.assign(payingFetch, { tabs: flow.tabs, close: flow.close, ...disposable(flow.close) })
}

type BodyEvents = {
  /** Called when the body was read to its end, or when the caller stops reading on purpose. */
  onRead: () => Promise<void>
  /** Called if the body breaks off. */
  onBroken: () => Promise<void>
}

/**
 * Returns the same response, with a callback at the end of its body. If the body fails, the caller gets the error only after the callback has
 * finished, so that a repeated request finds what the callback has stored.
 */
async function watchBody(response: Response, { onRead, onBroken }: BodyEvents): Promise<Response> {
  const { body, url, redirected, type } = response
  if (!body) {
    await onRead()
    return response
  }
  const reader = body.getReader()
  const source: UnderlyingDefaultSource<Uint8Array> = {
    async pull(controller) {
      const read = await reader.read().catch(async (error: unknown) => {
        await onBroken()
        throw error
      })
      if (!read.done) return controller.enqueue(read.value)
      await onRead()
      controller.close()
    },
    async cancel(reason) {
      await onRead()
      await reader.cancel(reason)
    },
  }
  // Reads one chunk ahead, so that it detects the end of a short body even if the caller never reads up to it.
  const watched = new ReadableStream(source, { highWaterMark: 2 })
  const same = new Response(watched, response)
  for (const [name, value] of Object.entries({ url, redirected, type }))
    Object.defineProperty(same, name, { value })
  return same
}

/** Reads a body only if it may report a pending settlement, or name another price. */
export async function openAnswer(response: Response, url: string, deadline: Deadline): Promise<OpenAnswer> {
  if ([402, 409, 503].includes(response.status))
    return { ...(await readAnswer(response.clone(), url, deadline)), response }
  const { status, headers } = response
  return { url: response.url || url, status, headers, body: undefined, response }
}

/** Returns the absolute URL. In a page, the request may contain only a path. */
export function urlOf(input: Input): string {
  return requestOf(input)?.url ?? new Request(input).url
}

/** Recognizes a `Request` by its properties, because a library may replace the class, and then `instanceof` fails. */
export function requestOf(input: Input): Request | undefined {
  return typeof input === 'object' && 'clone' in input ? input : undefined
}

/** Returns the headers of a form's body, unless the caller sets a content type. */
export function withType(given: Headers, contentType: string | undefined): Headers {
  const headers = new Headers(given)
  if (contentType !== undefined && !headers.has('content-type')) headers.set('content-type', contentType)
  return headers
}
