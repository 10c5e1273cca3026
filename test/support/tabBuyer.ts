import { randomBytes } from 'node:crypto'
import type { App } from '@tollkeeper/api/http/app'
import type { Database } from '@tollkeeper/ledger/store/database'
import { type Challenge, parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { eip712Domain, receiveWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import {
  encodeTabPayload,
  type TabPayload,
  type TabTerms,
  tabAuthorization,
  tabNonce,
} from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex, PrivateKeyAccount } from 'viem'
import { call, type Shop, type TestGateway } from './gateway.ts'
import { cancelDirectly } from './usdc.ts'

export type TabAnswer = {
  verified?: boolean
  code?: string
  receipt?: string
  paymentId: string
  requestId: string
  tab: { id: string; sequence: number; known: number; credit?: string; closing?: true }
}

/** Changes that a test makes to a state before it is signed, or to what is sent. */
export type StateChange = Partial<{
  sequence: number
  /** Replaces the line's amount. */
  amount: bigint
  expiry: number
  tabId: string
  terms: Partial<TabTerms>
  known: number
}>

/**
 * Opens a buyer that keeps a tab by hand, so that a test may do what no client does. Each `sign` adds to the line with the split
 * of the request. Nothing is sent automatically.
 */
export function openTab(
  gateway: TestGateway,
  payer: PrivateKeyAccount,
  now = Date.now(),
  tabId = `tab_${randomBytes(16).toString('hex')}`,
) {
  const expiry = Math.floor(now / 1000) + 93_600
  const lines: { split: bigint; amount: bigint }[] = []
  let sequence = 0
  let known = 0
  const { served, settings } = gateway
  const terms: TabTerms = {
    issuer: settings.issuer,
    chainId: served.network.chainId,
    contract: served.deployment.tabSettlement,
    platform: settings.platformWallet,
    rewardShare: settings.tabs?.rewardShare ?? 0,
  }

  async function challenge(shop: Shop, app = gateway.app): Promise<Challenge> {
    const { providerId, endpointId } = shop
    const { body } = await call(app, 'POST', '/challenge', { json: { providerId, endpointId } })
    return parseChallenge(body)
  }

  async function signState(line: number, change: StateChange = {}): Promise<TabPayload> {
    const state = {
      tabId: change.tabId ?? tabId,
      payer: payer.address.toLowerCase() as Hex,
      sequence: change.sequence ?? ++sequence,
      expiry: change.expiry ?? expiry,
      lines: lines.map((one) => ({ ...one })),
    }
    const own = state.lines[line]
    if (change.amount !== undefined && own) own.amount = change.amount
    const { primaryType, ...message } = tabAuthorization({ ...terms, ...change.terms }, state)
    const signature = await payer.signTypedData({
      domain: eip712Domain(served.network, served.token),
      types: receiveWithAuthorizationTypes,
      primaryType,
      message,
    })
    const from = change.known ?? known
    return encodeTabPayload({
      ...state,
      line,
      known: from,
      splits: state.lines.slice(from).map(({ split }) => split),
      amounts: state.lines.map(({ amount }) => amount),
      signature,
    })
  }

  /** Returns the body of POST /verify for one purchase, whose price is added to its line. */
  async function sign(shop: Shop, change: StateChange = {}, asked?: Challenge) {
    const { macaroon, accepts, tab: offer } = asked ?? (await challenge(shop))
    if (!offer) throw new Error('Nothing is offered on a tab')
    const split = BigInt(offer.split)
    let line = lines.findIndex((one) => one.split === split)
    if (line < 0) line = lines.push({ split, amount: 0n }) - 1
    const own = lines[line] as (typeof lines)[number]
    own.amount += BigInt(accepts[0].maxAmountRequired) + BigInt(accepts[1].maxAmountRequired)
    const tab = await signState(line, change)
    return { macaroon, tab, providerId: shop.providerId, endpointId: shop.endpointId, x402Version: 2 }
  }

  async function present(body: Awaited<ReturnType<typeof sign>>, options: { app?: App; key?: string } = {}) {
    const { app = gateway.app, key } = options
    const answer = await call<TabAnswer>(app, 'POST', '/verify', {
      json: body,
      ...(key !== undefined && { headers: { 'idempotency-key': key } }),
    })
    if (answer.status === 200) known = Math.max(known, answer.body.tab.known)
    return answer
  }

  return {
    tabId,
    payer: payer.address.toLowerCase() as Address,
    lines,
    challenge,
    sign,
    present,
    signState,
    /** Cancels the tab's nonce on chain. */
    cancel: () => cancelDirectly(gateway, payer, tabNonce(terms.issuer, tabId)),
    /** Makes a purchase like a client. */
    buy: async (shop: Shop, change?: StateChange) => present(await sign(shop, change)),
    close: async (change: StateChange = {}) =>
      call<Record<string, unknown>>(gateway.app, 'POST', `/tabs/${tabId}/close`, {
        json: { tab: await signState(0, { known: 0, ...change }) },
      }),
    read: () => call<Record<string, unknown>>(gateway.app, 'GET', `/tabs/${tabId}`),
    charge: (shop: Shop, of: number, amount: string) =>
      call<{ code?: string }>(gateway.app, 'POST', `/tabs/${tabId}/requests/${of}/charge`, {
        key: shop.key,
        json: { amount },
      }),
  }
}

/** Returns the amount reserved for a tab, in USDC base units. @returns undefined if nothing is reserved. */
export async function readReserved(database: Database, tabId: string): Promise<bigint | undefined> {
  const [row] = await database<{ reserved: bigint }[]>`
    select reserved from tab_reservation where tab_id = ${tabId}`
  return row?.reserved
}

/** Returns the codes of answers to requests on tabs: `verified`, or the reason of the refusal. */
export const codesOf = (answers: { body: { code?: string } }[]) =>
  answers.map(({ body }) => body.code ?? 'verified')
