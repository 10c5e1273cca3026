import { NetworkError } from '../client/errors.ts'
import { sendUntilAnswered } from '../client/presentation.ts'
import { fetchPaid } from '../client/redirects.ts'
import { fixBody, isReplayable } from '../client/sentBody.ts'
import { startDeadline, toNetworkError } from '../client/transport.ts'
import { openAnswer, requestOf, urlOf, withType } from '../client/wrapFetch.ts'

const paymentHeaders = ['payment-signature', 'x-payment']

/**
 * Wraps a `fetch` for clients of the x402 standard. If the connection of a paid request breaks, or a server in front of the seller fails, the request
 * is sent again with the same payment. Tollkeeper's sellers then send their response again, and no one can charge the payment twice. All other
 * requests are sent unchanged. If a redirect leads to another origin, it is followed without the payment.
 *
 * A request whose body is a stream is sent only once.
 *
 * @param fetch the `fetch` to call.
 * @returns a function that throws what `fetch` throws.
 * @example
 * import { repeatPaid } from '@tollkeeper/sdk/x402'
 * import { x402Client } from '@x402/core/client'
 * import { ExactEvmScheme } from '@x402/evm/exact/client'
 * import { wrapFetchWithPayment } from '@x402/fetch'
 * import { privateKeyToAccount } from 'viem/accounts'
 *
 * const account = privateKeyToAccount(`0x${'11'.repeat(32)}`)
 * const client = new x402Client().register('eip155:*', new ExactEvmScheme(account))
 * export const payingFetch = wrapFetchWithPayment(repeatPaid(fetch), client)
 */
export function repeatPaid(
  fetch: typeof globalThis.fetch,
  {
    pendingTimeout = 30_000,
  }: {
    /** Maximum time in ms during which a payment is sent again while the seller serves or settles it. Default 30,000. */
    pendingTimeout?: number
  } = {},
): typeof globalThis.fetch {
  return async (input, init) => {
    const request = requestOf(input)
    const headers = new Headers(init?.headers ?? request?.headers)
    const isPaid = paymentHeaders.some((name) => headers.has(name))
    if (!isPaid) return fetch(input, init)
    const url = urlOf(input)
    if (!isReplayable(init?.body)) return fetchPaid(fetch, { url, request, init: { ...init, headers } })
    const { init: body, contentType, read } = await fixBody(init?.body, request?.clone())
    const sent = { ...init, ...body, headers: withType(headers, contentType) }
    const signal = init?.signal === undefined ? request?.signal : init.signal
    try {
      const { response } = await sendUntilAnswered(
        async (within) => {
          try {
            const paid = { url, request: request?.clone(), init: sent, readBody: read }
            return await openAnswer(await fetchPaid(fetch, paid), url, within)
          } catch (error) {
            throw toNetworkError(error, url, within)
          }
        },
        startDeadline(undefined, signal),
        { pendingTimeoutMs: pendingTimeout, log: () => {} },
      )
      return response
    } catch (error) {
      throw error instanceof NetworkError ? error.cause : error
    }
  }
}
