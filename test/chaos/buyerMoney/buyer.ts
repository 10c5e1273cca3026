import { newId } from '@tollkeeper/ledger/store/identifiers'
import type { Reservation, TabCandidate } from '@tollkeeper/ledger/tabs/tabStore'
import { eip712Domain, receiveWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { type TabLine, tabAuthorization, tabNonce } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { seedChainId, seedPlatform, seedToken } from '../../support/seedPayments.ts'
import { seedTabSettlement } from '../../support/seedTabs.ts'
import { randomHex } from '../../support/usdc.ts'

const issuer = 'https://gateway.example'

export type State = { sequence: number; expiry: number; lines: TabLine[]; signature: Hex }
type Purchase = { position: number; price: bigint; charged: bigint }

/** A tab from its buyer's view: what was signed, and what is charged. */
export type BuyersTab = {
  account: PrivateKeyAccount
  payer: Address
  tabId: string
  nonce: Hex
  paymentId: string
  expiry: number
  sequence: number
  splits: bigint[]
  /** Initial credit of each line. */
  credits: bigint[]
  /** Every state that was ever signed, accepted or not. */
  states: State[]
  /** Purchases by sequence. */
  bought: Map<number, Purchase>
}

export function openBuyersTab(account: PrivateKeyAccount, tabId: string, now: number): BuyersTab {
  return {
    account,
    payer: account.address.toLowerCase() as Address,
    tabId,
    nonce: tabNonce(issuer, tabId),
    paymentId: newId('pay'),
    expiry: Math.floor(now / 1000) + 93_600,
    sequence: 0,
    splits: [],
    credits: [],
    states: [],
    bought: new Map(),
  }
}

/** Returns the amount charged on a line, minus the line's initial credit. */
export function owedOn(tab: BuyersTab, position: number): bigint {
  const bought = [...tab.bought.values()].filter((one) => one.position === position)
  return bought.reduce((sum, { charged }) => sum + charged, -(tab.credits[position] ?? 0n))
}

/** Signs the next state. Each line's amount is the amount charged on the line so far. On the line at `position`, the price and `extra` are added. */
export async function signNext(
  tab: BuyersTab,
  {
    splits,
    position,
    price,
    extra,
  }: { splits: readonly bigint[]; position: number; price: bigint; extra: bigint },
): Promise<State> {
  const lines = splits.map((split, line) => {
    const owed = owedOn(tab, line) + (line === position ? price : 0n)
    return { split, amount: (owed > 0n ? owed : 0n) + (line === position ? extra : 0n) }
  })
  const sequence = ++tab.sequence
  const state = { tabId: tab.tabId, payer: tab.payer, sequence, expiry: tab.expiry, lines }
  const terms = {
    issuer,
    chainId: seedChainId,
    contract: seedTabSettlement,
    platform: seedPlatform,
    rewardShare: 0,
  }
  const { primaryType, ...message } = tabAuthorization(terms, state)
  const signature = await tab.account.signTypedData({
    domain: eip712Domain(networks.localhost, seedToken),
    types: receiveWithAuthorizationTypes,
    primaryType,
    message,
  })
  const signed = { sequence, expiry: tab.expiry, lines, signature }
  tab.states.push(signed)
  return signed
}

/** Returns what `/verify` passes to the tab store after all other checks have passed. */
export function candidateOf(
  tab: BuyersTab,
  state: State,
  bought: {
    position: number
    price: bigint
    reservation: Reservation | null
    providerId: string
    endpointId: string
  },
): TabCandidate {
  const known = tab.splits.length
  const { payer, tabId, nonce, paymentId, expiry: expiresAt } = tab
  return {
    ...bought,
    payer,
    tabId,
    nonce,
    paymentId,
    expiresAt,
    known,
    chainId: seedChainId,
    token: seedToken,
    contract: seedTabSettlement,
    platform: seedPlatform,
    rewardShare: 0,
    hasCode: false,
    sequence: state.sequence,
    signature: state.signature,
    amounts: state.lines.map(({ amount }) => amount),
    requestHash: randomHex(16),
    splits: state.lines.slice(known).map(({ split }) => split),
  }
}
