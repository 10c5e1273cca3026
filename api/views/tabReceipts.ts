import { findSoldTabs } from '@tollkeeper/ledger/sales/sales'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { SoldRequest, TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address } from 'viem'
import { currentRequestReceipt, type RequestReceiptOptions } from '../payments/tabs/currentRequestReceipt.ts'
import {
  type RequestStanding,
  type RequestStandingOptions,
  readRequestStandings,
} from '../payments/tabs/requestStanding.ts'

/** A request's place among a provider's receipts: when its tab was taken into the ledger, and its number on the tab. */
export type TabReceiptPosition = { acceptedAt: Date; paymentId: string; sale: number }

export type TabReceipt = { position: TabReceiptPosition; paymentId: string; receipt: string }

/** Where a page of the provider's receipts ended, which may have been a payment. */
type Position = Omit<TabReceiptPosition, 'sale'> & { sale?: number | undefined }

export type TabReceiptQuestion = {
  providerId: string
  status?: PaymentStatus | undefined
  endpointId?: string | undefined
  chainId?: number | undefined
  payer?: Address | undefined
  /** Bought in [from, to). */
  from?: Date | undefined
  to: Date
  /** Only tabs that were taken in before. */
  takenBefore: Date
  after: Position | null
  limit: number
}

export type TabReceiptOptions = RequestReceiptOptions &
  RequestStandingOptions & { sql: Database; tabReads: TabReads }

/** How many tabs a page looks into. */
const tabsAtOnce = 50

/**
 * Signs the receipts of a provider's requests on tabs, in the order in which the tabs were taken into the ledger: in no other order would
 * a reader who goes on after the last one miss none, since a tab is taken in up to an hour after its first request.
 *
 * @returns `next`: where the page ended; null: there are no more.
 */
export async function readTabReceipts(
  options: TabReceiptOptions,
  question: TabReceiptQuestion,
): Promise<{ receipts: TabReceipt[]; next: Position | null }> {
  const { limit, after } = question
  const receipts: TabReceipt[] = []
  const tabs = await findSoldTabs(options.sql, {
    ...question,
    to: question.takenBefore,
    after: after && { takenAt: after.acceptedAt, paymentId: after.paymentId },
    limit: tabsAtOnce,
  })
  let looked = 0
  for (const { paymentId, takenAt } of tabs) {
    const tab = await options.tabReads.readByPayment(paymentId)
    // It is deleted after its time of retention.
    if (tab === undefined) continue
    const standingOf = await readRequestStandings(options, tab)
    let sequence = after?.paymentId === paymentId ? (after.sale ?? 0) : 0
    for (let isLast = false; !isLast; ) {
      const asked = { ...question, after: sequence, limit: limit - looked }
      const requests = await options.tabReads.readRequests(tab, asked)
      isLast = requests.length < asked.limit
      looked += requests.length
      for (const request of requests) {
        sequence = request.sequence
        const standing = standingOf(request)
        const receipt =
          isWanted(question, request, standing) &&
          (await currentRequestReceipt(options, tab, request, standing))
        const position = { acceptedAt: takenAt, paymentId, sale: sequence }
        if (receipt) receipts.push({ position, paymentId, receipt })
      }
      if (looked >= limit) return { receipts, next: { acceptedAt: takenAt, paymentId, sale: sequence } }
    }
  }
  const last = tabs.at(-1)
  // All requests of the last tab were looked at, so the next page begins behind it.
  const next =
    last && tabs.length === tabsAtOnce ? { ...last, acceptedAt: last.takenAt, sale: 2 ** 40 } : null
  return { receipts, next }
}

function isWanted(
  { status, from, to }: TabReceiptQuestion,
  { acceptedAt }: SoldRequest,
  standing: RequestStanding,
): boolean {
  if (acceptedAt >= to || (from !== undefined && acceptedAt < from)) return false
  return status === undefined || standing.status === status
}
