import { randomBytes } from 'node:crypto'

/** Creates a secret that mints macaroons, in the form of MACAROON_SECRETS. Its key id is the current time, so that ids differ. */
export function newMacaroonSecret(): string {
  return `m${new Date().toISOString().replace(/\D/g, '').slice(0, 14)}:${randomBytes(32).toString('hex')}`
}
