import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import type { Logger } from '@tollkeeper/runtime/log'
import type { Database } from '../store/database.ts'

/** Stores the trace of an accepted payment's request, in the background. */
export type RecordTrace = (paymentId: string, trace: Uint8Array) => void

type Traced = { paymentId: string; trace: Uint8Array }

const together = 200
const maxWaiting = 2_000

/**
 * Creates the function that stores traces. They are written after acceptances, so that untraced acceptances have no additional cost. A
 * trace may be lost if its process ends.
 */
export function createTraceRecorder(sql: Database, log: Logger): RecordTrace {
  const commits = createGroupCommit<Traced, void>({
    commit: async (all) => {
      const ids = all.map(({ paymentId }) => paymentId)
      const traces = all.map(({ trace }) => Buffer.from(trace).toString('hex'))
      // If a payment is presented again, keep the trace of its acceptance.
      await sql`
        update presentation p set trace = decode(t.trace, 'hex')
        from unnest(${ids}::text[], ${traces}::text[]) as t (payment_id, trace)
        where p.payment_id = t.payment_id and p.trace is null`
      return all.map(() => undefined)
    },
    maxItems: together,
    concurrency: 1,
    maxWaiting,
    isItemFault: () => false,
  })
  return (paymentId, trace) => {
    commits
      .submit({ paymentId, trace })
      .catch((err: unknown) => log.debug({ err, paymentId }, 'a trace could not be stored'))
  }
}
