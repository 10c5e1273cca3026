import type { MiddlewareHandler } from 'hono'
import type { Span, Tracer } from './trace.ts'

export type Traced = { Variables: { span: Span | undefined } }

/**
 * Continues the trace of each request.
 *
 * @param route the span's name. The path isn't used because it may contain a key.
 */
export function traceRequests(tracer: Tracer, route: string): MiddlewareHandler<Traced> {
  return async (c, next) => {
    const { method } = c.req
    const span = tracer.startSpan(`${method} ${route}`, {
      kind: 'server',
      traceparent: c.req.header('traceparent'),
      attributes: { 'http.request.method': method, 'http.route': route },
    })
    c.set('span', span)
    await next()
    const { status } = c.res
    span.set({ 'http.response.status_code': status })
    span.end(status >= 500 ? (c.error ?? 'failed') : undefined)
  }
}
