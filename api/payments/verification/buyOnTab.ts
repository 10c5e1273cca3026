import { tooLate } from '@tollkeeper/ledger/acceptance/acceptance'
import type { SignatureCheckOptions } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { checkPresented } from '@tollkeeper/ledger/acceptance/door'
import type { Hooks } from '@tollkeeper/ledger/hooks/askHook'
import { type SalesSwitch, salesStopped } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import { derivedId, newId } from '@tollkeeper/ledger/store/identifiers'
import { createReserveForTab, refusalOf } from '@tollkeeper/ledger/tabs/reserveForTab'
import type { AcceptedOnTab, TabCandidate, TabStore, TabVerdict } from '@tollkeeper/ledger/tabs/tabStore'
import { paymentName } from '@tollkeeper/sdk/protocol/acceptDecision'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
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
import type { NotePrice } from './notePrice.ts'
import { createFindTabTerms, type TermsOptions } from './paymentTerms.ts'
import type { ProviderCap } from './providerCap.ts'
import { toSignedState } from './tabState.ts'
import {
  deadlineOf,
  findVerifiedOffer,
  hashRequest,
  type PurchaseRequest,
  requirePass,
  requirePrice,
  screenOf,
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
    sales: SalesSwitch
    hooks: Pick<Hooks, 'require'>
    countPayer: (payer: Address) => void
    issuer: string
    receiptKeys: ReceiptKeys
    notePrice: NotePrice
    now: () => number
  }

/** Minimum remaining validity of a tab in seconds: it stays open for up to an hour, and then waits for its settlement. */
const minimumValiditySeconds = 7_200
/** Maximum validity of a tab in seconds, so that its debt ends. */
const maximumValiditySeconds = 100_000
/** Share of the credit, in basis points, at which a tab is closed and the buyer should open the next one. */
const closingBasisPoints = 8_000n

/**
 * Creates the function behind `POST /verify` for purchases on tabs. It runs the checks in order, reserves credit, stores the purchase in one durable
 * write, and signs the receipt.
 */
export function createBuyOnTab(options: BuyOnTabOptions): (request: TabPurchase) => Promise<TabAnswer> {
  const { sql, tabStore, tabs, providerCap, sales, now, issuer } = options
  const findTerms = createFindTabTerms(options)
  const reserve = tabs && createReserveForTab(sql, { budget: tabs.budget, now })

  return async (request) => {
    if (tabs === null || reserve === null) throw new Refusal('tabs_off')
    const { tab } = request
    const acceptedAt = now()
    const seconds = Math.floor(acceptedAt / 1000)
    const stop = request.isAboutStored ? null : await sales.read()
    // A caller that only asks about a stored request must not cause its acceptance, and no request is accepted while sales are stopped.
    const acceptsNothing = request.isAboutStored || stop !== null
    const deadlineMs = acceptsNothing ? Number.NEGATIVE_INFINITY : deadlineOf(request)
    const { terms, network } = findTerms(request, tab.payer, seconds)
    if (!(await network.payees.takesTabs())) throw new Refusal('tabs_off')
    requirePrice(terms, request)
    requirePass(terms, request)
    if (terms.pass) throw new Refusal('tabs_off', 'A pass cannot be bought on a tab: pay for it individually')
    const offer = await findVerifiedOffer(options, request, network)
    checkExpiry(tab, seconds)

    const stored = await tabStore.readSplits(tab, tab.known)
    if (tab.known > stored.length)
      throw new Refusal(
        'tab_mismatch',
        `The gateway does not know the first ${tab.known} lines of this tab: send their splits`,
      )
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
    const screen = acceptsNothing
      ? null
      : screenOf(options, request, offer, {
          source: 'tab',
          payer: tab.payer,
          payment: paymentName(tab.payer, `${tab.tabId}:${tab.sequence}`),
          amount: price,
          network: served.network.name,
        })
    let declined: BaseError | undefined
    const decline = (error: unknown) => {
      // A request that was accepted before gets its answer again, regardless of the hook's current decision.
      if (isNew || !(error instanceof BaseError)) throw error
      declined = error
    }
    if (isNew && splits.length - 1 > maxIdleTabLines) throw tooManyIdleLines()
    if (isNew && stop !== null) throw salesStopped(stop)
    if (isNew && request.isAboutStored) throw new Refusal('unknown_payment')
    const [[checked]] = await Promise.all([
      checkPresented([signed], network, {
        ...options,
        // The nonce belongs only to this tab, but its buyer may have cancelled it before.
        isBound: [true],
        asksNonces: isNew || !payers.isCached(tab.payer),
        // An already stored request gets its answer even if the hook now declines: `decline` postpones the hook's error until the store has been
        // asked.
        screen: screen && (() => screen([signed]).catch(decline)),
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
    const latestMs = declined ? Number.NEGATIVE_INFINITY : deadlineMs
    let verdict = await tabStore.accept(candidate, latestMs)
    // Concurrent requests on this tab may have used up the credit that was just reserved. So this reserves again until the payer has no more credit.
    for (
      let { reservation } = candidate;
      verdict.verdict === 'unreserved' && !acceptsNothing && !declined;
    ) {
      const more = await reserve(reservable, price, served, payers, checked.state)
      if (more.reserved === reservation?.reserved) break
      reservation = more
      verdict = await tabStore.accept({ ...candidate, reservation }, latestMs)
    }
    if (request.isAboutStored && !storedVerdicts.has(verdict.verdict)) throw new Refusal('unknown_payment')
    if (declined && !storedVerdicts.has(verdict.verdict)) throw declined
    if (stop !== null && !storedVerdicts.has(verdict.verdict)) throw salesStopped(stop)
    if (verdict.verdict === 'late') throw tooLate()
    if (verdict.verdict === 'unreserved') throw refusalOf(await payers.freshAllowance(tab.payer), price)
    if (verdict.verdict === 'crowded') throw tooManyIdleLines()
    if (verdict.verdict !== 'accepted' && verdict.verdict !== 'repeated')
      throw new Refusal(tabRefusals[verdict.verdict])
    if (verdict.verdict === 'accepted') {
      options.notePrice(offer, price)
      providerCap.add(request.providerId, served.network.testnet, price)
    }
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
    throw new Refusal('tab_mismatch', `A tab can be valid for at most ${maximumValiditySeconds} seconds`, {
      details,
    })
}

/** Requires that the line pays the recipients that the offer names; the buyer can't choose them. */
function requireLine(
  split: bigint | undefined,
  { payTo: provider, feePayTo: platform }: PaymentTerms,
  price: bigint,
  { feeSchedule }: Pick<TermsOptions, 'feeSchedule'>,
): void {
  const expected = tabSplit({ provider, platform }, price, feeSchedule)
  if (expected === undefined)
    throw new Refusal('tab_mismatch', 'A price of 1 USDC or more cannot go on a tab: pay it individually')
  if (split === encodeSplit(expected)) return
  throw new Refusal('tab_mismatch', 'The line must pay the recipients that the offer names, with its shares')
}

function tooManyIdleLines(): Refusal {
  return new Refusal(
    'tab_mismatch',
    `A tab can have at most ${maxIdleTabLines} lines on which nothing was bought: open another tab`,
  )
}

/** Verdicts for requests that are already stored. */
const storedVerdicts: ReadonlySet<TabVerdict['verdict']> = new Set(['repeated', 'replayed', 'voided'])

/** Returns the answer to a purchase. If it is requested again, its receipt is signed again with the same claims. */
function toAnswer(
  { issuer, receiptKeys, feeSchedule }: BuyOnTabOptions,
  { tab, providerId, endpointId }: TabPurchase,
  bought: { verdict: AcceptedOnTab; candidate: TabCandidate; offer: Offer; split: bigint },
): TabAnswer {
  const { verdict, candidate, offer, split } = bought
  const { paymentId, known, charged, credit, payerCredit, lineTotal, lineReduced } = verdict
  const isClosing =
    charged !== null && payerCredit !== null && charged * 10_000n >= closingBasisPoints * payerCredit
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

/** Returns the id of a request on a tab, which replaces a challenge's id. */
function requestIdOf({ payer, tabId, sequence }: TabPayment): string {
  return derivedId('req', `${payer}:${tabId}:${sequence}`)
}

/** Returns the hash of a purchase, of which the tab store keeps 16 bytes. Without an idempotency key, no two purchases are equal. */
function hashPurchase(request: TabPurchase): Hex {
  const { tab, idempotencyKey = newId('req') } = request
  return `0x${hashRequest(request, [tab.signature, tab.line, idempotencyKey]).slice(0, 32)}`
}
