import { type HalfState, halves } from '@tollkeeper/ledger/facts/halves'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Address, Hex } from 'viem'

/** One authorization of a payment, as recorded. */
export type Half = {
  paymentId: string
  /** 0: provider, 1: platform fee. */
  half: 0 | 1
  authorizer: Address
  nonce: Hex
  state: HalfState
  txHash: string | null
  logIndex: number | null
  blockNumber: bigint | null
  blockHash: string | null
  /** Unix seconds. */
  blockTime: bigint | null
}

/** Returns the authorizations of one payment, the provider's first. The list is empty for an unknown id. */
export async function halvesOfPayment(sql: Database, paymentId: string): Promise<Half[]> {
  return sql<Half[]>`
    select payment_id as "paymentId", half, authorizer, nonce, state, tx_hash as "txHash", log_index as "logIndex",
      block_number as "blockNumber", block_hash as "blockHash", block_time as "blockTime"
    from ${halves(sql)} h
    where payment_id = ${paymentId}
    order by half`
}
