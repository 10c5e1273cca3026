// W3C Trace Context, section 3.2: version, trace-id, parent-id, trace-flags. Ids that consist of zeros are invalid, and so is version ff.
const pattern = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/

/** The parsed `traceparent` of a request. */
export type Traceparent = {
  /** 32 hex digits. */
  traceId: string
  /** Id of the caller's span: 16 hex digits. */
  spanId: string
  /** Whether the caller records the trace (bit 0 of the flags). */
  flags: number
  /** The complete header value, to pass to further services. */
  text: string
}

/**
 * Reads the header `traceparent`. It is untrusted input.
 *
 * If a program and its instrumentation both set the header, it arrives twice. Then the last value counts, because it belongs to the inner span.
 *
 * @returns undefined for an invalid header.
 */
export function parseTraceparent(header: string | null | undefined): Traceparent | undefined {
  const [text, traceId, spanId, flags] = pattern.exec(header?.split(',').at(-1)?.trim() ?? '') ?? []
  return text && traceId && spanId && flags
    ? { text, traceId, spanId, flags: Number.parseInt(flags, 16) }
    : undefined
}
