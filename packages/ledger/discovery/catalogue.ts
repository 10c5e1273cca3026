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

/*
 * All that can be bought here, in the standard's forms: our endpoints, and what other sellers declared. One statement reads the list
 * every few seconds, however many ask; filters and searches run in memory.
 *
 * Registering costs nothing, so no answer may take more work or memory the more is registered. The list has no documents: a page reads
 * those of its own items, as many as it has room for. What is computed of a listing is kept until the listing changes, and answers are
 * kept as text until the list is read again.
 */

/** An element of `items` and of `resources`, as the standard has it; what others don't have is in `quality`. */
export type DiscoveryResource = ReturnType<typeof toResource>

/** An offer as the catalogue knows it. The buyer pays what the resource's own 402 asks for. */
type Accepts = {
  scheme: 'exact' | 'tab'
  /** CAIP-2; in version 1 the network's name. */
  network: string
  asset: Address
  /** USDC base units, decimal; version 1 calls it `maxAmountRequired`. */
  amount?: string
  maxAmountRequired?: string
  payTo: Address
  maxTimeoutSeconds: number
  /** `seller`: the wallet behind `payTo`, if that is a splitter. */
  extra: { name: string; version: string; seller?: Address }
}

export type DiscoveryFilter = {
  type?: string | undefined
  /** A wallet, or the splitter that payments go to. */
  payTo?: string | undefined
  scheme?: string | undefined
  network?: string | undefined
  /** A key of `extensions`. */
  extensions?: string | undefined
  /** Words; listings with most of them come first. */
  query?: string | undefined
}

export type Catalogue = ReturnType<typeof createCatalogue>

export type CatalogueOptions = {
  sql: Database
  networks: readonly ServedNetwork[]
  platformWallet: Address
  feeSchedule: FeeSchedule
  /** How long an offer that x402's clients sign is valid. */
  offerTimeoutSeconds: number
  /** The least price that settles alone, USDC base units; cheaper listings are sold on tabs. */
  minimumPrice: (network: ServedNetwork['network']) => bigint
  now: () => number
  /** How late a change may show. */
  ttlMs?: number
}

/** How late a change shows, unless it is set. */
const defaultTtlMs = 5_000
/** How many words of a query count. */
const maxWords = 16
/** How many different words of a listing can be found. */
const maxListingWords = 80
/** How many listings are worked on in one turn of the event loop. */
const perTurn = 50
/** Most answers in memory, and most bytes of them. */
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
    load: () => Promise.reject(new Error('an answer is made by its caller')),
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
    /** What fits, the best first. */
    async find(filter: DiscoveryFilter, { limit, offset }: { limit: number; offset: number }) {
      const entries = (await cache.get('all')).filter((entry) => fits(entry, filter))
      const found = filter.query === undefined ? entries : rankByWords(entries, filter.query)
      const page = found.slice(offset, offset + limit)
      const listed = await describe(page.map(({ listing }) => listing))
      const items = listed.map((listing, index) => toResource(listing, page[index]?.accepts ?? []))
      return { items, total: found.length }
    },
    /** What a provider sells, or what is sold at some place, the best first. */
    list: async (isAsked: (listing: Listing) => boolean) =>
      (await cache.get('all')).map(({ listing }) => listing).filter(isAsked),
    describe,
    accepts,
    /**
     * The text that `make` gives, as it is sent, kept for as long as a change may show late.
     *
     * @param key names all that the text depends on, besides the list.
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

/** Creates the function that says how a listing is paid for. */
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
    // A seller through the facilitator is paid directly.
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

/** Puts listings with more of the query's words first; equal ones keep their order. */
function rankByWords(entries: readonly Entry[], query: string): Entry[] {
  const words = [...new Set(query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])].slice(0, maxWords)
  const counted = entries.map((entry) => ({
    entry,
    // Compares the beginnings of words, so that a plural finds the singular's description and the other way round.
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

/** Whether all that is computed of a listing stays as it is. */
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
    x402Version,
    accepts,
    lastUpdated: listing.updatedAt.toISOString(),
    description,
    mimeType,
    ...(serviceName !== null && { serviceName }),
    ...(tags.length > 0 && { tags }),
    ...(iconUrl !== null && { iconUrl }),
    extensions: { bazaar },
    /** What settled in 30 days, as far as that is final. The first three are called as elsewhere. */
    quality: {
      l30DaysTotalCalls: payments,
      /** Of the seller, who may sell more than this. */
      l30DaysUniquePayers: buyers,
      lastCalledAt: lastSettledAt?.toISOString() ?? null,
      l30DaysFailedCalls: failed,
      /** What the platform's part of them was. It ranks the list, since nobody gets it for nothing. */
      l30DaysFees: fees.toString(),
      /** Its origin asks for payments to this wallet itself: nobody else's URL. */
      proven: listing.isProven,
      /** Why it isn't. */
      finding: listing.finding,
    },
  }
}
