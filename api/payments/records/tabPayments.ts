import type { Database } from '@tollkeeper/ledger/store/database'
import { sumCharges, type TabCharges } from '@tollkeeper/ledger/tabs/tabCharges'
import type { TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import type { StoredTab } from '@tollkeeper/ledger/tabs/tabStore'
import { findUnpaidTab, type UnpaidTab } from '@tollkeeper/ledger/tabs/unpaidTabs'
import { effectiveRate } from '@tollkeeper/sdk/protocol/tier'
import { findPayment, type PaymentRecord } from './payments.ts'

/** A payment, or a tab that isn't a payment in the ledger. */
export type FoundPayment = PaymentRecord & {
  /** Set for a tab that the ledger doesn't have yet: it is open, or was closed moments ago. */
  storedTab?: StoredTab
  /** Set for a tab that ended without a payment. */
  unpaidTab?: UnpaidTab
}

type FindPaymentOptions = { sql: Database; tabReads: Pick<TabReads, 'readByPayment'> }

/**
 * Finds a payment by its id. A tab has the id of the payment that it becomes, so this function also finds tabs: from their first request on, and
 * also if they ended unpaid.
 *
 * The ledger stores a tab's payment before the tab store marks the tab as taken. So if the tab store marks the tab as taken, this
 * function queries the ledger again.
 */
export async function findPaymentOrTab(
  { sql, tabReads }: FindPaymentOptions,
  paymentId: string,
  now: Date,
): Promise<FoundPayment | undefined> {
  const found = await findPayment(sql, paymentId, now)
  if (found) return found
  const storedTab = await tabReads.readByPayment(paymentId)
  if (storedTab?.takenAt === null) return fromStore(storedTab)
  const taken = storedTab && (await findPayment(sql, paymentId, now))
  if (taken) return taken
  const unpaidTab = await findUnpaidTab(sql, paymentId)
  if (unpaidTab) return { ...toPayment(unpaidTab, unpaidTab), ...toEnd(unpaidTab), unpaidTab }
  // If the ledger was restored to an earlier time than the tab store, it may lack a tab that is marked as taken.
  return storedTab && fromStore(storedTab)
}

function fromStore(storedTab: StoredTab): FoundPayment {
  return { ...toPayment(storedTab, sumCharges(storedTab.lines)), status: 'verified', storedTab }
}

/** Converts a tab to the payment that it becomes, with the charges on it. */
function toPayment(
  tab: StoredTab | UnpaidTab,
  { charged: value, feeAmount }: TabCharges,
): Omit<PaymentRecord, 'status'> {
  const { contract, nonce } = tab
  return {
    paymentId: tab.paymentId,
    requestId: null,
    source: 'tab',
    providerId: null,
    endpointId: null,
    chainId: tab.chainId,
    token: tab.token,
    payer: tab.payer,
    resource: tab.tabId,
    tier: 'tab',
    effectiveRate: effectiveRate(value, feeAmount),
    acceptedAt: tab.closedAt ?? tab.openedAt,
    trace: null,
    attempts: 0,
    nextAttemptAt: null,
    heldBy: null,
    failureCode: null,
    failedAt: null,
    voidedAt: null,
    payee: contract,
    feeRecipient: tab.platform,
    providerAmount: value - feeAmount,
    feeAmount,
    splitter: null,
    validBefore: BigInt(tab.expiresAt),
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

/** Returns the end of a tab that never became a payment: voided if nothing was charged on the tab, otherwise failed. */
function toEnd({
  code,
  endedAt,
}: UnpaidTab): Pick<PaymentRecord, 'status' | 'failureCode' | 'failedAt' | 'voidedAt'> {
  return code === null
    ? { status: 'voided', failureCode: null, failedAt: null, voidedAt: endedAt }
    : { status: 'failed', failureCode: code, failedAt: endedAt, voidedAt: null }
}
