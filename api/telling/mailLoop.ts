import type { Database } from '#ledger/store/database'
import type { Logger } from '#process/log'
import { type Loop, repeat } from '#process/repeat'
import { decideRedelivery } from './backoff.ts'
import { composeNotices } from './compose.ts'
import type { Mailer } from './mailer.ts'
import { type ClaimedMail, claimMail, postponeMail, readNotices, recordMail } from './notices.ts'

export type MailLoopOptions = {
  sql: Database
  mailer: Mailer
  /** The gateway's public URL. */
  issuer: string
  log: Logger
  /** Unix milliseconds. */
  now?: () => number
  /** Called with what came of each sending. */
  onAttempt?: (outcome: 'sent' | 'failed' | 'exhausted') => void
  onError?: () => void
}

export type MailLoop = {
  start(): Loop
  /** Sends all that is due now; for tests. @returns how many were tried */
  sendDue(): Promise<number>
}

/** Longer than the mailer's time limits for connecting, greeting and a silence, one after the other. */
const leaseMs = 60_000

/**
 * Mails providers what happened to their payments and webhooks, gathered, to contacts that were confirmed.
 *
 * At least once, as webhooks are: claimed for a while, sent, written down. Where the last step doesn't happen the same mail is
 * sent again, by the same name.
 */
export function createMailLoop({
  sql,
  mailer,
  issuer,
  log,
  now = Date.now,
  onAttempt,
  onError,
}: MailLoopOptions): MailLoop {
  async function tell(mail: ClaimedMail): Promise<void> {
    const notices = await readNotices(sql, mail.providerId)
    const { providerId, attempt } = mail
    try {
      if (notices.length > 0) await mailer.send(composeNotices(mail, notices, issuer))
    } catch (err) {
      const delayMs = decideRedelivery({ attempts: attempt, random: Math.random() })
      log.warn({ err, providerId, attempt }, 'a mail could not be sent')
      onAttempt?.(delayMs === null ? 'exhausted' : 'failed')
      if (delayMs === null) await recordMail(sql, mail, notices, new Date(now()))
      else await postponeMail(sql, mail, new Date(now() + delayMs))
      return
    }
    await recordMail(sql, mail, notices, new Date(now()))
    onAttempt?.('sent')
    log.info({ providerId, attempt, notices: notices.length }, 'mail sent')
  }

  async function sendNext(): Promise<'busy' | 'idle'> {
    const mail = await claimMail(sql, { now: new Date(now()), leaseMs })
    if (mail === undefined) return 'idle'
    await tell(mail)
    return 'busy'
  }

  return {
    async sendDue() {
      let tried = 0
      while ((await sendNext()) === 'busy') tried++
      return tried
    },
    start: () =>
      repeat({
        name: 'mail',
        everyMs: 5_000,
        step: sendNext,
        onError(err) {
          log.error({ err }, 'mail can not be sent for now')
          onError?.()
        },
      }),
  }
}
