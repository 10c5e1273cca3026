import type { MiddlewareHandler } from 'hono'
import type { Span, Tracer } from './trace.ts'

export type Traced = { Variables: { span: Span | undefined } }

/** Continues the trace of each request, for routes whose paths hold no ids. */
export function traceRequests(tracer: Tracer): MiddlewareHandler<Traced> {
  return async (c, next) => {
    const { method, path } = c.req
    const span = tracer.startSpan(`${method} ${path}`, {
      kind: 'server',
      traceparent: c.req.header('traceparent'),
      attributes: { 'http.request.method': method, 'http.route': path },
    })
    c.set('span', span)
    await next()
    const { status } = c.res
    span.set({ 'http.response.status_code': status })
    span.end(status >= 500 ? (c.error ?? 'failed') : undefined)
  }
}
