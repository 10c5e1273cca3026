import { type AnswerEntry, type AnswerShelf, entrySize } from '@tollkeeper/sdk/middleware/answerStore'

/** Who is paid for kept answers, and how much for each. */
export type AnswerSeller = {
  providerId: string
  /** USDC base units. */
  price: bigint
  /** Whether it is test money, which is worth nothing. */
  isTest: boolean
}

/** A seller's entries, oldest first. */
type Share = { isTest: boolean; names: Set<string>; bytes: number; paid: bigint }
type Pooled = { entry: AnswerEntry; until: number; size: number; price: bigint; share: Share }

export type AnswerPoolOptions = { maxBytes: number; maxEntries: number; now: () => number }

/**
 * The price up to which an answer counts as paid, USDC base units. The price is only listed when the answer is kept, and its provider
 * may void the payment later, so a high one must not buy room.
 */
const maxCountedPrice = 1_000_000n
/** The average price from which a provider has an equal share, USDC base units. Otherwise next to nothing would evict what was paid for. */
const minSharedPrice = 100n

/**
 * Keeps the answers of all providers in one memory. If it is full, answers paid with test money make room first, then those of providers
 * that hold more than an equal share or were paid next to nothing. Among these it is the provider with the most bytes for what its buyers
 * paid for them, with its oldest answer. So no price evicts the answers of a provider within its equal share while another exceeds its
 * own, and answers that cost next to nothing evict no one else's.
 *
 * @returns a function that gives the shelf of a seller.
 */
export function createAnswerPool({ maxBytes, maxEntries, now }: AnswerPoolOptions) {
  const entries = new Map<string, Pooled>()
  const shares = new Map<string, Share>()
  let bytes = 0

  function remove(name: string): void {
    const removed = entries.get(name)
    if (removed === undefined) return
    const { share, size, price } = removed
    entries.delete(name)
    bytes -= size
    share.names.delete(name)
    share.bytes -= size
    share.paid -= price
  }

  function removeExpired(): void {
    // Nearly all live equally long, so the oldest end first.
    for (const [name, { until }] of entries) {
      if (until > now()) break
      remove(name)
    }
  }

  /** The share that makes room next. */
  function largest(): Share | undefined {
    for (const [key, share] of shares) if (share.names.size === 0) shares.delete(key)
    const test = [...shares.values()].filter(({ isTest }) => isTest)
    const candidates = test.length > 0 ? test : [...shares.values()]
    const sharing = candidates.filter(hasEqualShare).length
    const exceeding = candidates.filter((share) => !hasEqualShare(share) || exceeds(share, sharing))
    let found: Share | undefined
    for (const share of exceeding.length > 0 ? exceeding : candidates)
      if (found === undefined || takesMore(share, found)) found = share
    return found
  }

  /** Whether a share is more than an equal one of this many. */
  function exceeds({ bytes, names }: Share, count: number): boolean {
    return bytes * count > maxBytes || names.size * count > maxEntries
  }

  function shareOf({ providerId, isTest }: AnswerSeller): Share {
    const key = `${providerId} ${isTest}`
    const share = shares.get(key) ?? { isTest, names: new Set(), bytes: 0, paid: 0n }
    shares.set(key, share)
    return share
  }

  return (seller: AnswerSeller): AnswerShelf => ({
    isShared: false,
    find(name) {
      const found = entries.get(name)
      if (found === undefined || found.until > now()) return found?.entry
      remove(name)
      return undefined
    },
    put(name, entry, seconds) {
      remove(name)
      const size = entrySize(name, entry)
      const price = seller.price < maxCountedPrice ? seller.price : maxCountedPrice
      const share = shareOf(seller)
      entries.set(name, { entry, until: now() + seconds * 1_000, size, price, share })
      bytes += size
      share.names.add(name)
      share.bytes += size
      share.paid += price
      removeExpired()
      while (bytes > maxBytes || entries.size > maxEntries) {
        const [oldest] = largest()?.names ?? []
        if (oldest === undefined) return
        remove(oldest)
      }
    },
  })
}

function hasEqualShare({ paid, names }: Share): boolean {
  return paid >= minSharedPrice * BigInt(names.size)
}

/** Compares bytes per base unit without dividing: nothing may have been paid. */
function takesMore(one: Share, other: Share): boolean {
  const [left, right] = [BigInt(one.bytes) * other.paid, BigInt(other.bytes) * one.paid]
  return left === right ? one.bytes > other.bytes : left > right
}
