import type { Queryable } from '@tollkeeper/ledger/store/database'
import { type Check, fail, ok, skipped, warn } from './check.ts'

/** The time in ms by which this host's clock is ahead of another clock, as a lower and an upper bound. */
export type ClockReading = { source: string; leastAheadMs: number; mostAheadMs: number }

const clockCheck = 'clock'

/** Minimum difference in ms for a warning: hosts should agree within a second (docs/deployment.md, "Clocks"). */
const warnMs = 1_000
/**
 * Minimum difference in ms for a failure. Challenges are valid only for minutes. So if the clock is this wrong, the gateway refuses
 * valid payments, or payments expire before they settle.
 */
const failMs = 30_000
/** Maximum time in ms by which a sequencer may date a block into the future. */
const blockAheadMs = 15_000

/** Compares the `Date` header of an HTTP response with this host's clock. The header has whole seconds. */
export function readDateHeader(
  source: string,
  header: string | null,
  { sentAt, receivedAt }: { sentAt: number; receivedAt: number },
): ClockReading[] {
  const date = Date.parse(header ?? '')
  if (Number.isNaN(date)) return []
  // The server wrote the header between `sentAt` and `receivedAt`, at some point within the second that the header names.
  return [{ source, leastAheadMs: sentAt - (date + 1_000), mostAheadMs: receivedAt - date }]
}

/** Compares a block's time with this host's clock. A block can be any time older than the response, but not newer. */
export function readBlockTime(source: string, timestamp: bigint, receivedAt: number): ClockReading[] {
  const mostAheadMs = receivedAt - Number(timestamp) * 1_000
  // If the block's time is in the future, up to `blockAheadMs` of the difference may come from the sequencer's clock.
  const isPlausible = mostAheadMs > -blockAheadMs
  return [
    {
      source,
      leastAheadMs: Number.NEGATIVE_INFINITY,
      mostAheadMs: isPlausible ? Math.max(0, mostAheadMs) : mostAheadMs,
    },
  ]
}

/** Reads the database's clock. */
export async function readDatabaseTime(sql: Queryable): Promise<ClockReading> {
  const sentAt = Date.now()
  const [{ at }] = await sql<[{ at: number }]>`
    select extract(epoch from clock_timestamp())::float8 * 1000 as at`
  return { source: 'the database', leastAheadMs: sentAt - at, mostAheadMs: Date.now() - at }
}

/** Returns the smallest error of this host's clock, in ms, that could explain a reading. Positive: this host's clock is ahead. */
function offsetOf({ leastAheadMs, mostAheadMs }: ClockReading): number {
  if (leastAheadMs > 0) return leastAheadMs
  return Math.min(mostAheadMs, 0)
}

/** Judges this host's clock by the other clocks that the earlier checks have read. */
export function examineClock(readings: readonly ClockReading[]): Check {
  if (readings.length === 0) return skipped(clockCheck, 'a database or a node to compare this clock with')
  const offsets = readings.map((reading) => ({ source: reading.source, ms: offsetOf(reading) }))
  const off = offsets.filter(({ ms }) => Math.abs(ms) > warnMs)
  const [worst] = off.toSorted((one, other) => Math.abs(other.ms) - Math.abs(one.ms))
  if (worst === undefined)
    return ok(clockCheck, `within a second of ${offsets.map(({ source }) => source).join(', ')}`)
  const found = off
    .map(({ source, ms }) => `${formatSeconds(Math.abs(ms))} s ${ms > 0 ? 'ahead of' : 'behind'} ${source}`)
    .join(', ')
  // If only one of at least three clocks disagrees with this host, that clock is wrong.
  const isOther = off.length === 1 && offsets.length > 2
  const host = isOther ? `the host of ${worst.source}` : 'this host'
  const isAhead = isOther ? worst.ms < 0 : worst.ms > 0
  const breaks =
    isOther && worst.source === 'the database'
      ? 'leases, deadlines and the dates of payments are wrong'
      : isAhead
        ? 'valid payments are refused (macaroon_expired, authorization_expired), and receipts are dated in the future'
        : 'authorizations are accepted too shortly before they expire. They may fail to settle, and their providers are not paid'
  const judge = Math.abs(worst.ms) > failMs ? fail : warn
  return judge(clockCheck, found, `set the clock of ${host} by NTP (chrony, systemd-timesyncd): ${breaks}`)
}

function formatSeconds(ms: number): string {
  return ms >= 10_000 ? Math.round(ms / 1_000).toString() : (ms / 1_000).toFixed(1)
}
