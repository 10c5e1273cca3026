import { createHash } from 'node:crypto'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
import { effectiveRate } from '@tollkeeper/sdk/protocol/tier'
import type { Address, Hex } from 'viem'
import { type CompositeField, compositeArray } from '../store/compositeArray.ts'
import type { Queryable } from '../store/database.ts'
import { type Candidate, toAuthorizationFields, toCandidateFields } from './acceptPayments.ts'

/** A closed tab, with the state that settles. */
export type ClosedTab = {
  paymentId: string
  tabId: string
  chainId: number
  token: Address
  payer: Address
  payerHasCode: boolean
  /** The TabSettlement contract. */
  contract: Address
  platform: Address
  /** Basis points of the platform's part that the settler receives. */
  rewardShare: number
  sequence: number
  /** Number of requests bought on the tab. */
  requests: number
  closeReason: string
  /** Unix milliseconds. */
  openedAt: number
  closedAt: number
  /** Unix seconds. The tab can settle only before this time. */
  expiresAt: number
  nonce: Hex
  /** Signature of this state. */
  signature: Hex
  /** The tab's lines, in the order in which they are signed. */
  lines: readonly ClosedLine[]
  sales: readonly TabSale[]
}

export type ClosedLine = {
  payee: Address
  providerShare: bigint
  platformShare: bigint
  /** USDC base units, as signed. */
  amount: bigint
  /** The part of `amount` that is owed. */
  charged: bigint
}

/** Purchases from one endpoint on one line within one hour. */
export type TabSale = {
  /** Position of the line. */
  line: number
  providerId: string
  endpointId: string
  requests: number
  /** USDC base units. */
  providerAmount: bigint
  feeAmount: bigint
  /** When the last of the purchases was accepted, in Unix milliseconds. */
  acceptedAt: number
}

/**
 * Stores closed tabs as payments, which replace the tabs' reservations, with one statement. `accept_payments` stores them like payments from any
 * other source. Repeating the call changes nothing.
 *
 * @returns the ids of the payments that could not be stored, because another payment uses their nonce or their tab's id. The caller ends them unpaid.
 */
export async function takeTabs(sql: Queryable, tabs: readonly ClosedTab[]): Promise<string[]> {
  if (tabs.length === 0) return []
  const candidates = tabs.map(toCandidate)
  const [{ refused }] = await sql<[{ refused: string[] }]>`
    select take_tabs(
      ${compositeArray(candidates.map(toCandidateFields))}::text::candidate[],
      ${compositeArray(candidates.flatMap(toAuthorizationFields))}::text::candidate_authorization[],
      ${compositeArray(tabs.map(toTabFields))}::text::tab_payment[],
      ${compositeArray(tabs.flatMap(toLineFields))}::text::tab_line[],
      ${compositeArray(tabs.flatMap(toSaleFields))}::text::sold_on_tab[]) as refused`
  return refused
}

/**
 * Returns the payment of a closed tab. The payment's one authorization pays the TabSettlement contract for all lines. The triggers of settlement
 * count the payment's waiting time from the tab's first purchase.
 */
function toCandidate(tab: ClosedTab): Candidate {
  const { chainId, token, payer, payerHasCode, contract, tabId, openedAt, nonce, signature } = tab
  const value = tab.lines.reduce((sum, { amount }) => sum + amount, 0n)
  const feeAmount = tab.lines.reduce((sum, line) => sum + platformPart(splitOf(line), line.amount), 0n)
  return {
    id: tab.paymentId,
    source: 'tab',
    tabId,
    requestId: null,
    providerId: null,
    endpointId: null,
    chainId,
    token,
    payer,
    payerHasCode,
    payee: contract,
    feeRecipient: tab.platform,
    splitter: contract,
    providerAmount: value - feeAmount,
    feeAmount,
    authorizations: [
      {
        recipient: contract,
        value,
        validAfter: 0n,
        validBefore: BigInt(tab.expiresAt),
        nonce,
        signature,
        acceptedBlock: null,
      },
    ],
    price: value,
    tier: 'tab',
    effectiveRate: effectiveRate(value, feeAmount),
    resource: tabId,
    idempotencyKey: null,
    requestHash: createHash('sha256').update(tabId).digest('hex'),
    challengedAt: openedAt,
    acceptedAt: tab.closedAt,
    first: { stage: 'waiting', since: openedAt },
    limit: null,
  }
}

/** Returns a tab's fields in the order of the table `tab_payment`. */
function toTabFields(tab: ClosedTab): CompositeField[] {
  return [
    tab.paymentId,
    tab.payer,
    tab.tabId,
    tab.sequence,
    tab.rewardShare,
    tab.requests,
    tab.closeReason,
    new Date(tab.openedAt).toISOString(),
  ]
}

function splitOf({ payee: provider, providerShare, platformShare }: ClosedLine): bigint {
  return encodeSplit({ provider, providerShare, platformShare })
}

/** Returns the fields of a tab's lines in the order of the table `tab_line`. */
function toLineFields({ paymentId, lines }: ClosedTab): CompositeField[][] {
  return lines.map(({ payee, providerShare, platformShare, amount, charged }, position) => [
    ...[paymentId, position, payee, providerShare, platformShare, amount, charged],
    null,
  ])
}

/** Returns the fields of a tab's sales in the order of the type `sold_on_tab`. */
function toSaleFields({ paymentId, chainId, payer, lines, sales }: ClosedTab): CompositeField[][] {
  return sales.map((sale, number) => {
    const line = lines[sale.line]
    if (!line)
      throw new RangeError(`a sale of ${paymentId} is on line ${sale.line}, which the tab doesn't have`)
    return [
      ...[paymentId, number, sale.line, sale.providerId, sale.endpointId, chainId, payer, line.payee],
      ...[sale.requests, sale.providerAmount, sale.feeAmount],
      new Date(sale.acceptedAt).toISOString(),
    ]
  })
}
