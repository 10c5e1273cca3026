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
 * Keeps the answers of all providers in one memory. If it is full, the provider with the most bytes for what its buyers paid for them
 * makes room, with its oldest answer, and answers paid with test money before all others. So each provider has a share by the price
 * paid, and answers that cost next to nothing evict no one else's.
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

  /** The share that takes the most for what was paid. */
  function largest(): Share | undefined {
    let found: Share | undefined
    for (const [key, share] of shares) {
      if (share.names.size === 0) shares.delete(key)
      else if (found === undefined || takesMore(share, found)) found = share
    }
    return found
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
      const { price } = seller
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

/** Compares bytes per base unit without dividing: nothing may have been paid. */
function takesMore(one: Share, other: Share): boolean {
  if (one.isTest !== other.isTest) return one.isTest
  const [left, right] = [BigInt(one.bytes) * other.paid, BigInt(other.bytes) * one.paid]
  return left === right ? one.bytes > other.bytes : left > right
}
