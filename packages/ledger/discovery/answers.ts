import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Catalogue, DiscoveryFilter } from './catalogue.ts'

/**
 * Answers `GET /discovery/resources` and `/discovery/search` (specs/extensions/bazaar.md), and `/discovery/merchant` (CDP's specification).
 * The gateway and the facilitator give the same answers.
 */

export const maxDiscoveryLimit = 100
const defaultLimit = 20
const maxQueryLength = 400

type Asked = Partial<Record<string, string>>

/** The functions that answer, by the last part of the path, for example `search` for `/discovery/search`. */
const discoveryAnswers = {
  async resources(catalogue: Catalogue, asked: Asked) {
    const page = readPage(asked)
    const { items, total } = await catalogue.find(readFilter(asked), page)
    return { x402Version: 2, items, pagination: { ...page, total } }
  },

  async search(catalogue: Catalogue, asked: Asked) {
    const { query = '' } = asked
    if (query.trim() === '') throw invalid('query', 'expected words to search for')
    const { limit, offset } = readPage({ ...asked, offset: asked.cursor ?? asked.offset })
    const filter = { ...readFilter(asked), query: query.slice(0, maxQueryLength) }
    const { items, total } = await catalogue.find(filter, { limit, offset })
    const next = offset + items.length
    const cursor = next < total ? String(next) : null
    return {
      x402Version: 2,
      resources: items,
      partialResults: cursor !== null,
      pagination: { limit, cursor },
    }
  },

  async merchant(catalogue: Catalogue, asked: Asked) {
    const { payTo } = asked
    if (payTo === undefined || !/^0x[0-9a-fA-F]{40}$/.test(payTo))
      throw invalid('payTo', 'expected an address')
    const page = readPage(asked)
    const { items, total } = await catalogue.find(readFilter(asked), page)
    return { payTo, resources: items, pagination: { ...page, total } }
  },
}

const maxKeyLength = 1_000

/** The query parameters of discovery. All others are ignored. */
const parameters = 'type payTo scheme network extensions query limit offset cursor'.split(' ')

export type DiscoveryName = keyof typeof discoveryAnswers
export const discoveryNames = Object.keys(discoveryAnswers) as DiscoveryName[]

/**
 * Returns an answer as JSON text. Answers are cached for a few seconds, because many clients send the same query.
 *
 * @param asked the parameters of the query string.
 */
export async function answerDiscovery(
  catalogue: Catalogue,
  name: DiscoveryName,
  asked: Asked,
): Promise<Uint8Array<ArrayBuffer>> {
  const key = JSON.stringify([name, ...parameters.map((one) => asked[one] ?? null)])
  const make = async () => JSON.stringify(await discoveryAnswers[name](catalogue, asked))
  return key.length > maxKeyLength ? new TextEncoder().encode(await make()) : catalogue.remember(key, make)
}

function readFilter({ type, payTo, scheme, network, extensions }: Asked): DiscoveryFilter {
  return { type, payTo, scheme, network, extensions }
}

function readPage({ limit, offset }: Asked): { limit: number; offset: number } {
  return {
    // Clients of the standard ask for longer pages than they need. They get at most this many items, and the answer states its limit.
    limit: Math.min(readNumber('limit', limit, defaultLimit, 1), maxDiscoveryLimit),
    offset: readNumber('offset', offset, 0, 0),
  }
}

function readNumber(field: string, text: string | undefined, usual: number, least: number): number {
  if (text === undefined) return usual
  const number = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN
  if (number >= least) return number
  throw invalid(field, `expected a whole number, at least ${least}`)
}

function invalid(field: string, expected: string): BaseError {
  return new BaseError('invalid_field', `${field}: ${expected}`, { details: { field } })
}
