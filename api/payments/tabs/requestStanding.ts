import type { Database } from '@tollkeeper/ledger/store/database'
import type { SoldRequest } from '@tollkeeper/ledger/tabs/tabReads'
import type { StoredTab } from '@tollkeeper/ledger/tabs/tabStore'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Hash } from 'viem'
import { toLineClaims } from '../receipts/receiptClaims.ts'
import type { RecordedHeads } from '../records/recordedHeads.ts'
import { findPaymentOrTab } from '../records/tabPayments.ts'

/** Where a request stands, and the transaction that settled it once that has the network's confirmations. */
export type RequestStanding = {
  status: PaymentStatus
  settlement?: { transactionHash: Hash; blockHash: Hash }
}

export type RequestStandingOptions = { sql: Database; heads: RecordedHeads; now: () => number }

/**
 * Reads where a tab stands.
 *
 * @returns where each of its requests stands: it is voided, or it stands where its tab does. If another state of the tab moved than the
 * one that the gateway chose, a request is settled if that state covers its line up to and with the request.
 */
export async function readRequestStandings(
  { sql, heads, now }: RequestStandingOptions,
  tab: StoredTab,
): Promise<(request: SoldRequest) => RequestStanding> {
  const tabReads = { readByPayment: async () => tab }
  const payment = await findPaymentOrTab({ sql, tabReads }, tab.paymentId, new Date(now()))
  if (payment === undefined) throw new Error(`${tab.tabId} is in the tab store, and is no payment`)
  const { status, provider, chainId } = payment
  const { state, txHash, blockHash, blockNumber } = provider
  const isMoved = txHash !== null && blockHash !== null && blockNumber !== null
  const isConfirmed =
    isMoved &&
    Number(blockNumber) + networkByChainId(chainId).confirmations <= ((await heads.of(chainId)) ?? -1)
  const settled: RequestStanding = {
    status: 'settled',
    ...(isConfirmed && { settlement: { transactionHash: txHash, blockHash } }),
  }
  const movedOf = state === 'foreign_use' ? await readMoved(sql, tab) : () => -1n

  return (request) => {
    const reduced = request.price - request.charged
    if (request.charged === 0n) return { status: 'voided' }
    const isCovered = movedOf(request) >= BigInt(toLineClaims(request, reduced).lineTotal)
    return isMoved && (status === 'settled' || isCovered) ? settled : { status }
  }
}

/**
 * What moved on a request's line by another state of its tab; -1: none did, or the platform got less of its part than was accepted, so
 * the request isn't settled as its receipt says.
 */
async function readMoved(
  sql: Database,
  { paymentId, lines }: StoredTab,
): Promise<(request: SoldRequest) => bigint> {
  const rows = await sql<{ position: number; moved: bigint | null }[]>`
    select l.position, l.moved
    from tab_line l join authorization_event e on e.payment_id = l.payment_id and e.half = 0
    where l.payment_id = ${paymentId} and e.lost_fee_share = 0`
  return ({ split }) => {
    const at = lines.findIndex((line) => line.split === split)
    return rows.find(({ position }) => position === at)?.moved ?? -1n
  }
}
