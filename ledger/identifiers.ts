import { randomFillSync } from 'node:crypto'

/** Prefixes of the public identifiers. */
export type IdPrefix = 'prov' | 'ep' | 'wal' | 'req' | 'pay' | 'key' | 'wh' | 'whd'

const idBytes = 16
// Asking the system for many bytes at a time costs a tenth of asking for each identifier's.
const random = Buffer.alloc(idBytes * 256)
let taken = random.length

/** Makes an unguessable identifier: the prefix, an underscore and 128 random bits in hex. */
export function newId<P extends IdPrefix>(prefix: P): `${P}_${string}` {
  if (taken === random.length) {
    randomFillSync(random)
    taken = 0
  }
  taken += idBytes
  return `${prefix}_${random.toString('hex', taken - idBytes, taken)}`
}

/** Whether `text` has the form of an identifier with this prefix; nothing else can be in the database. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return (
    text.length === prefix.length + 33 &&
    text.startsWith(`${prefix}_`) &&
    /^[0-9a-f]{32}$/.test(text.slice(-32))
  )
}
