import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex } from 'viem'
import { type CompositeField, compositeArray } from '../store/compositeArray.ts'
import type { Queryable } from '../store/database.ts'

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
  /** Basis points of the platform's part that go to whoever settles. */
  rewardShare: number
  sequence: number
  /** How many were bought on it. */
  requests: number
  closeReason: string
  /** Unix milliseconds. */
  openedAt: number
  closedAt: number
  /** Unix seconds: it settles strictly before. */
  expiresAt: number
  nonce: Hex
  /** Of this state. */
  signature: Hex
  /** In the order in which they are signed. */
  lines: readonly ClosedLine[]
  sales: readonly TabSale[]
}

export type ClosedLine = {
  payee: Address
  providerShare: bigint
  platformShare: bigint
  /** USDC base units, as signed. */
  amount: bigint
  /** What of that is owed. */
  charged: bigint
}

/** What was bought on a line from one endpoint within one hour. */
export type TabSale = {
  /** Position of the line. */
  line: number
  providerId: string
  endpointId: string
  requests: number
  /** USDC base units. */
  providerAmount: bigint
  feeAmount: bigint
  /** When the last of them was accepted, Unix milliseconds. */
  acceptedAt: number
}

/**
 * Takes closed tabs in as payments, which replace their reservations, by one statement. It may be repeated: what is
 * taken in already stays as it is.
 *
 * @returns the ids of the payments that could not be stored, because another payment has their nonce or their tab: the caller ends
 *   them unpaid.
 */
export async function takeTabs(sql: Queryable, tabs: readonly ClosedTab[]): Promise<string[]> {
  if (tabs.length === 0) return []
  const [{ refused }] = await sql<[{ refused: string[] }]>`
    select take_tabs(
      ${compositeArray(tabs.map(toFields))}::text::closed_tab[],
      ${compositeArray(tabs.flatMap(toLineFields))}::text::tab_line[],
      ${compositeArray(tabs.flatMap(toSaleFields))}::text::sold_on_tab[]) as refused`
  return refused
}

/** As the type `closed_tab` has them. */
function toFields(tab: ClosedTab): CompositeField[] {
  const value = tab.lines.reduce((sum, { amount }) => sum + amount, 0n)
  const fee = tab.lines.reduce((sum, line) => sum + platformPart(splitOf(line), line.amount), 0n)
  return [
    tab.paymentId,
    tab.tabId,
    tab.chainId,
    tab.token,
    tab.payer,
    tab.payerHasCode,
    tab.contract,
    tab.platform,
    tab.rewardShare,
    tab.sequence,
    tab.requests,
    tab.closeReason,
    tab.openedAt,
    tab.closedAt,
    tab.expiresAt,
    tab.nonce,
    tab.signature,
    value,
    value - fee,
    fee,
  ]
}

function splitOf({ payee: provider, providerShare, platformShare }: ClosedLine): bigint {
  return encodeSplit({ provider, providerShare, platformShare })
}

/** As the type `tab_line` has them. */
function toLineFields({ paymentId, lines }: ClosedTab): CompositeField[][] {
  return lines.map(({ payee, providerShare, platformShare, amount, charged }, position) => [
    ...[paymentId, position, payee, providerShare, platformShare, amount, charged],
    null,
  ])
}

/** As the type `sold_on_tab` has them. */
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
