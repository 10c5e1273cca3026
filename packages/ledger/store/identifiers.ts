import { hash, randomFillSync } from 'node:crypto'

/** Prefixes of the public identifiers. */
export type IdPrefix = 'prov' | 'ep' | 'wal' | 'req' | 'pay' | 'key' | 'wh' | 'whd'

const timeDigits = 12
const randomBytes = 10
// One system call for the random bytes of many identifiers costs a tenth of one call per identifier.
const random = Buffer.alloc(randomBytes * 256)
let taken = random.length

/**
 * Creates an unguessable identifier: the prefix, an underscore, and in hex the Unix time in milliseconds (48 bits, as in RFC 9562's UUIDv7)
 * and 80 random bits. Identifiers that are created at the same time are adjacent in Postgres' indexes, regardless of the index size.
 */
export function newId<P extends IdPrefix>(prefix: P): `${P}_${string}` {
  if (taken === random.length) {
    randomFillSync(random)
    taken = 0
  }
  taken += randomBytes
  return `${prefix}_${timeOf(Date.now())}${random.toString('hex', taken - randomBytes, taken)}`
}

/** Derives an identifier from a text. Equal texts have equal identifiers. */
export function derivedId<P extends IdPrefix>(prefix: P, text: string): `${P}_${string}` {
  return `${prefix}_${hash('sha256', text).slice(0, 32)}`
}

/** Returns a text that sorts before all identifiers that are created at or after `time`, and after all earlier identifiers. */
export function firstIdAt<P extends IdPrefix>(prefix: P, time: Date): `${P}_${string}` {
  return `${prefix}_${timeOf(time.getTime())}${'0'.repeat(2 * randomBytes)}`
}

function timeOf(ms: number): string {
  return ms.toString(16).padStart(timeDigits, '0')
}

/** Returns whether `text` has the format of an identifier with this prefix. The database contains no identifiers in another format. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return (
    text.length === prefix.length + 33 &&
    text.startsWith(`${prefix}_`) &&
    /^[0-9a-f]{32}$/.test(text.slice(-32))
  )
}
