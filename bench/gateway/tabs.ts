// Purchases on tabs for the benches: many payers, each with a tab of several lines. Every state is signed before the measurement.

import { randomUUID } from 'node:crypto'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodeTabPayload, type TabState } from '@tollkeeper/sdk/protocol/tab'
import { randomHex } from '../../test/support/usdc.ts'
import { type Buyer, createTabSigner } from '../data/signPayments.ts'
import { renderPost, send } from './load.ts'
import type { Rig } from './rig.ts'

export type Shop = Awaited<ReturnType<Rig['openShop']>>

type OpenTab = Omit<TabState, 'payer' | 'lines'> & {
  lines: { split: bigint; amount: bigint }[]
  /** Number of requests that are left until the buyer opens another tab. */
  left: number
}

/**
 * Creates requests in which each buyer buys from the shops in turn, and opens another tab after `requestsPerTab` requests. The first tabs
 * have different lengths.
 *
 * @param port the port of the api process
 */
export function createTabRequests(
  { deployment: { usdc, tabSettlement }, issuer, buyers }: Rig,
  shops: readonly Shop[],
  requestsPerTab: number,
  port: number,
) {
  const sign = createTabSigner(usdc)
  const tabs = new Map<Buyer, OpenTab>()
  let made = 0

  async function readOffers() {
    const bodies = shops.map(({ providerId, endpointIds: [endpointId], url }) => {
      return { providerId, endpointId, resource: url }
    })
    const requests = bodies.map((body) => renderPost('/challenge', body))
    const { answers } = await send({ port, connections: 1, requests })
    return answers.map(({ body }, index) => {
      const { macaroon, accepts, tab } = parseChallenge(JSON.parse(body.toString()))
      if (!tab) throw new Error('nothing is offered on a tab')
      const [provider, fee] = accepts
      const { resource, ...endpoint } = bodies[index] as (typeof bodies)[number]
      return {
        asked: { macaroon, ...endpoint },
        platform: fee.payTo,
        rewardShare: tab.rewardShare,
        split: BigInt(tab.split),
        price: BigInt(provider.maxAmountRequired) + BigInt(fee.maxAmountRequired),
      }
    })
  }
  type Offer = Awaited<ReturnType<typeof readOffers>>[number]

  function openTab(left: number): OpenTab {
    const tabId = `tab_${randomHex(16).slice(2)}`
    return { tabId, sequence: 0, expiry: Math.floor(Date.now() / 1000) + 93_600, lines: [], left }
  }

  /** Creates the next purchase: adds its price to its line, and signs the whole tab again. */
  function buy(offers: readonly Offer[], asksForHeader: boolean) {
    const index = made % buyers.length
    const buyer = buyers[index] as Buyer
    const isFirst = made < buyers.length
    made += 1
    const known = tabs.get(buyer)
    const tab = known?.left ? known : openTab(isFirst ? 1 + (index % requestsPerTab) : requestsPerTab)
    tabs.set(buyer, tab)
    tab.left -= 1
    const offer = offers[tab.sequence % offers.length] as Offer
    // The gateway may not have processed the last two requests yet, so their lines aren't known to it.
    const acknowledged = Math.min(Math.max(0, tab.sequence - 2), tab.lines.length)
    tab.sequence += 1
    let line = tab.lines.findIndex(({ split }) => split === offer.split)
    if (line < 0) line = tab.lines.push({ split: offer.split, amount: 0n }) - 1
    const own = tab.lines[line] as OpenTab['lines'][number]
    own.amount += offer.price

    const { platform, rewardShare, asked } = offer
    const state = { ...tab, payer: buyer.address }
    const { chainId } = networks.localhost
    const terms = { issuer, chainId, contract: tabSettlement, platform, rewardShare }
    const payload = encodeTabPayload({
      ...state,
      line,
      known: acknowledged,
      splits: tab.lines.slice(acknowledged).map(({ split }) => split),
      amounts: tab.lines.map(({ amount }) => amount),
      signature: sign(buyer, terms, state).signature,
    })
    return { ...asked, tab: payload, ...(asksForHeader && { x402Version: 2 }) }
  }

  return {
    /**
     * @param asksForHeader whether the answer includes `PAYMENT-RESPONSE` with an x402 receipt
     * @returns the requests to the gateway, and the same requests to the floor server
     */
    async sign(count: number, asksForHeader = false) {
      const offers = await readOffers()
      const bodies = Array.from({ length: count }, () => buy(offers, asksForHeader))
      const headers = bodies.map(() => ({ 'idempotency-key': randomUUID() }))
      return {
        requests: bodies.map((body, index) => renderPost('/verify', body, headers[index])),
        floorRequests: bodies.map((body, index) => renderPost('/tab', body, headers[index])),
      }
    },
    /** Returns the number of requests so far, which the tab store must contain. */
    made: () => made,
  }
}
