import type { TabPayload } from '../protocol/tab.ts'
import { HttpError, readProblem } from './errors.ts'
import { send, startDeadline, urlOf } from './transport.ts'

/** How long a gateway has for closing a tab. */
const closeTimeoutMs = 10_000

/**
 * Has a gateway close tabs: `POST /tabs/{id}/close`.
 *
 * @param fetch as the global one.
 */
export function postClose(fetch: typeof globalThis.fetch, gatewayUrl: string) {
  return async ({ id }: { id: string }, last: TabPayload | undefined): Promise<void> => {
    const init = {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(last ? { tab: last } : {}),
    }
    const url = urlOf(gatewayUrl, `tabs/${id}/close`)
    const answer = await send(fetch, url, init, startDeadline(closeTimeoutMs))
    const { code, detail } = readProblem(answer.status, answer.body)
    // One that the gateway never heard of, or has closed, needs nothing more.
    if (answer.status < 300 || code === 'unknown_tab' || code === 'tab_closed') return
    throw new HttpError(code ?? 'http_error', `Tab ${id} was not closed: ${detail}`, answer)
  }
}
