import { setTimeout as delay } from 'node:timers/promises'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { isRetryable, ownPath, request } from '../provider/gateway.ts'
import { printable, printJson, printLines, printNote, shorten } from '../terminal/output.ts'
import { type FilterFlags, flagOf } from './list.ts'
import type { PaymentPage, PaymentRow } from './paymentRow.ts'

export type WatchFlags = FilterFlags

/** A new payment, or a change of its status. */
export type PaymentChange = PaymentRow & {
  /** The previous status; null for a new payment. */
  previous_status: PaymentRow['payment_status'] | null
}

/**
 * Statuses that change without anyone's action. Few payments have such a status, so each poll can read them all.
 */
const openStatuses = ['verified', 'settling', 'retrying', 'partially_settled'] as const

const pageSize = 100
/** Maximum number of pages to read of one list, so that a poll stays short however many payments are waiting. */
const maxPages = 5
/** Maximum delay in ms of a payment that becomes visible only after newer payments. Each poll reads this much of the past again. */
const overlapMs = 60_000

export type WatchOptions = {
  onChange: (change: PaymentChange) => void
  /** Called when the gateway stops responding, and when it responds again. */
  onNote: (line: string) => void
  /** Called when the watch has read the payments that already existed. */
  onReady?: () => void
  /** Ends the watch. */
  signal: AbortSignal
  /** Minimum time in ms between polls. Polls become less frequent while nothing changes. Default: 2,000. */
  pollMs?: number
}

/** Runs `payments watch` until Ctrl-C. */
export async function runWatch(flags: WatchFlags): Promise<void> {
  const stopped = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopped.abort())
  await watchPayments(flags, {
    signal: stopped.signal,
    onNote: printNote,
    onReady: () => printNote('Watching for payments. Ctrl-C ends it'),
    onChange: (change) => (flags.json ? printJson(change) : printLines(describeChange(change))),
  })
}

/**
 * Reports each new payment and each change of a status, until `signal` aborts.
 *
 * Each poll reads the newest payments, and a list of payments for each unsettled status. If a payment is no longer in any of
 * these lists, its status is final, and the watcher looks the payment up by its time. So even after a long outage no change is
 * missed, as long as no list has more than {@link maxPages} pages.
 */
export async function watchPayments(flags: WatchFlags, options: WatchOptions): Promise<void> {
  const { onNote, onReady, signal, pollMs = 2_000 } = options
  const watcher = createWatcher(flags, options)
  const longest = pollMs * 5
  let isReady = false
  let failures = 0
  let waitMs = pollMs
  while (!signal.aborted) {
    try {
      const changes = await watcher.poll()
      if (failures > 0) onNote('The gateway is responding again')
      failures = 0
      waitMs = changes > 0 ? pollMs : Math.min(waitMs * 1.5, longest)
      if (!isReady) onReady?.()
      isReady = true
    } catch (error) {
      if (signal.aborted) return
      // Retrying doesn't help with wrong flags or a wrong key. A failure of the first poll ends the command, so that the user
      // sees it.
      if (!isRetryable(error) || !isReady) throw error
      if (failures === 0) onNote(`${error.message}. Retrying until it responds`)
      waitMs = Math.min(pollMs * 2 ** failures, pollMs * 15)
      failures += 1
    }
    await delay(waitMs, undefined, { signal }).catch(() => {})
  }
}

function createWatcher(flags: WatchFlags, { onChange, signal }: WatchOptions) {
  /** The last reported rows by {@link keyOf}: the newest rows, and those that may still change. */
  const known = new Map<string, PaymentRow>()
  let newestMs: number | undefined

  const readPages = async (
    query: Record<string, unknown>,
    isDone: (rows: PaymentRow[]) => boolean = () => false,
  ) => {
    const rows: PaymentRow[] = []
    let cursor: string | null = null
    for (let pages = 0; pages < maxPages; pages += 1) {
      signal.throwIfAborted()
      const { endpoint, network, payer } = flags
      const filters = { endpointId: endpoint, network, payer, limit: pageSize, ...query }
      const asked = { method: 'GET' as const, path: ownPath(flags, 'payments'), flagOf }
      const page: PaymentPage = (await request(flags, {
        ...asked,
        query: { ...filters, cursor: cursor ?? undefined },
      })) as never
      rows.push(...page.payments)
      cursor = page.cursor
      if (cursor === null || isDone(rows)) break
    }
    return rows
  }

  async function readEnded(rows: readonly PaymentRow[]): Promise<PaymentRow[]> {
    if (rows.length === 0) return []
    const times = rows.map(({ acceptedAt }) => Date.parse(acceptedAt))
    const keys = new Set(rows.map(keyOf))
    const isFound = (found: PaymentRow[]) => found.filter((row) => keys.has(keyOf(row))).length === keys.size
    const period = { from: isoOf(Math.min(...times)), to: isoOf(Math.max(...times) + 1) }
    return (await readPages(period, isFound)).filter((row) => keys.has(keyOf(row)))
  }

  /** Reports new rows, and rows that have changed since they were last reported. @returns the number of changes. */
  function report(rows: readonly PaymentRow[], isFirst: boolean): number {
    let changes = 0
    for (const row of rows.toSorted((a, b) => Date.parse(a.acceptedAt) - Date.parse(b.acceptedAt))) {
      const before = known.get(keyOf(row))
      known.set(keyOf(row), row)
      newestMs = Math.max(newestMs ?? 0, Date.parse(row.acceptedAt))
      if (isFirst || before?.payment_status === row.payment_status) continue
      changes += 1
      if (flags.status !== undefined && flags.status !== row.payment_status) continue
      onChange({ ...row, previous_status: before?.payment_status ?? null })
    }
    return changes
  }

  return {
    async poll(): Promise<number> {
      const isFirst = newestMs === undefined
      const since = newestMs === undefined ? {} : { from: isoOf(newestMs - overlapMs) }
      const newest = await readPages(since, () => isFirst)
      const open: PaymentRow[] = []
      for (const status of openStatuses) open.push(...(await readPages({ status })))
      // A payment can move to another list between two requests, so use the row that was read last.
      const current = new Map([...newest, ...open].map((row) => [keyOf(row), row]))
      const left = [...known.values()].filter((row) => isOpen(row) && !current.has(keyOf(row)))
      for (const row of await readEnded(left)) current.set(keyOf(row), row)
      const changes = report([...current.values()], isFirst)
      newestMs ??= Date.now()
      for (const [key, row] of known) {
        const isOld = Date.parse(row.acceptedAt) < newestMs - 2 * overlapMs
        if (isOld && !(isOpen(row) && current.has(key))) known.delete(key)
      }
      return changes
    },
  }
}

const keyOf = ({ paymentId, tab }: PaymentRow) => `${paymentId} ${tab?.sale ?? 0}`
const isOpen = ({ payment_status }: PaymentRow) =>
  (openStatuses as readonly string[]).includes(payment_status)
const isoOf = (milliseconds: number) => new Date(milliseconds).toISOString()

function describeChange({ previous_status: before, ...row }: PaymentChange): string {
  const { acceptedAt, payment_status: status, paymentId, totalUsdc, network, payer, resource } = row
  const change = before === null ? status : `${status} (was ${before})`
  const amount = `${formatUsdc(BigInt(totalUsdc))} USDC on ${network} from ${shorten(payer)}`
  return printable(`${acceptedAt}  ${paymentId}  ${change}  ${amount}  ${resource}`)
}
