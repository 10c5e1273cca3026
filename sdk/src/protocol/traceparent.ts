// W3C Trace Context, section 3.2: version, trace-id, parent-id, trace-flags. Ids of zeros are invalid, and so is version ff.
const pattern = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/

/** The parsed `traceparent` of a request. */
export type Traceparent = {
  /** 32 hex digits. */
  traceId: string
  /** Of the caller's span: 16 hex digits. */
  spanId: string
  /** Bit 0: the caller records it. */
  flags: number
  /** The whole text, to be passed on. */
  text: string
}

/**
 * Reads the header `traceparent`, which comes from a stranger.
 *
 * If it came twice, because a program and its instrumentation each set it, the last one counts: it is the inner span's.
 *
 * @returns undefined if it isn't one.
 */
export function parseTraceparent(header: string | null | undefined): Traceparent | undefined {
  const [text, traceId, spanId, flags] = pattern.exec(header?.split(',').at(-1)?.trim() ?? '') ?? []
  return text && traceId && spanId && flags
    ? { text, traceId, spanId, flags: Number.parseInt(flags, 16) }
    : undefined
}
