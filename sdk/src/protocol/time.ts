/**
 * Formats a time in ISO 8601, UTC, with milliseconds. Macaroons and the API use this form.
 *
 * @param seconds Unix time.
 */
export function isoTime(seconds: number | bigint): string {
  return new Date(Number(seconds) * 1000).toISOString()
}

/**
 * Formats a time like {@link isoTime}, but without milliseconds, for people.
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

/** Returns the start of the UTC day that follows a time. */
export function nextUtcDay(time: Date): Date {
  return new Date(Date.UTC(time.getUTCFullYear(), time.getUTCMonth(), time.getUTCDate() + 1))
}
