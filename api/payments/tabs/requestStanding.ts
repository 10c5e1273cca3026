import type { Database } from '@tollkeeper/ledger/store/database'
import type { StoredTab, TabRequest } from '@tollkeeper/ledger/tabs/tabStore'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Hash } from 'viem'
import { findPaymentOrTab } from '../records/tabPayments.ts'
import type { RecordedHeads } from '../records/recordedHeads.ts'
import { toLineClaims } from '../receipts/receiptClaims.ts'

/** Where a request stands, and the transaction that settled it once that has the network's confirmations. */
export type RequestStanding = {
  status: PaymentStatus
  settlement?: { transactionHash: Hash; blockHash: Hash }
}

export type RequestStandingOptions = { sql: Database; heads: RecordedHeads; now: () => number }

/**
 * Reads where a request on a tab stands: it is voided, or it stands where its tab does. If another state of the tab moved than the one
 * that the gateway chose, a request is settled if that state covers its line up to and with the request.
 */
export async function readRequestStanding(
  { sql, heads, now }: RequestStandingOptions,
  tab: StoredTab,
  request: TabRequest,
): Promise<RequestStanding> {
  const reduced = request.price - request.charged
  if (request.charged === 0n) return { status: 'voided' }
  const tabStore = { readByPayment: async () => tab }
  const payment = await findPaymentOrTab({ sql, tabStore }, tab.paymentId, new Date(now()))
  if (payment === undefined) return { status: 'verified' }
  const { status, provider, chainId } = payment
  const { txHash, blockHash, blockNumber } = provider
  const isCovered =
    status === 'settled' ||
    (provider.state === 'foreign_use' &&
      (await readMoved(sql, tab, request)) >= BigInt(toLineClaims(request, reduced).lineTotal))
  if (!isCovered || txHash === null || blockHash === null || blockNumber === null) return { status }
  const indexed = (await heads.of(chainId)) ?? -1
  const isConfirmed = Number(blockNumber) + networkByChainId(chainId).confirmations <= indexed
  return {
    status: 'settled',
    ...(isConfirmed && { settlement: { transactionHash: txHash, blockHash } }),
  }
}

/** What moved on a request's line by another state of its tab; -1: none did. */
async function readMoved(sql: Database, { paymentId, lines }: StoredTab, { split }: TabRequest): Promise<bigint> {
  const position = lines.findIndex((line) => line.split === split)
  const [row] = await sql<{ moved: bigint | null }[]>`
    select moved from tab_line where payment_id = ${paymentId} and position = ${position}`
  return row?.moved ?? -1n
}
