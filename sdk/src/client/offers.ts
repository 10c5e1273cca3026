import type { Address } from 'viem'
import type { Challenge } from '../protocol/challenge.ts'
import type { Network } from '../protocol/networks.ts'
import { providerOfSplit } from '../protocol/tab.ts'
import { priceOf } from './payment.ts'

/** A checked tab offer. Only its price and payee come from the seller. */
export type TabOffer = {
  /** The gateway's public URL, from which the tab's nonce is derived. */
  issuer: string
  network: Network
  usdc: Address
  macaroon: string
  /** USDC base units. */
  price: bigint
  /** The split in the packed form of `encodeSplit`. */
  split: bigint
  platform: Address
  rewardShare: number
  maxTimeoutSeconds: number
}

/** A challenge and the tab offer in it. */
export type OfferedChallenge = { challenge: Challenge; offer: TabOffer }

/** Number of units that the provider gets for each unit that the platform gets, at fees of 10, 5 and 2 percent. */
const providerShares: readonly bigint[] = [9n, 19n, 49n]

/** Maximum number of remembered offers. */
const maxOffers = 1_000
/** Maximum time in seconds for which an offer is remembered, even if the gateway would accept it for longer. */
const maxOfferSeconds = 3_600
/** Time in seconds for which the client doesn't use tabs at a seller that rejected a tab. */
const refusedSeconds = 3_600
const maxRefusing = 1_000

/** Returns whether a split has one of the fees that a platform may charge on tabs. */
export function isTabSplit(split: bigint): boolean {
  const [providerShare, platformShare] = [(split >> 48n) & 0xffffffffffffn, split & 0xffffffffffffn]
  return platformShare === 1n && providerShares.includes(providerShare)
}

/**
 * Reads the tab offer of a checked challenge.
 *
 * @returns undefined if there is no offer, or if it pays a different recipient than the challenge.
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

/**
 * A request for which the client may pay. A remembered tab offer is valid for all requests with this method and URL (without query). A remembered
 * payment is valid only for the identical request.
 */
export type Asked = {
  method: string
  url: string
  /**
   * The headers that select the response. A payment is valid only for equal values of these headers. Undefined for an MCP tool, which has no headers.
   */
  headers?: Headers
  /** Text, or a function that digests the body. The function returns undefined if the body can't be compared. */
  body?: unknown
  /** For an MCP tool: the URL whose host the limits count. Default: the request's own URL. */
  seller?: string
}

/**
 * Remembers valid tab offers, so that the client can pay for the next request without a 402. Also remembers sellers that reject tabs although their
 * gateway offers them, so that the client signs no useless states for them.
 */
export function createOfferMemory() {
  const offers = new Map<string, OfferedChallenge & { until: number }>()
  const refusing = new Map<string, number>()

  /** Whether the seller rejected a tab recently. The client tries a tab anyway if the endpoint accepts only tabs. */
  function isRefusing({ url }: Asked, { tab }: Challenge, now: number): boolean {
    return !tab?.only && (refusing.get(new URL(url).origin) ?? 0) > now
  }

  return {
    isRefusing,
    /** Records that a seller, identified by its origin, rejects tabs. @param now Unix seconds. */
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
      // A Map keeps its keys in insertion order, and `find` inserts a used offer again, so the first key is the least recently used.
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

export type OfferMemory = ReturnType<typeof createOfferMemory>

function keyOf({ method, url }: Asked): string {
  const { protocol, host, pathname } = new URL(url)
  return `${method.toUpperCase()} ${protocol}//${host}${pathname}`
}
