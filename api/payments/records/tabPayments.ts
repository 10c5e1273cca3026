import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import type { StoredTab } from '@tollkeeper/ledger/tabs/tabStore'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
import { effectiveRate } from '@tollkeeper/sdk/protocol/tier'
import { findPayment, type PaymentRecord } from './payments.ts'

/** A payment, or a tab that the ledger doesn't have as one yet. */
export type FoundPayment = PaymentRecord & {
  /** Set while the tab store alone has it: it is open, or was closed moments ago, or ended unpaid. */
  storedTab?: StoredTab
}

/** Finds a payment from its first request on: a tab is one in the ledger only once it is closed. */
export async function findPaymentOrTab(
  { sql, tabReads }: { sql: Database; tabReads: Pick<TabReads, 'readByPayment'> },
  paymentId: string,
  now: Date,
): Promise<FoundPayment | undefined> {
  const found = await findPayment(sql, paymentId, now)
  if (found) return found
  const tab = await tabReads.readByPayment(paymentId)
  if (tab === undefined) return undefined
  // The ledger may have taken it in after it was asked.
  const taken = tab.takenAt === null ? undefined : await findPayment(sql, paymentId, now)
  return taken ?? { ...toPayment(tab), storedTab: tab }
}

/** A tab as the payment that it will be, with what is charged so far. */
function toPayment(tab: StoredTab): PaymentRecord {
  const { tabId, contract, platform, expiresAt, nonce, takenAt } = tab
  const lines = tab.lines.map(({ split, charged }) => ({ split, charged: charged > 0n ? charged : 0n }))
  const value = lines.reduce((sum, { charged }) => sum + charged, 0n)
  const feeAmount = lines.reduce((sum, { split, charged }) => sum + platformPart(split, charged), 0n)
  const hasFailed = takenAt !== null && value > 0n
  return {
    paymentId: tab.paymentId,
    requestId: null,
    source: 'tab',
    providerId: null,
    endpointId: null,
    chainId: tab.chainId,
    token: tab.token,
    payer: tab.payer,
    resource: tabId,
    tier: 'tab',
    effectiveRate: value === 0n ? '0' : effectiveRate(value, feeAmount),
    acceptedAt: tab.closedAt ?? tab.openedAt,
    trace: null,
    attempts: 0,
    nextAttemptAt: null,
    heldBy: null,
    failureCode: hasFailed ? 'tab_too_small' : null,
    failedAt: hasFailed ? takenAt : null,
    voidedAt: takenAt !== null && value === 0n ? takenAt : null,
    payee: contract,
    feeRecipient: platform,
    providerAmount: value - feeAmount,
    feeAmount,
    splitter: null,
    validBefore: BigInt(expiresAt),
    status: takenAt === null ? 'verified' : value > 0n ? 'failed' : 'voided',
    provider: {
      state: 'open',
      recipient: contract,
      value,
      nonce,
      txHash: null,
      logIndex: null,
      blockNumber: null,
      blockHash: null,
    },
    fee: null,
    paidOut: null,
    refunds: [],
  }
}
