import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { loopback } from '@tollkeeper/runtime/port'
import { until } from './until.ts'

export type CollectedSpan = {
  service: string
  name: string
  traceId: string
  spanId: string
  parentSpanId: string | undefined
  attributes: Record<string, string | number>
  links: { traceId: string; spanId: string }[]
  /** 2 means error. */
  status: number
}

type Value = { stringValue?: string; intValue?: number | string }
type Attribute = { key: string; value: Value }

/** The JSON form of OTLP/HTTP: opentelemetry-proto, trace/v1. */
type Exported = {
  resourceSpans: {
    resource: { attributes: Attribute[] }
    scopeSpans: {
      spans: (Pick<CollectedSpan, 'name' | 'traceId' | 'spanId' | 'parentSpanId'> & {
        attributes: Attribute[]
        links?: { traceId: string; spanId: string }[]
        status?: { code?: number }
      })[]
    }[]
  }[]
}

const toRecord = (attributes: readonly Attribute[]) =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue)] as const),
  )

/** Starts a collector of traces: an HTTP server on loopback that receives OTLP in JSON. */
export async function startCollector() {
  const spans: CollectedSpan[] = []
  const headers: string[] = []
  let text = ''
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const body = Buffer.concat(chunks).toString()
    text += body
    headers.push(String(request.headers['x-credential']))
    for (const { resource, scopeSpans } of (JSON.parse(body) as Exported).resourceSpans) {
      const service = String(toRecord(resource.attributes)['service.name'])
      for (const span of scopeSpans.flatMap((scope) => scope.spans))
        spans.push({
          service,
          name: span.name,
          traceId: span.traceId,
          spanId: span.spanId,
          parentSpanId: span.parentSpanId,
          attributes: toRecord(span.attributes),
          links: (span.links ?? []).map(({ traceId, spanId }) => ({ traceId, spanId })),
          status: span.status?.code ?? 0,
        })
    }
    response.setHeader('content-type', 'application/json').end('{}')
  })
  server.listen(0, loopback)
  await once(server, 'listening')
  return {
    url: `http://${loopback}:${(server.address() as AddressInfo).port}`,
    spans,
    headers,
    /** Everything received, unchanged. */
    text: () => text,
    async next(what: string, is: (span: CollectedSpan) => boolean): Promise<CollectedSpan> {
      await until(`a span of ${what} came`, () => spans.some(is))
      return spans.find(is) as CollectedSpan
    },
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
