import { tooLate } from '@tollkeeper/ledger/acceptance/acceptance'
import type { SignatureCheckOptions } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { checkPresented } from '@tollkeeper/ledger/acceptance/door'
import type { Database } from '@tollkeeper/ledger/store/database'
import { derivedId, newId } from '@tollkeeper/ledger/store/identifiers'
import { createReserveForTab, refusalOf } from '@tollkeeper/ledger/tabs/reserveForTab'
import type { AcceptedOnTab, TabCandidate, TabStore, TabVerdict } from '@tollkeeper/ledger/tabs/tabStore'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { maxIdleTabLines, type TabPayment, type TabTerms, tabSplit } from '@tollkeeper/sdk/protocol/tab'
import { tabRefusals } from '@tollkeeper/sdk/protocol/tabRule'
import type { TabResponse } from '@tollkeeper/sdk/protocol/x402'
import type { Address, Hex } from 'viem'
import { Refusal } from '../../http/refusal.ts'
import type { TabSettings } from '../../http/settings.ts'
import type { Offer } from '../../registry/offers.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import { signRequestReceipt } from '../receipts/requestReceipt.ts'
import type { PaymentTerms } from './checkPayment.ts'
import { createFindTabTerms, type TermsOptions } from './paymentTerms.ts'
import type { ProviderCap } from './providerCap.ts'
import { toSignedState } from './tabState.ts'
import {
  deadlineOf,
  findVerifiedOffer,
  hashRequest,
  type PurchaseRequest,
  requirePrice,
} from './verifyPayment.ts'

export type TabPurchase = PurchaseRequest & { tab: TabPayment }

export type TabAnswer = {
  paymentId: string
  requestId: string
  receipt: string
  tab: TabResponse
}

export type BuyOnTabOptions = SignatureCheckOptions &
  TermsOptions & {
    sql: Database
    tabStore: TabStore
    tabs: TabSettings | null
    providerCap: ProviderCap
    countPayer: (payer: Address) => void
    issuer: string
    receiptKeys: ReceiptKeys
    now: () => number
  }

/** How long a tab must still be valid at least: it stays open for up to an hour, and then waits for its settlement. */
const minimumValiditySeconds = 7_200
/** How long a tab may be valid, so that its debt ends. */
const maximumValiditySeconds = 100_000
/** Share of the credit from which a tab is closed, and the buyer should open the next one. */
const closingBasisPoints = 8_000n

/**
 * Builds the function behind `POST /verify` for purchases on tabs: the checks in order, the credit, one durable write, the receipt.
 */
export function createBuyOnTab(options: BuyOnTabOptions): (request: TabPurchase) => Promise<TabAnswer> {
  const { sql, tabStore, tabs, providerCap, now, issuer } = options
  const findTerms = createFindTabTerms(options)
  const reserve = tabs && createReserveForTab(sql, { budget: tabs.budget, now })

  return async (request) => {
    if (tabs === null || reserve === null) throw new Refusal('tabs_off')
    const { tab } = request
    const acceptedAt = now()
    const seconds = Math.floor(acceptedAt / 1000)
    // A question about a stored request never accepts it.
    const deadlineMs = request.isAboutStored ? Number.NEGATIVE_INFINITY : deadlineOf(request)
    const { terms, network } = findTerms(request, tab.payer, seconds)
    if (!(await network.payees.takesTabs())) throw new Refusal('tabs_off')
    requirePrice(terms, request)
    const offer = await findVerifiedOffer(options, request, network)
    checkExpiry(tab, seconds)

    const stored = await tabStore.readSplits(tab, tab.known)
    if (tab.known > stored.length)
      throw new Refusal('tab_mismatch', `Its first ${tab.known} lines aren't known here: send their splits`)
    const splits = [...stored.slice(0, tab.known), ...tab.splits]
    const price = terms.amount + terms.feeAmount
    requireLine(splits[tab.line], terms, price, options)

    const { served, payers } = network
    const tabTerms: TabTerms = {
      issuer,
      chainId: terms.chainId,
      contract: served.deployment.tabSettlement,
      platform: terms.feePayTo,
      rewardShare: tabs.rewardShare,
    }
    const signed = toSignedState(tabTerms, tab, splits)
    const isNew = stored.length === 0
    if (isNew && splits.length - 1 > maxIdleTabLines) throw tooManyIdleLines()
    if (isNew && request.isAboutStored) throw new Refusal('unknown_payment')
    const [[checked]] = await Promise.all([
      checkPresented([signed], network, {
        ...options,
        // Its nonce belongs to this tab alone, but its buyer may have cancelled it before.
        isBound: [true],
        asksNonces: isNew || !payers.isCached(tab.payer),
      }),
      network.payees.requirePayable(terms.payTo),
    ])
    if (isNew) await tabStore.requireRoom({ payer: tab.payer, tabId: tab.tabId })

    if (!request.isAboutStored) await providerCap.require(request.providerId, served.network.testnet, price)
    const reservable = { ...tab, nonce: signed.nonce }
    const candidate: TabCandidate = {
      payer: tab.payer,
      tabId: tab.tabId,
      chainId: terms.chainId,
      token: served.token,
      contract: tabTerms.contract,
      platform: terms.feePayTo,
      rewardShare: tabs.rewardShare,
      nonce: signed.nonce,
      expiresAt: tab.expiry,
      hasCode: checked.hasCode,
      paymentId: newId('pay'),
      reservation: isNew ? await reserve(reservable, price, served, payers, checked.state) : null,
      sequence: tab.sequence,
      amounts: tab.amounts,
      signature: tab.signature,
      requestHash: hashPurchase(request),
      position: tab.line,
      price,
      providerId: request.providerId,
      endpointId: request.endpointId,
      known: tab.known,
      splits: tab.splits,
    }
    let verdict = await tabStore.accept(candidate, deadlineMs)
    // Requests beside it may have used up the shared step, so it tries until there is no more credit.
    for (let { reservation } = candidate; verdict.verdict === 'unreserved' && !request.isAboutStored; ) {
      const more = await reserve(reservable, price, served, payers, checked.state)
      if (more.reserved === reservation?.reserved) break
      reservation = more
      verdict = await tabStore.accept({ ...candidate, reservation }, deadlineMs)
    }
    if (request.isAboutStored && !storedVerdicts.has(verdict.verdict)) throw new Refusal('unknown_payment')
    if (verdict.verdict === 'late') throw tooLate()
    if (verdict.verdict === 'unreserved') throw refusalOf(await payers.freshAllowance(tab.payer), price)
    if (verdict.verdict === 'crowded') throw tooManyIdleLines()
    if (verdict.verdict !== 'accepted' && verdict.verdict !== 'repeated')
      throw new Refusal(tabRefusals[verdict.verdict])
    if (verdict.verdict === 'accepted') providerCap.add(request.providerId, served.network.testnet, price)
    return toAnswer(options, request, {
      verdict,
      candidate,
      offer,
      split: splits[tab.line] as bigint,
    })
  }
}

function checkExpiry({ expiry }: TabPayment, seconds: number): void {
  const details = { expiry, now: seconds }
  if (expiry <= seconds) throw new Refusal('authorization_expired', undefined, { details })
  if (expiry < seconds + minimumValiditySeconds)
    throw new Refusal('authorization_expires_too_soon', 'The tab expires too soon: open another one', {
      details,
    })
  if (expiry > seconds + maximumValiditySeconds)
    throw new Refusal('tab_mismatch', `A tab is valid for at most ${maximumValiditySeconds} seconds`, {
      details,
    })
}

/** The offer decides whom the line pays, not the buyer. */
function requireLine(
  split: bigint | undefined,
  { payTo: provider, feePayTo: platform }: PaymentTerms,
  price: bigint,
  { feeSchedule }: Pick<TermsOptions, 'feeSchedule'>,
): void {
  const expected = tabSplit({ provider, platform }, price, feeSchedule)
  if (expected === undefined)
    throw new Refusal('tab_mismatch', 'A price of 1 USDC or more is a payment of its own')
  if (split === encodeSplit(expected)) return
  throw new Refusal('tab_mismatch', 'The line that is added to must pay whom the offer names, in its shares')
}

function tooManyIdleLines(): Refusal {
  return new Refusal(
    'tab_mismatch',
    `A tab has at most ${maxIdleTabLines} lines on which nothing was bought: open another tab`,
  )
}

/** Those that come from what is stored of the request. */
const storedVerdicts: ReadonlySet<TabVerdict['verdict']> = new Set(['repeated', 'replayed', 'voided'])

/** The answer to a purchase; if it is asked for again, its receipt is signed again with the same claims. */
function toAnswer(
  { issuer, receiptKeys, feeSchedule }: BuyOnTabOptions,
  { tab, providerId, endpointId }: TabPurchase,
  bought: { verdict: AcceptedOnTab; candidate: TabCandidate; offer: Offer; split: bigint },
): TabAnswer {
  const { verdict, candidate, offer, split } = bought
  const { paymentId, known, charged, credit, payerCredit, lineTotal, lineReduced } = verdict
  const { sequence, price } = candidate
  const receipt = signRequestReceipt(
    { ...candidate, paymentId },
    {
      sequence,
      providerId,
      endpointId,
      split,
      price,
      charged: price,
      lineTotal,
      lineReduced,
      acceptedAt: new Date(verdict.acceptedAt),
    },
    {
      resource: offer.url,
      status: 'verified',
      signedAt: verdict.acceptedAt,
      issuer,
      feeSchedule,
      key: receiptKeys.current,
    },
  )
  const isClosing =
    charged !== null && payerCredit !== null && charged * 10_000n >= closingBasisPoints * payerCredit
  return {
    paymentId,
    requestId: requestIdOf(tab),
    receipt,
    tab: {
      id: tab.tabId,
      sequence,
      known,
      ...(credit !== null && credit > 0n && { credit: credit.toString() }),
      ...(isClosing && { closing: true as const }),
    },
  }
}

/** Identifies a request on a tab, in place of a challenge's id. */
function requestIdOf({ payer, tabId, sequence }: TabPayment): string {
  return derivedId('req', `${payer}:${tabId}:${sequence}`)
}

/** The hash of a purchase, of which the tab store keeps 16 bytes. Without an idempotency key, no two purchases are equal. */
function hashPurchase(request: TabPurchase): Hex {
  const { tab, idempotencyKey = newId('req') } = request
  return `0x${hashRequest(request, [tab.signature, tab.line, idempotencyKey]).slice(0, 32)}`
}
