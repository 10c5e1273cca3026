import { parseUrl } from '../protocol/fields.ts'
import { decodePass, type PassClaims } from '../protocol/pass.ts'
import type { PaymentScope } from './paymentStore.ts'

/**
 * A pass as JSON, as a {@link PassStore} keeps it. It contains no key and no proof. Anyone who reads a bearer pass can use it.
 */
export type SavedPass = {
  /** 64 hex digits. When a pass is bought again for the same endpoint, the new pass has the same id. */
  id: string
  /** The wallet, the network and the gateway of the purchase. A client ignores passes of other scopes. */
  scope: PaymentScope
  /** The seller's origin. */
  origin: string
  /** The method, and the URL without its query, of the request that bought the pass. */
  route: string
  /** Expiry in Unix seconds. An expired pass needn't be kept. */
  expiresAt: number
  /** The pass. */
  jws: string
}

/**
 * Keeps passes beyond the end of a process, so that a restarted client presents its pass instead of buying another. The client removes a pass when it
 * has expired, ended or been used up.
 *
 * Only one client at a time may use a store.
 */
export type PassStore = {
  /** Returns all passes that were saved and not removed. The client calls it once, before the first request, and skips records that it can't read. */
  load: () => Promise<readonly SavedPass[]>
  /** Saves a pass, and replaces an earlier one with the same `id`. */
  save: (pass: SavedPass) => Promise<void>
  /** Removes a pass; does nothing if there is none with this `id`. */
  remove: (id: string) => Promise<void>
}

/**
 * Reads a record of a store.
 *
 * @returns undefined if the record isn't a pass, or contradicts the pass in it.
 */
export function readSavedPass(saved: SavedPass): { saved: SavedPass; claims: PassClaims } | undefined {
  const { id, scope, origin, route, expiresAt, jws } = (saved ?? {}) as { [Name in keyof SavedPass]: unknown }
  const { payer, network, gatewayUrl } = (scope ?? {}) as { [Name in keyof PaymentScope]: unknown }
  const texts = [id, origin, route, jws, payer, network, gatewayUrl]
  if (!texts.every((text) => typeof text === 'string') || parseUrl(saved.origin) === undefined)
    return undefined
  const claims = decodePass(saved.jws)
  return claims && claims.exp === expiresAt ? { saved, claims } : undefined
}
