// ponder/src/utils/finality.ts: a reorg deeper than this stops the index, and an operator has to rebuild it.
const ponderFinality: Partial<Record<number, bigint>> = { 1: 65n, 11155111: 65n, 137: 200n }
const opStackFinality = 30n

/** Blocks on top of a settlement after which a reorg isn't healed by the keeper any more. */
export function finalityOf(chainId: number): bigint {
  return ponderFinality[chainId] ?? opStackFinality
}
