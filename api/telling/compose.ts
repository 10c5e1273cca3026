import { hash } from 'node:crypto'
import { ownCommand, whereItRuns } from '@tollkeeper/runtime/ownCommand'
import type { Mail } from './mailer.ts'
import type { ClaimedMail, Notice } from './notices.ts'

/** How many items of each kind a mail lists; it counts the rest. */
const listed = 20

const headings: Record<Notice['event'], (count: number) => string> = {
  'settlement.failing': (n) =>
    `${payments(n)} failed to settle three times, and ${n === 1 ? 'is' : 'are'} tried again:`,
  'settlement.failed': (n) => `${payments(n)} will not be settled any more:`,
  'refund.failing': (n) =>
    `${refunds(n)} failed to settle three times, and ${n === 1 ? 'is' : 'are'} tried again:`,
  'refund.failed': (n) =>
    `${refunds(n)} will not be settled any more, and may be made again once the wallet that pays can:`,
  'webhook.disabled': (n) =>
    `${n === 1 ? 'A webhook was' : `${n} webhooks were`} switched off, because the receiver answered 410 Gone:`,
}

/** One mail about all that happened since the last one. */
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
    subject:
      failing.length > 0 ? `Settlement fails for ${failing.join(' and ')}` : 'A webhook was switched off',
    text: [
      `Provider ${providerId} at ${issuer}`,
      ...blocks,
      `${issuer}/dashboard/ shows why, and what can be done.`,
      'There is at most one such mail an hour. Whoever changes the contact of the provider ends them.',
    ].join('\n\n'),
    // The same notices get the same name, in any process and however often it is sent.
    id: hash('sha256', `${providerId}|${notices.map(({ outboxId }) => outboxId).join()}`).slice(0, 32),
  }
}

/** All of its text comes from the provider, the gateway and the reader. */
export function composeConfirmation(
  { providerId, address, code }: { providerId: string; address: string; code: string },
  issuer: string,
): Mail {
  return {
    to: address,
    subject: 'Confirm this address',
    text: [
      `Somebody named this address as the contact of a provider at ${issuer}: ${providerId}`,
      `If that was you, confirm it with this code within 24 hours:\n\n  ${code}`,
      `Run this ${whereItRuns}:\n\n  ${ownCommand} provider contact --provider ${providerId} --code ${code}`,
      'If not, do nothing: nothing else will be sent to this address.',
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
