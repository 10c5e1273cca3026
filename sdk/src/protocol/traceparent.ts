// W3C Trace Context, section 3.2: version, trace-id, parent-id, trace-flags. Ids of zeros are invalid, and so is version ff.
const pattern = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/

/** What a `traceparent` says of the request that carries it. */
export type Traceparent = {
  /** 32 hex digits. */
  traceId: string
  /** Of the caller's span: 16 hex digits. */
  spanId: string
  /** Bit 0: the caller records it. */
  flags: number
  /** All of it, to be passed on. */
  text: string
}

/**
 * Reads the header `traceparent`, which comes from a stranger.
 *
 * Where it came twice, as when a program sets it and its instrumentation does too, the last one holds: it is the inner span's.
 *
 * @returns undefined where it isn't one.
 */
export function parseTraceparent(header: string | null | undefined): Traceparent | undefined {
  const [text, traceId, spanId, flags] = pattern.exec(header?.split(',').at(-1)?.trim() ?? '') ?? []
  return text && traceId && spanId && flags
    ? { text, traceId, spanId, flags: Number.parseInt(flags, 16) }
    : undefined
}
