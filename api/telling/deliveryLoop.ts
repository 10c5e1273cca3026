import type { Database } from '@tollkeeper/ledger/store/database'
import { failedDependency, isRowFault, isTimeLimit } from '@tollkeeper/runtime/dependencies'
import { describeError, type Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { createStepBack, logBadRow, type OnBadRow } from '@tollkeeper/runtime/stepBack'
import { Webhook } from 'standardwebhooks'
import type { AddressGuard } from '../http/addressGuard.ts'
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
import { claimMail } from './notices.ts'
import { type SendResult, send } from './send.ts'

export type DeliveryLoopOptions = {
  sql: Database
  guard: AddressGuard
  log: Logger
  /** How mail reaches providers that must act. Default: no mail is sent. */
  mail?: MailOptions | null
  /** Unix milliseconds. */
  now?: () => number
  /** In [0, 1); spreads retries. */
  random?: () => number
  /** How long to rest when nothing is due. */
  pollIntervalMs?: number
  /** Messages under way at once. */
  senders?: number
  /** For one sending; default 10,000. */
  timeoutMs?: number
  /** How long a receiver may take to answer without counting as slow; default 2,000. */
  soonMs?: number
  /** Called with the result of each sending. */
  onAttempt?: (outcome: MailResult['outcome'], receiver: 'webhook' | 'mail') => void
  onError?: () => void
  /** Default: it is only logged. */
  onBadRow?: OnBadRow
}

export type DeliveryLoop = {
  start(): Loop
  /** Sends all that is due now, for tests and for callers with their own schedule. @returns how many were sent */
  deliverDue(): Promise<number>
  /** Takes up nothing new and waits for what is under way. */
  close(): Promise<void>
}

/** How much longer a message stays claimed than an exchange with a webhook may take. A mail takes three times as long at most. */
const leaseMarginMs = 50_000
const messagesAtOnce = 500

/**
 * Sends the outbox to the receivers that providers registered: webhooks, and by mail confirmed contacts.
 *
 * It sends at least once: a message is claimed for a while, sent, and its result stored; if the last step doesn't
 * happen, it is sent again. Any number of processes share the work.
 */
export function createDeliveryLoop(options: DeliveryLoopOptions): DeliveryLoop {
  const { sql, guard, log, mail = null, onAttempt, onError, onBadRow = logBadRow(log) } = options
  const { now = Date.now, random = Math.random } = options
  const { pollIntervalMs = 1_000, senders = 16, timeoutMs = 10_000, soonMs = 2_000 } = options
  const shares = senderShares(senders)
  const leaseMs = timeoutMs + leaseMarginMs
  const dispatch = createDispatcher({ sql, now, onBadRow })
  /** Null: a mail. */
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

  /** One mail at a time: an SMTP server takes few connections from one client. */
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
    log.error({ err: error }, 'webhooks can not be sent for now')
    onError?.()
  }

  function follow(work: Promise<void>, kind: Sending | null, names: object): void {
    const sending = work
      .catch((error: unknown) => {
        // What was sent is sent again, because its result isn't stored. Nothing is wrong with it.
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
        // Postgres keeps no NUL in text.
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

  /** A message that can't even be sent counts as one that failed, so that its further attempts have their pauses and end. */
  async function sendMessage(delivery: ClaimedDelivery, startedAt: Date): Promise<SendResult> {
    try {
      const { headers, body } = signMessage(delivery, startedAt)
      return await send({ url: delivery.url, headers, body, guard, timeoutMs })
    } catch (error) {
      onBadRow('delivery', error, { deliveryId: delivery.id })
      return { status: 'unanswered', failure: 'not_sent', detail: describeError(error) }
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
 * Dispatches what is new. If a message may be at fault, messages are dispatched one by one until it is found or as many as a full batch
 * have passed, because a deadlock looks alike and no message is at fault for that. A message at fault is tried again later.
 */
function createDispatcher({ sql, now, onBadRow }: DispatcherOptions): () => Promise<void> {
  const undispatched = createStepBack<bigint>(now)
  return async () => {
    /** How many messages to dispatch one by one. */
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

/** The message in the wire format of Standard Webhooks. */
function signMessage(
  delivery: ClaimedDelivery,
  timestamp: Date,
): { headers: Record<string, string>; body: string } {
  const { messageId, event, createdAt, paymentId, txHash, data } = delivery
  const body = JSON.stringify({
    type: event,
    timestamp: createdAt.toISOString(),
    // A refund's `data` names the payment that it refunds.
    data: { paymentId, txHash, ...data },
  })
  const signatures = delivery.secrets.map((secret) => new Webhook(secret).sign(messageId, timestamp, body))
  return {
    body,
    headers: {
      'content-type': 'application/json',
      'user-agent': 'Tollkeeper-Webhooks/1',
      'webhook-id': messageId,
      'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
      'webhook-signature': signatures.join(' '),
    },
  }
}

function failureOf(result: SendResult): string | null {
  if (result.status === 'unanswered') return result.failure
  if (result.httpStatus >= 200 && result.httpStatus < 300) return null
  if (result.httpStatus === 410) return 'gone'
  return result.httpStatus >= 300 && result.httpStatus < 400
    ? 'redirect_refused'
    : `http_${result.httpStatus}`
}
