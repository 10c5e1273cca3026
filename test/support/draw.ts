import { mulberry32 } from '@tollkeeper/ledger/queue/simulateTriggers'

/** Returns a generator of numbers in [0, 1) that depend only on the seed: FNV-1a into mulberry32. */
export function drawFrom(seed: string): () => number {
  let state = 0x811c9dc5
  for (const character of seed) state = Math.imul(state ^ character.charCodeAt(0), 0x01000193)
  return mulberry32(state)
}
