import type { PublicClient } from 'viem'
import { type Fees, initialFees } from './fees.ts'

/** Returns the fees that a transaction should offer now, and the block of the estimate. */
export async function estimateFees(
  client: PublicClient,
  settings: { priorityFeePerGas: bigint | null; maxFeePerGas: bigint },
): Promise<Fees & { baseFeePerGas: bigint; blockNumber: bigint }> {
  const [block, priority] = await Promise.all([
    client.getBlock({ blockTag: 'latest' }),
    settings.priorityFeePerGas ?? client.estimateMaxPriorityFeePerGas(),
  ])
  const baseFeePerGas = block.baseFeePerGas ?? 0n
  return {
    ...initialFees(baseFeePerGas, priority, settings.maxFeePerGas),
    baseFeePerGas,
    blockNumber: block.number,
  }
}
