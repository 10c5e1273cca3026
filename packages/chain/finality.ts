// ponder/src/utils/finality.ts: a reorg deeper than this stops the index, and an operator has to rebuild it.
const ponderFinality: Partial<Record<number, bigint>> = { 1: 65n, 11155111: 65n, 137: 200n }
const opStackFinality = 30n

/** Depth from which the keeper doesn't heal a reorg that takes a settlement. */
export function finalityOf(chainId: number): bigint {
  return ponderFinality[chainId] ?? opStackFinality
}
