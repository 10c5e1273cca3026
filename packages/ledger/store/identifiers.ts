import { hash, randomFillSync } from 'node:crypto'

/** Prefixes of the public identifiers. */
export type IdPrefix = 'prov' | 'ep' | 'wal' | 'req' | 'pay' | 'key' | 'wh' | 'whd'

const timeDigits = 12
const randomBytes = 10
// Many random bytes at a time cost a tenth of asking the system for each identifier.
const random = Buffer.alloc(randomBytes * 256)
let taken = random.length

/**
 * Makes an unguessable identifier: the prefix, an underscore, and in hex the Unix time in milliseconds (48 bits, as in RFC
 * 9562's UUIDv7) and 80 random bits. Identifiers made together lie together in Postgres' indexes, however large these are.
 */
export function newId<P extends IdPrefix>(prefix: P): `${P}_${string}` {
  if (taken === random.length) {
    randomFillSync(random)
    taken = 0
  }
  taken += randomBytes
  return `${prefix}_${timeOf(Date.now())}${random.toString('hex', taken - randomBytes, taken)}`
}

/** Derives an identifier from a text: equal for equal texts. */
export function derivedId<P extends IdPrefix>(prefix: P, text: string): `${P}_${string}` {
  return `${prefix}_${hash('sha256', text).slice(0, 32)}`
}

/** A text that sorts before every identifier made from this time on, and after all earlier ones. */
export function firstIdAt<P extends IdPrefix>(prefix: P, time: Date): `${P}_${string}` {
  return `${prefix}_${timeOf(time.getTime())}${'0'.repeat(2 * randomBytes)}`
}

function timeOf(ms: number): string {
  return ms.toString(16).padStart(timeDigits, '0')
}

/** Whether `text` has the form of an identifier with this prefix; the database has no others. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return (
    text.length === prefix.length + 33 &&
    text.startsWith(`${prefix}_`) &&
    /^[0-9a-f]{32}$/.test(text.slice(-32))
  )
}
