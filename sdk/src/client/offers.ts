import type { Address } from 'viem'
import type { Challenge } from '../protocol/challenge.ts'
import type { Network } from '../protocol/networks.ts'
import { providerOfSplit } from '../protocol/tab.ts'
import { priceOf } from './payment.ts'

/** What a request costs on a tab, checked: nothing in it is anybody else's word but the price and who is paid. */
export type TabOffer = {
  /** The gateway's public URL, as it is in the tab's nonce. */
  issuer: string
  network: Network
  usdc: Address
  macaroon: string
  /** USDC base units. */
  price: bigint
  /** As `encodeSplit` packs it. */
  split: bigint
  platform: Address
  rewardShare: number
  maxTimeoutSeconds: number
}

/** A challenge with the offer in it. */
export type OfferedChallenge = { challenge: Challenge; offer: TabOffer }

/** The shares of a provider beside one of the platform's: 10, 5 and 2 percent. */
const providerShares: readonly bigint[] = [9n, 19n, 49n]

/** How many offers are remembered, and the longest time for it, whatever a gateway says. */
const maxOffers = 1_000
const maxOfferSeconds = 3_600

/** Whether a split pays a provider by a percentage that a platform takes on tabs. */
export function isTabSplit(split: bigint): boolean {
  const [providerShare, platformShare] = [(split >> 48n) & 0xffffffffffffn, split & 0xffffffffffffn]
  return platformShare === 1n && providerShares.includes(providerShare)
}

/**
 * Reads the offer of a challenge that was checked.
 *
 * @returns undefined where there is none, or one that pays somebody else than the challenge does: it isn't taken.
 */
export function offerOf(
  challenge: Challenge,
  { network, usdc }: { network: Network; usdc: Address },
): TabOffer | undefined {
  const { tab, issuer, macaroon } = challenge
  const [provider, fee] = challenge.accepts
  if (!tab) return undefined
  const split = BigInt(tab.split)
  if (!isTabSplit(split) || providerOfSplit(split) !== provider.payTo) return undefined
  return {
    ...{ issuer, network, usdc, macaroon, split, platform: fee.payTo },
    price: priceOf(challenge),
    rewardShare: tab.rewardShare,
    maxTimeoutSeconds: provider.maxTimeoutSeconds,
  }
}

/** What is asked for: an offer holds for a method and a URL without its query, a payment for all of it. */
export type Asked = {
  method: string
  url: string
  body?: unknown
  /** The URL that limits go by, where what is asked for isn't named by one of its seller's: a tool of MCP. */
  seller?: string
}

/** Remembers offers as long as they hold, so that the next request brings its payment along. */
export function createOfferMemory() {
  const offers = new Map<string, OfferedChallenge & { until: number }>()

  return {
    /** @param now Unix seconds. */
    remember(asked: Asked, offered: OfferedChallenge, now: number): void {
      const key = keyOf(asked)
      const until = Math.min(offered.challenge.tab?.offeredUntil ?? 0, now + maxOfferSeconds)
      offers.delete(key)
      if (until <= now) return
      offers.set(key, { ...offered, until })
      // A Map holds its keys in the order in which they were set: the first is the one that was used least recently.
      if (offers.size > maxOffers) offers.delete(offers.keys().next().value ?? '')
    },
    find(asked: Asked, now: number): OfferedChallenge | undefined {
      const key = keyOf(asked)
      const offered = offers.get(key)
      if (!offered) return undefined
      offers.delete(key)
      if (offered.until <= now) return undefined
      offers.set(key, offered)
      return offered
    },
    forget(asked: Asked): void {
      offers.delete(keyOf(asked))
    },
  }
}

function keyOf({ method, url }: Asked): string {
  const { protocol, host, pathname } = new URL(url)
  return `${method.toUpperCase()} ${protocol}//${host}${pathname}`
}
