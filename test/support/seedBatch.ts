import { type NumberedBatch, recordBatches } from '@tollkeeper/ledger/facts/record'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Address } from 'viem'
import { seedChainId } from './seedPayments.ts'
import { randomHex } from './usdc.ts'

/**
 * Records a batch as the recorder does when it finds the batch in the index. The block number equals `sequence`,
 * unless `change` sets another.
 */
export async function seedBatch(
  sql: Queryable,
  sequence: number,
  { chainId = seedChainId, ...change }: Partial<NumberedBatch> & { chainId?: number } = {},
): Promise<NumberedBatch> {
  const batch: NumberedBatch = {
    sequence,
    txHash: randomHex(32),
    logIndex: 9,
    keeper: randomHex(20),
    triggerCode: 1,
    paymentCount: 3,
    providerTotal: 150_000n,
    feeTotal: 7_500n,
    gasUsed: 300_000n,
    gasCost: 300_000_000_000n,
    recipients: [],
    blockNumber: BigInt(sequence),
    blockHash: randomHex(32),
    blockTime: 1_795_262_400n + BigInt(sequence),
    ...change,
  }
  await recordBatches(sql, { chainId, token: randomHex(20) }, [batch])
  return batch
}

/** Returns what a wallet received in a batch. */
export function received(recipient: Address | string, paymentCount: number, total: bigint) {
  return { recipient: recipient as Address, paymentCount, total }
}
