import { randomFillSync } from 'node:crypto'

/** Prefixes of the public identifiers. */
export type IdPrefix = 'prov' | 'ep' | 'wal' | 'req' | 'pay' | 'key' | 'wh' | 'whd'

const timeDigits = 12
const randomBytes = 10
// Asking the system for many bytes at a time costs a tenth of asking for each identifier's.
const random = Buffer.alloc(randomBytes * 256)
let taken = random.length

/**
 * Makes an unguessable identifier: the prefix, an underscore, and in hex the Unix time in milliseconds (48 bits, as in RFC
 * 9562's UUIDv7) and 80 random bits. What is made together lies together in Postgres' indexes, however large they are.
 */
export function newId<P extends IdPrefix>(prefix: P): `${P}_${string}` {
  if (taken === random.length) {
    randomFillSync(random)
    taken = 0
  }
  taken += randomBytes
  return `${prefix}_${timeOf(Date.now())}${random.toString('hex', taken - randomBytes, taken)}`
}

/** What sorts before every identifier that is made from then on, and after all that were made before. */
export function firstIdAt<P extends IdPrefix>(prefix: P, time: Date): `${P}_${string}` {
  return `${prefix}_${timeOf(time.getTime())}${'0'.repeat(2 * randomBytes)}`
}

function timeOf(ms: number): string {
  return ms.toString(16).padStart(timeDigits, '0')
}

/** Whether `text` has the form of an identifier with this prefix; nothing else can be in the database. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return (
    text.length === prefix.length + 33 &&
    text.startsWith(`${prefix}_`) &&
    /^[0-9a-f]{32}$/.test(text.slice(-32))
  )
}
