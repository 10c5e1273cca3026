import { createDiscovery, type DiscoveryOptions } from './discovery.ts'
import { createGate, type GateOptions, readRequest } from './gate.ts'
import { toPaidResponse } from './paidResponse.ts'
import { discardBody } from './unreadBody.ts'
import type { VerifiedPayment } from './verification.ts'

export type { AcceptDecision } from '../protocol/acceptDecision.ts'
export type { AnswerStore } from './answerStore.ts'
export type { AnswerOptions } from './answers.ts'
export type { AcceptRequest, BeforeAccept } from './beforeAccept.ts'
export type { DiscoveryOptions } from './discovery.ts'
export { exposedHeaders, type GateOptions } from './gate.ts'
export type { PageOptions } from './page.ts'
export type { PageFacts } from './pageFacts.ts'
export type { BuyerRequest, Price, Pricing } from './pricing.ts'
export type { VerifiedPayment } from './verification.ts'

/** Handles a paid request. The runtime's further arguments come after the payment. */
export type PaidHandler<Asked extends Request, Rest extends unknown[]> = (
  request: Asked,
  payment: VerifiedPayment,
  ...rest: Rest
) => Response | Promise<Response>

/**
 * Creates a wrapper that lets a handler from `Request` to `Response` serve only callers who paid (conformance 4.3). Such a handler is a route handler
 * of Next.js, the handler of `Deno.serve` or `Bun.serve`, or the `fetch` of a Worker.
 *
 * If a handler throws or responds with 5xx, the payment is voided. The response then has no receipt or, on a tab, the receipt of the void. An error
 * is rethrown to the runtime.
 *
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum`.
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { requirePayment } from '@tollkeeper/sdk/fetch'
 *
 * const paid = requirePayment({
 *   gatewayUrl: 'https://gateway.example',
 *   providerId: 'prov_1',
 *   apiKey: process.env.TOLLKEEPER_API_KEY,
 *   pricing: { usdcPerUnit: '0.05' },
 * })
 * export const GET = paid((_request, payment) => Response.json({ sunny: true, paid: payment.paymentId }))
 */
export function requirePayment(
  options: GateOptions,
): <Asked extends Request = Request, Rest extends unknown[] = []>(
  handler: PaidHandler<Asked, Rest>,
) => (request: Asked, ...rest: Rest) => Promise<Response> {
  const gate = createGate(options)
  return (handler) =>
    async (request, ...rest) => {
      const decision = await gate.check(readRequest(request), waiterOf(rest))
      if (decision.kind !== 'serve') {
        await discardBody(request)
        const { status, headers, body } = decision.answer
        return new Response(body.length === 0 ? null : body, { status, headers })
      }
      try {
        const response = await handler(request, decision.payment, ...rest)
        return await toPaidResponse(gate, decision, response, response.status >= 500)
      } catch (error) {
        await gate.void(decision)
        decision.keep?.forget()
        throw error
      }
    }
}

/** Returns the runtime's function that keeps work alive after the response, as in Workers. */
function waiterOf(rest: readonly unknown[]): ((work: Promise<unknown>) => void) | undefined {
  const context = rest.find(hasWaitUntil)
  return context && ((work) => context.waitUntil(work))
}

function hasWaitUntil(value: unknown): value is { waitUntil(work: Promise<unknown>): void } {
  return typeof (value as { waitUntil?: unknown } | null | undefined)?.waitUntil === 'function'
}

/**
 * Creates a handler for `/openapi.json`, `/.well-known/x402` and `/llms.txt`, in which agents and catalogs find what this origin sells. The contents
 * come from the registration at the gateway.
 *
 * @returns undefined for every other request.
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 * @example
 * import { serveDiscovery } from '@tollkeeper/sdk/fetch'
 *
 * const discovery = serveDiscovery({ gatewayUrl: 'https://gateway.example', providerId: 'prov_1' })
 * export const handler = async (request: Request) =>
 *   (await discovery(request)) ?? new Response('Not found', { status: 404 })
 */
export function serveDiscovery(
  options: DiscoveryOptions,
): (request: Request) => Promise<Response | undefined> {
  const discovery = createDiscovery(options)
  return async (request) => {
    const answer = await discovery.answer(request)
    if (answer === undefined) return undefined
    const { status, headers, body } = answer
    return new Response(request.method === 'HEAD' ? null : body, { status, headers })
  }
}
