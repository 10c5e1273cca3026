import { hash } from 'node:crypto'
import { ownCommand, whereItRuns } from '@tollkeeper/runtime/ownCommand'
import type { Mail } from './mailer.ts'
import type { ClaimedMail, Notice } from './notices.ts'

/** Maximum number of notices of each kind that a mail lists. For further notices, the mail states only their number. */
const listed = 20

const headings: Record<Notice['event'], (count: number) => string> = {
  'settlement.failing': (n) => `${payments(n)} failed to settle three times, and will be retried:`,
  'settlement.failed': (n) => `${payments(n)} failed and will not be retried:`,
  'refund.failing': (n) => `${refunds(n)} failed to settle three times, and will be retried:`,
  'refund.failed': (n) =>
    `${refunds(n)} failed and will not be retried. Request ${n === 1 ? 'it' : 'them'} again once the paying wallet is able to pay:`,
  'webhook.disabled': (n) =>
    `${n === 1 ? 'A webhook was' : `${n} webhooks were`} disabled because the receiver answered 410 Gone:`,
}

/** Composes one mail about everything that happened since the last mail. */
export function composeNotices(
  { providerId, address }: Pick<ClaimedMail, 'providerId' | 'address'>,
  notices: readonly Notice[],
  issuer: string,
): Mail {
  const byEvent = Map.groupBy(notices, ({ event }) => event)
  const blocks = Object.entries(headings).flatMap(([event, heading]) => {
    const found = byEvent.get(event as Notice['event']) ?? []
    if (found.length === 0) return []
    const lines = found.slice(0, listed).map((notice) => `  ${describe(notice)}`)
    if (found.length > listed) lines.push(`  and ${found.length - listed} more`)
    return [[heading(found.length), ...lines].join('\n')]
  })
  const ofKind = (kind: string) => notices.filter(({ event }) => event.startsWith(`${kind}.`)).length
  const failing = [
    ...(ofKind('settlement') > 0 ? [payments(ofKind('settlement'))] : []),
    ...(ofKind('refund') > 0 ? [refunds(ofKind('refund'))] : []),
  ]
  return {
    to: address,
    subject: failing.length > 0 ? `Settlement fails for ${failing.join(' and ')}` : 'A webhook was disabled',
    text: [
      `Provider ${providerId} at ${issuer}`,
      ...blocks,
      `${issuer}/dashboard/ shows the reasons, and what you can do.`,
      'You get at most one such mail an hour. To stop these mails, change the contact of the provider.',
    ].join('\n\n'),
    // The same notices get the same id, in any process and in every repeated sending.
    id: hash('sha256', `${providerId}|${notices.map(({ outboxId }) => outboxId).join()}`).slice(0, 32),
  }
}

/** Composes the mail that asks for confirmation. Its text contains nothing that a stranger can choose. */
export function composeConfirmation(
  { providerId, address, code }: { providerId: string; address: string; code: string },
  issuer: string,
): Mail {
  return {
    to: address,
    subject: 'Confirm this address',
    text: [
      `This address was entered as the contact of a provider at ${issuer}: ${providerId}`,
      `If you did this, confirm the address with this code within 24 hours:\n\n  ${code}`,
      `Run this ${whereItRuns}:\n\n  ${ownCommand} provider contact --provider ${providerId} --code ${code}`,
      'If you did not, ignore this mail. This address gets no other mail.',
    ].join('\n\n'),
    id: hash('sha256', code).slice(0, 32),
  }
}

function payments(count: number): string {
  return count === 1 ? '1 payment' : `${count} payments`
}

function refunds(count: number): string {
  return count === 1 ? '1 refund' : `${count} refunds`
}

function describe({ event, paymentId, data }: Notice): string {
  if (event === 'webhook.disabled') return `${data.webhookId} ${data.url}`
  const next = typeof data.nextAttemptAt === 'string' ? `, next attempt ${data.nextAttemptAt}` : ''
  const of = event.startsWith('refund.') ? `refund ${data.number} of ` : ''
  const tab = typeof data.tabId === 'string' ? ` (a tab with ${data.requests} requests to you)` : ''
  return `${of}${data.paymentId ?? paymentId}${tab} ${data.code}${next}`
}
