import { findSoldTabs } from '@tollkeeper/ledger/sales/sales'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { SoldRequest, TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address } from 'viem'
import { findProviderTabLines, signTabLine } from '../payments/receipts/tabLines.ts'
import { findPayments } from '../payments/records/payments.ts'
import { currentRequestReceipt, type RequestReceiptOptions } from '../payments/tabs/currentRequestReceipt.ts'
import {
  type RequestPosition,
  type RequestPositionOptions,
  readRequestPositions,
} from '../payments/tabs/requestPosition.ts'

/**
 * Position of a request among a provider's receipts: when its tab was imported into the ledger, and its number on the tab. Tab lines come
 * after all requests of their tab.
 */
export type TabReceiptPosition = { acceptedAt: Date; paymentId: string; sale: number }

/** The receipt of a request, or a tab line. */
export type TabReceipt = { position: TabReceiptPosition; paymentId: string } & (
  | { receipt: string }
  | { tabLine: string }
)

/** Larger than any request's number: the position of a tab's first line. */
const firstLine = 2 ** 40
/** Position after everything on a tab. */
export const behindTab = 2 ** 41

/** Position at which a page of the provider's receipts ended, possibly at a payment. */
type Position = Omit<TabReceiptPosition, 'sale'> & { sale?: number | undefined }

export type TabReceiptFilter = {
  providerId: string
  status?: PaymentStatus | undefined
  endpointId?: string | undefined
  chainId?: number | undefined
  payer?: Address | undefined
  /** Requests bought in [from, to). */
  from?: Date | undefined
  to: Date
  /** Only tabs that were imported before this time. */
  takenBefore: Date
  /** Whether to return tab lines as well. */
  withTabLines: boolean
  after: Position | null
  limit: number
}

export type TabReceiptOptions = RequestReceiptOptions &
  RequestPositionOptions & { sql: Database; tabReads: TabReads }

/** Number of tabs that a page reads. */
const tabsAtOnce = 50

/**
 * Signs the receipts of a provider's requests on tabs, in the order in which the tabs were imported into the ledger. In any other order, a
 * reader who continues after the last receipt would miss some, because a tab is imported up to an hour after its first request. The tab
 * lines come after the requests of their tab, and stay when the requests are deleted.
 *
 * @returns `next`: the position at which the page ended; null: there are no more.
 */
export async function readTabReceipts(
  options: TabReceiptOptions,
  question: TabReceiptFilter,
): Promise<{ receipts: TabReceipt[]; next: Position | null }> {
  const { limit, after } = question
  const receipts: TabReceipt[] = []
  const tabs = await findSoldTabs(options.sql, {
    ...question,
    to: question.takenBefore,
    after: after && { takenAt: after.acceptedAt, paymentId: after.paymentId },
    limit: tabsAtOnce,
  })
  const linesOf = await readTabLines(
    options,
    question,
    tabs.map(({ paymentId }) => paymentId),
  )
  let looked = 0
  for (const { paymentId, takenAt } of tabs) {
    const tab = await options.tabReads.readByPayment(paymentId)
    let sequence = after?.paymentId === paymentId ? (after.sale ?? 0) : 0
    const place = (sale: number) => ({ position: { acceptedAt: takenAt, paymentId, sale }, paymentId })
    const start = sequence
    // A tab that was deleted after its retention time is undefined, and has no request receipts.
    const positionOf = tab && (await readRequestPositions(options, tab))
    for (let isLast = tab === undefined; tab && positionOf && !isLast; ) {
      const asked = { ...question, after: sequence, limit: limit - looked }
      const requests = await options.tabReads.readRequests(tab, asked)
      isLast = requests.length < asked.limit
      looked += requests.length
      for (const request of requests) {
        sequence = request.sequence
        const position = positionOf(request)
        const receipt =
          isWanted(question, request, position) &&
          (await currentRequestReceipt(options, tab, request, position))
        if (receipt) receipts.push({ ...place(sequence), receipt })
      }
      if (looked >= limit) return { receipts, next: place(sequence).position }
    }
    for (const { position, tabLine } of linesOf.get(paymentId) ?? []) {
      const sale = firstLine + position
      if (sale > start) receipts.push({ ...place(sale), tabLine })
    }
  }
  const last = tabs.at(-1)
  // All requests of the last tab were read, so the next page begins after it.
  const next =
    last && tabs.length === tabsAtOnce ? { ...last, acceptedAt: last.takenAt, sale: behindTab } : null
  return { receipts, next }
}

/** Signs the tab lines of tabs. A filter by endpoint leaves them out, because a line covers all endpoints. */
async function readTabLines(
  { sql, heads, receiptKeys, settings, now }: TabReceiptOptions,
  { providerId, withTabLines, status, endpointId, from, to }: TabReceiptFilter,
  paymentIds: readonly string[],
): Promise<Map<string, { position: number; tabLine: string }[]>> {
  if (!withTabLines || endpointId !== undefined) return new Map()
  const [lines, payments] = await Promise.all([
    findProviderTabLines(sql, providerId, paymentIds),
    findPayments(sql, paymentIds, new Date(now())),
  ])
  const indexedBlocks = await heads.ofProvider(providerId)
  const signed = new Map<string, { position: number; tabLine: string }[]>()
  for (const [paymentId, own] of lines) {
    const payment = payments.get(paymentId)
    if (payment === undefined || (status !== undefined && payment.status !== status)) continue
    const network = networkByChainId(payment.chainId)
    const signing = {
      network,
      providerId,
      indexedBlock: indexedBlocks[network.name] ?? null,
      issuer: settings.issuer,
      signedAt: now(),
      key: receiptKeys.current,
    }
    const wanted = own.filter(({ sales }) =>
      sales.some(({ lastAt }) => lastAt < to && (from === undefined || lastAt >= from)),
    )
    signed.set(
      paymentId,
      wanted.map((line) => ({ position: line.position, tabLine: signTabLine(line, payment, signing) })),
    )
  }
  return signed
}

function isWanted(
  { status, from, to }: TabReceiptFilter,
  { acceptedAt }: SoldRequest,
  position: RequestPosition,
): boolean {
  if (acceptedAt >= to || (from !== undefined && acceptedAt < from)) return false
  return status === undefined || position.status === status
}
