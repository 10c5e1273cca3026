/**
 * Formats a time in ISO 8601, UTC, with milliseconds, as macaroons and the API have it.
 *
 * @param seconds Unix time.
 */
export function isoTime(seconds: number | bigint): string {
  return new Date(Number(seconds) * 1000).toISOString()
}

/**
 * Formats a time as {@link isoTime} does, without milliseconds, for text that people read.
 *
 * @param seconds Unix time, whole seconds.
 */
export function isoSeconds(seconds: number | bigint): string {
  return isoTime(seconds).replace('.000', '')
}

/** Formats the UTC day of a time, such as `2026-11-21`. */
export function utcDay(time: Date): string {
  return time.toISOString().slice(0, 10)
}
