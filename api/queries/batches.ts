import type { Address, Hash } from 'viem'
import type { Database } from '#keeper/store/database'

export type BatchFilter = {
  chainId: number
  /** Only batches that paid this wallet, with its own count and sum. */
  wallet?: Address
  txHash?: string
  /** Unix seconds: mined at or after, and before. */
  from?: number
  to?: number
}

export type BatchPage = {
  /** `desc`: the newest first. */
  order: 'asc' | 'desc'
  /** The last sequence of the page before. */
  after?: number
  limit: number
}

/** One BatchSettled, as far as it concerns the wallet asked for. */
export type BatchRow = {
  sequence: number
  paymentCount: number
  /** USDC base units. */
  total: bigint
  /** Wei, of the whole transaction, L1 fee included. */
  gasCost: bigint
  txHash: Hash
  triggerCode: number
  blockNumber: bigint
  blockHash: Hash
  /** Unix seconds. */
  blockTime: bigint
}

export async function listBatches(
  database: Database,
  indexerSchema: string,
  { chainId, wallet, txHash, from, to }: BatchFilter,
  { order, after, limit }: BatchPage,
): Promise<BatchRow[]> {
  const index = database(indexerSchema)
  const share = wallet === undefined ? database`b` : database`r`
  return database<BatchRow[]>`
    select b.sequence, ${share}.payment_count as "paymentCount",
      ${wallet === undefined ? database`b.provider_total` : database`r.total`} as total,
      b.gas_used * b.effective_gas_price + coalesce(b.l1_fee, 0) as "gasCost", b.tx_hash as "txHash",
      b.trigger as "triggerCode", b.block_number as "blockNumber", b.block_hash as "blockHash",
      b.block_time as "blockTime"
    from ${index}.batch b
    ${
      wallet === undefined
        ? database``
        : database`join ${index}.batch_recipient r
            on r.chain_id = b.chain_id and r.tx_hash = b.tx_hash and r.log_index = b.log_index and r.recipient = ${wallet}`
    }
    where ${share}.chain_id = ${chainId}
      ${txHash === undefined ? database`` : database`and b.tx_hash = ${txHash}`}
      ${from === undefined ? database`` : database`and ${share}.block_time >= ${from}`}
      ${to === undefined ? database`` : database`and ${share}.block_time < ${to}`}
      ${
        after === undefined
          ? database``
          : order === 'desc'
            ? database`and ${share}.sequence < ${after}`
            : database`and ${share}.sequence > ${after}`
      }
    order by ${share}.sequence ${order === 'desc' ? database`desc` : database`asc`}
    limit ${limit}`
}
