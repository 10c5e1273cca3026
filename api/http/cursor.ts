import { Refusal } from '../refusal.ts'

const pattern = /^(\d{1,15}):(\d{1,15})$/

/** A page's end, opaque to clients: the chain, and the last batch shown. */
export function encodeCursor(chainId: number, sequence: number): string {
  return Buffer.from(`${chainId}:${sequence}`).toString('base64url')
}

/** @throws {Refusal} `invalid_cursor` for anything but a cursor of this chain. */
export function decodeCursor(cursor: string, chainId: number): number {
  const match = pattern.exec(Buffer.from(cursor, 'base64url').toString('utf8'))
  if (match === null || Number(match[1]) !== chainId) throw new Refusal('invalid_cursor')
  const sequence = Number(match[2])
  // Only the spelling that we made.
  if (encodeCursor(chainId, sequence) !== cursor) throw new Refusal('invalid_cursor')
  return sequence
}
