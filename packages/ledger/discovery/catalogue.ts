import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createCache } from '@tollkeeper/runtime/cache'
import { splitterOf } from '@tollkeeper/sdk/protocol/splitter'
import { type FeeSchedule, splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address } from 'viem'
import type { Database } from '../store/database.ts'
import { typeOfResource } from './bazaar.ts'
import { createDocuments, type ListedWithDocument } from './documents.ts'
import { type Listing, readListings } from './listings.ts'

/**
 * The catalog of everything for sale here, in the standard's formats: our endpoints, and the resources that other sellers declared. One
 * statement reads the list every few seconds, regardless of the number of requests. Filters and searches run in memory.
 *
 * Registration is free, so the work and memory for an answer must not grow with the number of registrations. The list contains no
 * documents: a page reads the documents of its items, as many as fit. Values computed from a listing are cached until the listing changes.
 * Answers are cached as text until the list is read again.
 */

/** An element of `items` and of `resources`, in the standard's format. Our additions are in `quality`. */
export type DiscoveryResource = ReturnType<typeof toResource>

/** An offer in the catalog. The buyer pays the amount in the resource's own 402. */
type Accepts = {
  scheme: 'exact' | 'tab'
  /** A CAIP-2 identifier; in version 1, the network's name. */
  network: string
  asset: Address
  /** USDC base units, decimal; version 1 calls it `maxAmountRequired`. */
  amount?: string
  maxAmountRequired?: string
  payTo: Address
  maxTimeoutSeconds: number
  /** `seller`: if `payTo` is a splitter, the wallet that it pays. */
  extra: { name: string; version: string; seller?: Address }
}

export type DiscoveryFilter = {
  type?: string | undefined
  /** A wallet, or the splitter that receives its payments. */
  payTo?: string | undefined
  scheme?: string | undefined
  network?: string | undefined
  /** A key of `extensions`. */
  extensions?: string | undefined
  /** Words to search for. Listings that contain more of them come first. */
  query?: string | undefined
}

export type Catalogue = ReturnType<typeof createCatalogue>

export type CatalogueOptions = {
  sql: Database
  networks: readonly ServedNetwork[]
  platformWallet: Address
  feeSchedule: FeeSchedule
  /** Validity in seconds of an offer for x402 clients. */
  offerTimeoutSeconds: number
  /** Minimum price of a payment outside a tab, in USDC base units. Cheaper listings are sold on tabs. */
  minimumPrice: (network: ServedNetwork['network']) => bigint
  now: () => number
  /** Maximum age of the list in ms. */
  ttlMs?: number
}

/** Default maximum age of the list, in ms. */
const defaultTtlMs = 5_000
/** Maximum number of a query's words that are searched for. */
const maxWords = 16
/** Maximum number of different searchable words per listing. */
const maxListingWords = 80
/** Number of listings that are processed in one turn of the event loop. */
const perTurn = 50
/** Maximum number of cached answers, and maximum of their total bytes. */
const maxAnswers = 10_000
const maxAnswerBytes = 16_777_216

type Entry = { listing: Listing; words: string; accepts: Accepts[] }

export function createCatalogue(options: CatalogueOptions) {
  const { sql, networks, ttlMs = defaultTtlMs, now } = options
  const byChainId = new Map(networks.map((served) => [served.network.chainId, served]))
  const accepts = createAccepts(options, byChainId)
  let entries = new Map<string, Entry>()
  const cache = createCache<'all', Entry[]>({
    ttlMs,
    refreshAfterMs: ttlMs / 2,
    max: 1,
    now,
    load: async () => {
      const listings = await readListings(sql, new Date(now()))
      const known = entries
      const current = new Map<string, Entry>()
      for (const listing of listings) {
        if (!listing.payees.some(({ chainId }) => byChainId.has(chainId))) continue
        const before = known.get(listing.id)
        if (before && isUnchanged(before.listing, listing)) {
          current.set(listing.id, { ...before, listing })
          continue
        }
        if (current.size % perTurn === 0) await nextTurn()
        current.set(listing.id, { listing, words: wordsOf(listing), accepts: accepts(listing) })
      }
      entries = current
      return [...current.values()]
    },
  })
  const describe = createDocuments(sql, now)
  const answers = createCache<string, Uint8Array<ArrayBuffer>>({
    ttlMs: ttlMs / 2,
    max: maxAnswers,
    maxSize: maxAnswerBytes,
    sizeOf: (bytes) => bytes.length,
    now,
    load: () => Promise.reject(new Error('the caller of the cache must create the answer')),
  })

  const isPaidTo = (entry: Entry, payTo: string) =>
    entry.listing.payees.some((one) => one.payTo === payTo) ||
    entry.accepts.some((one) => one.payTo === payTo)

  function fits(entry: Entry, { type, payTo, scheme, network, extensions }: DiscoveryFilter): boolean {
    const { listing } = entry
    if (type !== undefined && typeOfResource(listing.resource) !== type) return false
    if (extensions !== undefined && extensions !== 'bazaar') return false
    if (payTo !== undefined && !isPaidTo(entry, payTo.toLowerCase())) return false
    if (scheme === undefined && network === undefined) return true
    return entry.accepts.some(
      (one) => (scheme ?? one.scheme) === one.scheme && (network === undefined || isNetwork(one, network)),
    )
  }

  return {
    /** Returns the listings that match a filter, the best first. */
    async find(filter: DiscoveryFilter, { limit, offset }: { limit: number; offset: number }) {
      const entries = (await cache.get('all')).filter((entry) => fits(entry, filter))
      const found = filter.query === undefined ? entries : rankByWords(entries, filter.query)
      const page = found.slice(offset, offset + limit)
      const listed = await describe(page.map(({ listing }) => listing))
      const items = listed.map((listing, index) => toResource(listing, page[index]?.accepts ?? []))
      return { items, total: found.length }
    },
    /** Returns the listings for which `isAsked` returns true, for example those of one provider, the best first. */
    list: async (isAsked: (listing: Listing) => boolean) =>
      (await cache.get('all')).map(({ listing }) => listing).filter(isAsked),
    describe,
    accepts,
    /**
     * Returns the UTF-8 bytes of the text that `make` creates, cached for `ttlMs`.
     *
     * @param key identifies everything that the text depends on, except the catalog itself.
     */
    remember: async (key: string, make: () => Promise<string>) =>
      answers.get(key, async () => new TextEncoder().encode(await make())),
  }

  function isNetwork({ network }: Accepts, asked: string): boolean {
    return networks.some(
      ({ network: { name, caip2 } }) =>
        (asked === name || asked === caip2) && (network === name || network === caip2),
    )
  }
}

/** Creates the function that returns a listing's offers. */
function createAccepts(
  options: CatalogueOptions,
  byChainId: ReadonlyMap<number, ServedNetwork>,
): (listing: Listing) => Accepts[] {
  return (listing) =>
    listing.payees.flatMap(({ chainId, payTo }): Accepts[] => {
      const served = byChainId.get(chainId)
      return served ? [acceptsOn(served, listing, payTo)] : []
    })

  function acceptsOn(
    { network, token, deployment }: ServedNetwork,
    listing: Listing,
    wallet: Address,
  ): Accepts {
    const { price, x402Version, maxTimeoutSeconds } = listing
    const amount = price.toString()
    const shared = {
      network: x402Version === 1 ? network.name : network.caip2,
      asset: token,
      ...(x402Version === 1 ? { maxAmountRequired: amount } : { amount }),
      maxTimeoutSeconds: maxTimeoutSeconds ?? options.offerTimeoutSeconds,
    }
    // A seller who uses the facilitator is paid directly.
    if (listing.endpointId === null)
      return { scheme: 'exact', ...shared, payTo: wallet, extra: network.eip712 }
    const extra = { ...network.eip712, seller: wallet }
    if (price < options.minimumPrice(network))
      return { scheme: 'tab', ...shared, payTo: deployment.tabSettlement, extra }
    const { providerAmount, feeAmount } = splitAnyPrice(price, options.feeSchedule)
    const terms = { payTo: wallet, feePayTo: options.platformWallet, amount: providerAmount, feeAmount }
    const splitter = splitterOf(terms, deployment.splitterFactory, keccak256)
    return { scheme: 'exact', ...shared, payTo: splitter?.address ?? wallet, extra }
  }
}

/** Sorts listings by how many of the query's words they contain. Listings with equally many of these words keep their order. */
function rankByWords(entries: readonly Entry[], query: string): Entry[] {
  const words = [...new Set(query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])].slice(0, maxWords)
  const counted = entries.map((entry) => ({
    entry,
    // Compare the stems of words, so that a plural in the query matches a singular in the description and vice versa.
    count: words.filter((word) => entry.words.includes(` ${stemOf(word)}`)).length,
  }))
  return counted
    .filter(({ count }) => count > 0)
    .sort((a, b) => b.count - a.count)
    .map(({ entry }) => entry)
}

function stemOf(word: string): string {
  return word.length > 3 ? word.replace(/(?:ies|es|s)$/, '') : word
}

function wordsOf({ serviceName, seller, description, resource, tags }: Listing): string {
  const text = [serviceName, seller, description, ...tags, resource].join(' ').toLowerCase()
  const words = new Set(text.match(/[\p{L}\p{N}]+/gu) ?? [])
  return ` ${[...words].slice(0, maxListingWords).join(' ')}`
}

/** Returns whether the values that were computed from a listing are still valid. */
function isUnchanged(before: Listing, now: Listing): boolean {
  return (
    before.updatedAt.getTime() === now.updatedAt.getTime() &&
    before.price === now.price &&
    before.seller === now.seller &&
    before.serviceName === now.serviceName &&
    before.tags.join() === now.tags.join() &&
    JSON.stringify(before.payees) === JSON.stringify(now.payees)
  )
}

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))

function toResource(listing: ListedWithDocument, accepts: Accepts[]) {
  const { resource, x402Version, description, mimeType, serviceName, tags, iconUrl, bazaar } = listing
  const { payments, failed, buyers, fees, lastSettledAt } = listing
  return {
    resource,
    type: typeOfResource(resource),
    ...(listing.serverUrl !== null && { serverUrl: listing.serverUrl }),
    x402Version,
    accepts,
    lastUpdated: listing.updatedAt.toISOString(),
    description,
    mimeType,
    ...(serviceName !== null && { serviceName }),
    ...(tags.length > 0 && { tags }),
    ...(iconUrl !== null && { iconUrl }),
    extensions: { bazaar },
    /** The payments of the last 30 days whose settlement is final. Other catalogs use the first three field names as well. */
    quality: {
      l30DaysTotalCalls: payments,
      /**
       * The buyers of this listing. For a resource that is sold only through the facilitator: the buyers of everything that its seller sold
       * that way.
       */
      l30DaysUniquePayers: buyers,
      lastCalledAt: lastSettledAt?.toISOString() ?? null,
      l30DaysFailedCalls: failed,
      /** The platform's fees on these payments. The list is ranked by them, because no seller can raise them for free. */
      l30DaysFees: fees.toString(),
      /** True if the URL's own 402 asks for payments to this wallet, which shows that the URL is the seller's. */
      proven: listing.isProven,
      /** Why it isn't proven. */
      finding: listing.finding,
    },
  }
}
