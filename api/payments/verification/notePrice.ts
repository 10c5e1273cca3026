import { rereadPrice } from '@tollkeeper/ledger/discovery/originProofs'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Offer } from '../../registry/offers.ts'

/** Minimum time in ms between two checks that an endpoint's payments cause. */
const pauseMs = 60_000
const maxEndpoints = 10_000

export type NotePriceOptions = { sql: Database; now: () => number }

/** Notes the price of an accepted payment. It never throws, and no payment waits for it. */
export type NotePrice = (offer: Pick<Offer, 'endpointId' | 'price'>, price: bigint) => void

/**
 * Creates the function that schedules an early check of an endpoint's URL if the price of a payment differs from the price noted last, or from the
 * registered price if none is noted yet. If a seller's prices depend on the request, most payments differ. So this function allows one check per
 * minute and endpoint, and the ledger has a longer pause.
 */
export function createNotePrice({ sql, now }: NotePriceOptions): NotePrice {
  const noted = new Map<string, { price: bigint; at: number }>()
  return ({ endpointId, price: registered }, price) => {
    const last = noted.get(endpointId)
    if (price === (last?.price ?? registered)) return
    const at = now()
    if (last !== undefined && at - last.at < pauseMs) return
    noted.delete(endpointId)
    noted.set(endpointId, { price, at })
    if (noted.size > maxEndpoints) noted.delete(noted.keys().next().value ?? '')
    // If the database can't be written now, the next payment or the daily check will read the price.
    rereadPrice(sql, endpointId, price).catch(() => noted.delete(endpointId))
  }
}
