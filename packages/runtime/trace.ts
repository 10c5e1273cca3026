import type { Attributes, Link, SpanContext } from '@opentelemetry/api'
import { textOf } from '@tollkeeper/sdk/protocol/fields'
import { parseTraceparent, type Traceparent } from '@tollkeeper/sdk/protocol/traceparent'
import { type Environment, isSet, readVariable, type VariableValue } from './env.ts'
import { type Logger, scrub } from './log.ts'

// Only this module uses OpenTelemetry. It loads the library only if a collector is configured.

/** Number of bytes in the stored form of a span: 16 for the id of its trace, and 8 for its own id. */
const storedBytes = 24
const traceIdBytes = 16
/** Maximum number of links of a span: more than the payments in any batch. The standard's default of 128 would be too few. */
const mostLinks = 1_024
/** Minimum interval in ms between log lines about a collector that rejects spans. */
const complaintEveryMs = 60_000

/** Null: no collector is configured, so nothing is traced. */
export type TraceSettings = { sampler: VariableValue<'OTEL_TRACES_SAMPLER'>; ratio: number } | null

export type Span = {
  /** The data to store so that a later span can link to this span. Null if this span isn't recorded. */
  stored: Uint8Array | null
  set: (attributes: Attributes) => void
  /** @param error the error with which the span failed. */
  end: (error?: unknown) => void
}

export type SpanOptions = {
  /** `server`: the span of a request. Default: the span of work that no request caused. */
  kind?: 'server'
  /** The `traceparent` header of the request, unchanged. */
  traceparent?: string | undefined
  /** The stored forms of the spans that caused this one. */
  links?: readonly Uint8Array[]
  attributes?: Attributes
}

export type Tracer = {
  startSpan: (name: string, options?: SpanOptions) => Span
  /** Sends the remaining spans, for at most two seconds. */
  stop: () => Promise<void>
}

/** Reads `OTEL_EXPORTER_OTLP_ENDPOINT` and the sampler. The exporter reads the other `OTEL_EXPORTER_OTLP_*` itself. */
export function readTraceSettings(env: Environment): TraceSettings {
  // Also read the headers here, so that a malformed header is reported at startup.
  const [, sampler, ratio] = [
    readVariable(env, 'OTEL_EXPORTER_OTLP_HEADERS'),
    readVariable(env, 'OTEL_TRACES_SAMPLER'),
    readVariable(env, 'OTEL_TRACES_SAMPLER_ARG'),
  ]
  return isSet(env, 'OTEL_EXPORTER_OTLP_ENDPOINT') && readVariable(env, 'OTEL_EXPORTER_OTLP_ENDPOINT')
    ? { sampler, ratio }
    : null
}

/** Returns the trace's id, 32 hex digits, from the stored form of a span. */
export function traceIdOf(stored: Uint8Array): string {
  return Buffer.from(stored).toString('hex', 0, traceIdBytes)
}

/** @param service the name of the spans' service, such as `tollkeeper-api`, unless `OTEL_SERVICE_NAME` sets it. */
export async function openTracer(
  settings: TraceSettings,
  service: string,
  log: Logger,
): Promise<Tracer | null> {
  if (settings === null) return null
  const [
    { diag, DiagLogLevel, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace },
    sdk,
    { OTLPTraceExporter },
    resources,
  ] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@opentelemetry/resources'),
  ])
  let complainedAt = Number.NEGATIVE_INFINITY
  const complain = (message: string) => {
    if (performance.now() - complainedAt < complaintEveryMs) return
    complainedAt = performance.now()
    log.warn(
      { reason: scrub(reasonOf(message)).slice(0, 300) },
      'the collector at OTEL_EXPORTER_OTLP_ENDPOINT rejects traces',
    )
  }
  const silent = () => {}
  diag.setLogger(
    { error: complain, warn: silent, info: silent, debug: silent, verbose: silent },
    DiagLogLevel.ERROR,
  )
  const provider = new sdk.TracerProvider({
    resource: resources
      .resourceFromAttributes({ 'service.name': service })
      .merge(resources.detectResources({ detectors: [resources.envDetector] })),
    sampler: samplerOf(sdk, settings),
    spanLimits: { linkCountLimit: mostLinks },
    spanProcessors: [new sdk.BatchSpanProcessor({ exporter: new OTLPTraceExporter() })],
  })
  const tracer = provider.getTracer('tollkeeper')
  return {
    startSpan(name, { kind, traceparent, links = [], attributes = {} } = {}) {
      const parent = parseTraceparent(traceparent)
      const context = parent ? trace.setSpanContext(ROOT_CONTEXT, toContext(parent)) : ROOT_CONTEXT
      const options = {
        kind: kind === 'server' ? SpanKind.SERVER : SpanKind.INTERNAL,
        links: links.map(toLink),
        attributes,
      }
      const span = tracer.startSpan(name, options, context)
      return {
        stored: span.isRecording() ? toStored(span.spanContext()) : null,
        set: (more) => void span.setAttributes(more),
        end(error) {
          if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: nameOf(error) })
          span.end()
        },
      }
    },
    async stop() {
      await provider.forceFlush({ timeoutMillis: 2_000 }).catch(() => {})
    },
  }
}

type Sdk = typeof import('@opentelemetry/sdk-trace')
type Sampler = import('@opentelemetry/sdk-trace').Sampler

/** Returns the standard sampler with this name. A span that links to a recorded span is also recorded. */
function samplerOf(sdk: Sdk, { sampler, ratio }: NonNullable<TraceSettings>) {
  const roots = {
    always_on: () => new sdk.AlwaysOnSampler(),
    always_off: () => new sdk.AlwaysOffSampler(),
    traceidratio: () => new sdk.TraceIdRatioBasedSampler(ratio),
  }
  const root = roots[sampler.replace('parentbased_', '') as keyof typeof roots]()
  const chosen: Sampler = sampler.startsWith('parentbased_') ? new sdk.ParentBasedSampler({ root }) : root
  const shouldSample: Sampler['shouldSample'] = (context, traceId, name, kind, attributes, links) =>
    links.length > 0
      ? { decision: sdk.SamplingDecision.RECORD_AND_SAMPLED }
      : chosen.shouldSample(context, traceId, name, kind, attributes, links)
  return { shouldSample, toString: () => `tollkeeper(${chosen})` }
}

function toContext({ traceId, spanId, flags }: Traceparent): SpanContext {
  return { traceId, spanId, traceFlags: flags & 1, isRemote: true }
}

function toStored({ traceId, spanId }: SpanContext): Uint8Array {
  return Buffer.from(traceId + spanId, 'hex')
}

function toLink(stored: Uint8Array): Link {
  const hex = Buffer.from(stored).toString('hex', 0, storedBytes)
  return {
    context: { traceId: hex.slice(0, 2 * traceIdBytes), spanId: hex.slice(2 * traceIdBytes), traceFlags: 1 },
  }
}

/** Returns the reason from an error whose message is a JSON object, as the library reports it. */
function reasonOf(told: string): string {
  try {
    return textOf(JSON.parse(told).message) || told
  } catch {
    return told
  }
}

/** Returns an error's name and code, without its message, which may contain data that a collector shouldn't get. */
function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  return 'code' in error ? `${error.name} ${String(error.code)}` : error.name
}
