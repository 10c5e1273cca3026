// Number of blocks after which Ponder treats a block as final (ponder/src/utils/finality.ts). A deeper reorg stops the index, and an operator has to
// rebuild it.
const ponderFinality: Partial<Record<number, bigint>> = { 1: 65n, 11155111: 65n, 137: 200n }
const opStackFinality = 30n

/**
 * Returns the minimum depth in blocks of a deep reorg. If such a reorg removes a settlement, the keeper can't recover from it.
 */
export function finalityOf(chainId: number): bigint {
  return ponderFinality[chainId] ?? opStackFinality
}
