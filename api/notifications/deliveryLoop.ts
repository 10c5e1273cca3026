import type { Database } from '@tollkeeper/ledger/store/database'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { failedDependency, isRowFault, isTimeLimit } from '@tollkeeper/runtime/dependencies'
import { describeError, type Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { type SendResult, send } from '@tollkeeper/runtime/send'
import { createStepBack, logBadRow, type OnBadRow } from '@tollkeeper/runtime/stepBack'
import { decideRedelivery } from './backoff.ts'
import {
  type ClaimedDelivery,
  claimDeliveries,
  disableWebhook,
  dispatchOutbox,
  readOldestMessage,
  recordAttempt,
  recordReceiver,
  type Sending,
  senderShares,
} from './deliveries.ts'
import { deliverMail, type MailOptions, type MailResult } from './mail.ts'
import { failureOf, signMessage } from './message.ts'
import { claimMail } from './notices.ts'

export type DeliveryLoopOptions = {
  sql: Database
  guard: AddressGuard
  log: Logger
  /** Settings for mail to providers that need to act. Default: no mail is sent. */
  mail?: MailOptions | null
  /** Unix milliseconds. */
  now?: () => number
  /** A number in [0, 1) that spreads retries. */
  random?: () => number
  /** Pause in ms while nothing is due. */
  pollIntervalMs?: number
  /** Maximum number of concurrent sendings. */
  senders?: number
  /** Timeout in ms of one sending; default 10,000. */
  timeoutMs?: number
  /** Time in ms within which a receiver must answer so that it doesn't count as slow; default 2,000. */
  soonMs?: number
  /** Called with the result of each sending. */
  onAttempt?: (outcome: MailResult['outcome'], receiver: 'webhook' | 'mail') => void
  onError?: () => void
  /** Default: bad rows are only logged. */
  onBadRow?: OnBadRow
}

export type DeliveryLoop = {
  start(): Loop
  /** Sends everything that is due now, for tests and for callers with their own schedule. @returns how many messages were sent */
  deliverDue(): Promise<number>
  /** Starts no new sendings, and waits for those in progress. */
  close(): Promise<void>
}

/** Time in ms for which a message stays claimed beyond the timeout of a webhook. A mail takes at most three times that timeout. */
const leaseMarginMs = 50_000
const messagesAtOnce = 500

/**
 * Sends the outbox to the receivers that providers registered: webhooks, and confirmed contacts by mail.
 *
 * Every message is sent at least once: it is claimed for a while, sent, and its result is stored. If the result isn't stored, the message
 * is sent again. Any number of processes share the work.
 */
export function createDeliveryLoop(options: DeliveryLoopOptions): DeliveryLoop {
  const { sql, guard, log, mail = null, onAttempt, onError, onBadRow = logBadRow(log) } = options
  const { now = Date.now, random = Math.random } = options
  const { pollIntervalMs = 1_000, senders = 16, timeoutMs = 10_000, soonMs = 2_000 } = options
  const shares = senderShares(senders)
  const leaseMs = timeoutMs + leaseMarginMs
  const dispatch = createDispatcher({ sql, now, onBadRow })
  /** The sendings in progress; null: the sending is a mail. */
  const underWay = new Map<Promise<void>, Sending | null>()
  let loop: Loop | undefined

  async function startDue(): Promise<number> {
    await dispatch()
    const claimed = await claimDeliveries(sql, {
      now: new Date(now()),
      leaseMs,
      shares,
      underWay: [...underWay.values()].filter((sending) => sending !== null),
    })
    for (const delivery of claimed) {
      follow(deliver(delivery), delivery, { deliveryId: delivery.id })
    }
    return claimed.length + (await startMail())
  }

  /** Starts one mail at a time, because an SMTP server accepts few connections from one client. */
  async function startMail(): Promise<number> {
    if (mail === null || [...underWay.values()].includes(null)) return 0
    const claimed = await claimMail(sql, { now: new Date(now()), leaseMs })
    if (claimed === undefined) return 0
    const { providerId, attempt } = claimed
    const sending = deliverMail(sql, claimed, { ...mail, now, random }).then(
      ({ outcome, notices, error }) => {
        if (error === undefined) log.info({ providerId, attempt, notices }, 'mail sent')
        else log.warn({ err: error, providerId, attempt }, 'a mail could not be sent')
        onAttempt?.(outcome, 'mail')
      },
    )
    follow(sending, null, { providerId })
    return 1
  }

  function report(error: unknown): void {
    log.error({ err: error }, 'webhooks can’t be sent; retrying')
    onError?.()
  }

  function follow(work: Promise<void>, kind: Sending | null, names: object): void {
    const sending = work
      .catch((error: unknown) => {
        // The message is sent again, because its result isn't stored. The message itself isn't at fault.
        if (failedDependency(error) !== undefined) report(error)
        else onBadRow('delivery', error, { ...names })
      })
      .finally(() => underWay.delete(sending))
    underWay.set(sending, kind)
  }

  async function deliver(delivery: ClaimedDelivery): Promise<void> {
    const startedAt = new Date(now())
    const began = performance.now()
    const result = await sendMessage(delivery, startedAt)
    const tookMs = performance.now() - began
    const failure = failureOf(result)
    const isAnswered = result.status === 'answered'
    const endedAt = new Date(now())
    const retryAfterMs = isAnswered ? result.retryAfterMs : 0
    const delayMs =
      failure === null
        ? null
        : decideRedelivery({ attempts: delivery.attempt, retryAfterMs, random: random() })
    await recordAttempt(
      sql,
      delivery,
      {
        endedAt,
        failure,
        httpStatus: isAnswered ? result.httpStatus : null,
        detail: isAnswered ? null : result.detail,
        // Postgres doesn't store NUL in text.
        response: isAnswered ? result.body.slice(0, 1_000).replaceAll('\0', '') : null,
      },
      delayMs === null ? null : new Date(endedAt.getTime() + delayMs),
    )
    const answersSoon = isAnswered && tookMs <= soonMs
    await recordReceiver(sql, delivery.webhookId, { startedAt, endedAt, isAnswered, answersSoon })
    if (failure === 'gone') await disableWebhook(sql, delivery.webhookId, endedAt)
    onAttempt?.(failure === null ? 'delivered' : delayMs === null ? 'exhausted' : 'failed', 'webhook')
    const { id, attempt, webhookId, messageId } = delivery
    log.info({ deliveryId: id, webhookId, messageId, attempt, failure }, 'webhook sent')
  }

  /**
   * Sends a message. If it can't even be composed, that counts as a failed attempt, so that it is retried with pauses and finally fails.
   */
  async function sendMessage(delivery: ClaimedDelivery, startedAt: Date): Promise<SendResult> {
    try {
      const { headers, body } = signMessage(delivery, startedAt)
      return await send({ url: delivery.url, headers, body, guard, timeoutMs })
    } catch (error) {
      onBadRow('delivery', error, { deliveryId: delivery.id })
      return { status: 'unanswered', failure: 'not_sent', detail: describeError(error), code: '' }
    }
  }

  async function step(): Promise<'busy' | 'idle'> {
    const started = await startDue()
    if (underWay.size >= senders) await Promise.race(underWay.keys())
    else if (started === 0) return 'idle'
    return 'busy'
  }

  return {
    start() {
      loop ??= repeat({
        name: 'webhooks',
        everyMs: pollIntervalMs,
        step,
        onError: report,
      })
      return loop
    },
    async deliverDue() {
      let sent = 0
      for (;;) {
        const started = await startDue()
        await Promise.all(underWay.keys())
        if (started === 0) return sent
        sent += started
      }
    },
    async close() {
      await loop?.stop()
      await Promise.all(underWay.keys())
    },
  }
}

type DispatcherOptions = Required<Pick<DeliveryLoopOptions, 'sql' | 'now' | 'onBadRow'>>

/**
 * Creates the function that dispatches new messages in batches. If a batch fails, the function dispatches messages one by one until it finds the bad
 * message, which is retried later. A deadlock also makes a batch fail, although no message is bad. So the function returns to batches after it has
 * dispatched as many messages one by one as a full batch has.
 */
function createDispatcher({ sql, now, onBadRow }: DispatcherOptions): () => Promise<void> {
  const undispatched = createStepBack<bigint>(now)
  return async () => {
    /** Number of messages that are still to be dispatched one by one. */
    let suspects = 0
    for (;;) {
      const except = undispatched.waiting()
      const limit = suspects > 0 ? 1 : messagesAtOnce
      try {
        const dispatched = await dispatchOutbox(sql, { now: new Date(now()), limit, except })
        if (dispatched < limit) return
        suspects = Math.max(0, suspects - 1)
      } catch (error) {
        if (!isRowFault(error) && !isTimeLimit(error)) throw error
        if (limit > 1) {
          suspects = messagesAtOnce
          continue
        }
        const id = await readOldestMessage(sql, except)
        if (id === undefined) return
        undispatched.failed(id)
        onBadRow('message', error, { message: `${id}` })
        suspects = 0
      }
    }
  }
}
