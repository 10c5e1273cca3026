import { type AnswerEntry, type AnswerShelf, entrySize } from '@tollkeeper/sdk/middleware/answerStore'

/** The seller of kept answers, and the price of each answer. */
export type AnswerSeller = {
  providerId: string
  /** USDC base units. */
  price: bigint
  /** Whether the price is in test money, which has no value. */
  isTest: boolean
}

/** A seller's entries, oldest first. */
type Share = { isTest: boolean; names: Set<string>; bytes: number; paid: bigint }
type Pooled = { entry: AnswerEntry; until: number; size: number; price: bigint; share: Share }

export type AnswerPoolOptions = { maxBytes: number; maxEntries: number; now: () => number }

/**
 * Maximum amount that counts as paid for one answer, in USDC base units. Providers list any price, and may void the payment after the
 * answer is kept, so a higher price must not buy more room.
 */
const maxCountedPrice = 1_000_000n
/**
 * Minimum average price at which a provider gets an equal share, in USDC base units. Otherwise nearly free answers could evict answers that
 * were paid for.
 */
const minSharedPrice = 100n

/**
 * Keeps the answers of all providers in one memory pool. If the pool is full, it first evicts answers that were paid with test money, then answers of
 * providers that hold more than an equal share or were paid next to nothing. Among these, it evicts the oldest answer of the provider with the most
 * bytes per amount paid.
 *
 * So while some provider exceeds its equal share, no price can evict the answers of a provider within its own share. And nearly free answers never
 * evict another provider's answers.
 *
 * @returns a function that returns a seller's part of the pool.
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
    // Nearly all answers are kept equally long, so the oldest expire first.
    for (const [name, { until }] of entries) {
      if (until > now()) break
      remove(name)
    }
  }

  /** Returns the share from which an answer is evicted next. */
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

  /** Returns whether a share exceeds an equal share among `count` providers. */
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

/** Compares bytes per base unit without dividing, because the amount paid may be 0. */
function takesMore(one: Share, other: Share): boolean {
  const [left, right] = [BigInt(one.bytes) * other.paid, BigInt(other.bytes) * one.paid]
  return left === right ? one.bytes > other.bytes : left > right
}
