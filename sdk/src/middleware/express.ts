import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  createGate,
  type Gate,
  type GateOptions,
  paymentIdHeader,
  paymentStatusHeader,
  receiptHeader,
  type VerifiedPayment,
} from './gate.ts'

export type { GateOptions, VerifiedPayment } from './gate.ts'

/** What the middleware adds to Express' request: `req.payment`. The same stands in `res.locals.payment`. */
export type PaidRequest = { payment: VerifiedPayment }

type Request = IncomingMessage & { originalUrl?: string; protocol?: string; payment?: VerifiedPayment }
type Response = ServerResponse & { locals?: Record<string, unknown> }

/**
 * Express (or Connect) middleware that serves a route only to those who paid (SPEC 4.3).
 *
 * A handler that fails, by an error or a 5xx, gets the payment voided, and the response carries no receipt.
 *
 * @example
 * app.get('/weather', requirePayment({ gatewayUrl, providerId, apiKey, pricing: { usdcPerUnit: '0.05' } }), (req, res) => {
 *   res.json({ sunny: true, paid: res.locals.payment.paymentId })
 * })
 */
export function requirePayment(
  options: GateOptions,
): (request: IncomingMessage, response: ServerResponse, next: (error?: unknown) => void) => void {
  const gate = createGate(options)
  return (request: Request, response: Response, next) => {
    const decided = gate.check({
      method: request.method ?? 'GET',
      url: urlOf(request),
      authorization: request.headers.authorization,
    })
    decided.then((decision) => {
      if (decision.kind === 'answer') {
        const { status, headers, body } = decision.answer
        response.writeHead(status, headers).end(body)
        return
      }
      const { payment } = decision
      request.payment = payment
      if (response.locals) response.locals.payment = payment
      response.setHeader(paymentIdHeader, payment.paymentId)
      response.setHeader(paymentStatusHeader, 'verified')
      response.setHeader(receiptHeader, payment.receipt)
      holdFailure(response, payment, gate)
      next()
    }, next)
  }
}

/**
 * Holds back a 5xx response until the payment is voided, so that its headers say what became of it.
 *
 * Node sends the head with the first of these four calls, and only then is the status final.
 */
function holdFailure(response: Response, payment: VerifiedPayment, gate: Gate): void {
  const { writeHead, flushHeaders, write, end } = response
  type Call = () => void
  let held: Call[] | undefined

  const release = (isVoided: boolean) => {
    Object.assign(response, { writeHead, flushHeaders, write, end })
    if (isVoided) {
      response.removeHeader(receiptHeader)
      response.setHeader(paymentStatusHeader, 'voided')
    }
    for (const call of held ?? []) call()
  }
  const holds = (status: number, call: Call): boolean => {
    if (held) held.push(call)
    else if (status >= 500 && !response.headersSent) {
      held = [call]
      gate.void(payment).then(release, () => release(false))
    } else {
      Object.assign(response, { writeHead, flushHeaders, write, end })
      return false
    }
    return true
  }

  response.writeHead = ((...args: Parameters<typeof writeHead>) => {
    const call = () => void writeHead.apply(response, args)
    if (!holds(args[0], call)) call()
    return response
  }) as typeof writeHead
  response.flushHeaders = () => {
    if (!holds(response.statusCode, () => flushHeaders.call(response))) flushHeaders.call(response)
  }
  response.write = ((...args: Parameters<typeof write>) => {
    // Never false while held: a stream that is piped in would wait for a `drain` that may not come.
    if (holds(response.statusCode, () => void write.apply(response, args))) return true
    return write.apply(response, args)
  }) as typeof write
  response.end = ((...args: Parameters<typeof end>) => {
    if (!holds(response.statusCode, () => void end.apply(response, args))) end.apply(response, args)
    return response
  }) as typeof end
}

/** As the buyer sees it, as far as the server can know; `publicUrl` corrects it behind a proxy. */
function urlOf(request: Request): string {
  const isEncrypted = 'encrypted' in request.socket && request.socket.encrypted === true
  const protocol = request.protocol ?? (isEncrypted ? 'https' : 'http')
  const path = request.originalUrl ?? request.url ?? '/'
  const url = `${protocol}://${request.headers.host ?? 'localhost'}${path}`
  return URL.canParse(url) ? url : `${protocol}://localhost/`
}
