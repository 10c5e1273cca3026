import type { Database } from '@tollkeeper/ledger/store/database'
import type { SoldRequest } from '@tollkeeper/ledger/tabs/tabReads'
import type { StoredTab } from '@tollkeeper/ledger/tabs/tabStore'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Hash } from 'viem'
import { toLineClaims } from '../receipts/receiptClaims.ts'
import type { RecordedHeads } from '../records/recordedHeads.ts'
import { findPaymentOrTab } from '../records/tabPayments.ts'

/** The status of a request, and the transaction that settled the request, once the transaction has the network's confirmations. */
export type RequestPosition = {
  status: PaymentStatus
  settlement?: { transactionHash: Hash; blockHash: Hash }
}

export type RequestPositionOptions = { sql: Database; heads: RecordedHeads; now: () => number }

/**
 * Reads the statuses of the requests on a tab.
 *
 * @returns a function that returns the position of a request: the request is voided, or has the tab's status. The chain may have settled another
 * state of the tab than the gateway's newest. Then a request is settled if that state covers the request's line up to and including the request.
 */
export async function readRequestPositions(
  { sql, heads, now }: RequestPositionOptions,
  tab: StoredTab,
): Promise<(request: SoldRequest) => RequestPosition> {
  const tabReads = { readByPayment: async () => tab }
  const payment = await findPaymentOrTab({ sql, tabReads }, tab.paymentId, new Date(now()))
  if (payment === undefined) throw new Error(`${tab.tabId} is in the tab store, but is not a payment`)
  const { status, provider, chainId } = payment
  const { state, txHash, blockHash, blockNumber } = provider
  const isMoved = txHash !== null && blockHash !== null && blockNumber !== null
  const isConfirmed =
    isMoved &&
    Number(blockNumber) + networkByChainId(chainId).confirmations <= ((await heads.of(chainId)) ?? -1)
  const settled: RequestPosition = {
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
 * Reads which amount of each request's line another state of the tab moved. The amount is -1 if that state moved nothing, or if the platform got
 * less than its accepted part: then the request isn't settled as its receipt states.
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
