import type { Database } from '@tollkeeper/ledger/store/database'
import { decideRedelivery } from './backoff.ts'
import { composeNotices } from './compose.ts'
import type { Mailer } from './mailer.ts'
import { type ClaimedMail, postponeMail, readNotices, recordMail } from './notices.ts'

export type MailOptions = {
  mailer: Mailer
  /** The gateway's public URL. */
  issuer: string
}

export type MailResult = { outcome: 'delivered' | 'failed' | 'exhausted'; notices: number; error?: unknown }

/**
 * Mails a provider what happened to its payments and webhooks, and stores the result. If the result isn't stored, the same mail is sent
 * again with the same id.
 *
 * @param now Unix milliseconds
 */
export async function deliverMail(
  sql: Database,
  mail: ClaimedMail,
  { mailer, issuer, now, random }: MailOptions & { now: () => number; random: () => number },
): Promise<MailResult> {
  const notices = await readNotices(sql, mail.providerId)
  let delayMs: number | null = null
  let error: unknown
  try {
    if (notices.length > 0) await mailer.send(composeNotices(mail, notices, issuer))
  } catch (cause) {
    error = cause
    delayMs = decideRedelivery({ attempts: mail.attempt, random: random() })
  }
  if (delayMs === null) await recordMail(sql, mail, notices, new Date(now()))
  else await postponeMail(sql, mail, new Date(now() + delayMs))
  const outcome = error === undefined ? 'delivered' : delayMs === null ? 'exhausted' : 'failed'
  return { outcome, notices: notices.length, error }
}
