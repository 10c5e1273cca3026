import type { Address } from 'viem'
import type { Challenge } from '../protocol/challenge.ts'
import type { Network } from '../protocol/networks.ts'
import { providerOfSplit } from '../protocol/tab.ts'
import { priceOf } from './payment.ts'

/** A checked offer of a tab: only its price and payee are somebody else's word. */
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

/** A challenge, and the offer in it. */
export type OfferedChallenge = { challenge: Challenge; offer: TabOffer }

/** The provider's shares for each one of the platform's: 10, 5 and 2 percent. */
const providerShares: readonly bigint[] = [9n, 19n, 49n]

/** How many offers are remembered, and for how long at most, whatever a gateway says. */
const maxOffers = 1_000
const maxOfferSeconds = 3_600
/** For how long a seller that took no tab is offered none. */
const refusedSeconds = 3_600
const maxRefusing = 1_000

/** Whether a split pays a provider by a percentage that a platform takes on tabs. */
export function isTabSplit(split: bigint): boolean {
  const [providerShare, platformShare] = [(split >> 48n) & 0xffffffffffffn, split & 0xffffffffffffn]
  return platformShare === 1n && providerShares.includes(providerShare)
}

/**
 * Reads the offer of a checked challenge.
 *
 * @returns undefined if there is none, or if it pays somebody else than the challenge does.
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
    issuer,
    network,
    usdc,
    macaroon,
    split,
    platform: fee.payTo,
    price: priceOf(challenge),
    rewardShare: tab.rewardShare,
    maxTimeoutSeconds: provider.maxTimeoutSeconds,
  }
}

/** The request: an offer holds for its method and its URL without the query, a payment for all of it. */
export type Asked = {
  method: string
  url: string
  /** A payment holds only for the same values of those that select the answer. Absent: there are none, as for an MCP tool. */
  headers?: Headers
  /** Text, or a function that returns a digest of the body, or undefined for one that can't be compared. */
  body?: unknown
  /** The URL that limits count by, if the request's own isn't on its seller's host: for an MCP tool. */
  seller?: string
}

/**
 * Remembers offers while they hold, so that the next request brings its payment along, and sellers that take no tab although their
 * gateway offers one, so that no state is signed for them in vain.
 */
export function createOfferMemory() {
  const offers = new Map<string, OfferedChallenge & { until: number }>()
  const refusing = new Map<string, number>()

  /** Whether the seller took no tab lately. What it sells on tabs only is tried all the same. */
  function isRefusing({ url }: Asked, { tab }: Challenge, now: number): boolean {
    return !tab?.only && (refusing.get(new URL(url).origin) ?? 0) > now
  }

  return {
    isRefusing,
    /** Notes that a seller takes no tab, by its origin. @param now Unix seconds. */
    refuse({ url }: Asked, now: number): void {
      const { origin } = new URL(url)
      refusing.delete(origin)
      refusing.set(origin, now + refusedSeconds)
      if (refusing.size > maxRefusing) refusing.delete(refusing.keys().next().value ?? '')
    },
    /** @param now Unix seconds. */
    remember(asked: Asked, offered: OfferedChallenge, now: number): void {
      const key = keyOf(asked)
      const until = Math.min(offered.challenge.tab?.offeredUntil ?? 0, now + maxOfferSeconds)
      offers.delete(key)
      if (until <= now) return
      offers.set(key, { ...offered, until })
      // A Map keeps its keys in the order in which they were set, so the first is the least recently used.
      if (offers.size > maxOffers) offers.delete(offers.keys().next().value ?? '')
    },
    find(asked: Asked, now: number): OfferedChallenge | undefined {
      const key = keyOf(asked)
      const offered = offers.get(key)
      if (!offered) return undefined
      offers.delete(key)
      if (offered.until <= now || isRefusing(asked, offered.challenge, now)) return undefined
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
