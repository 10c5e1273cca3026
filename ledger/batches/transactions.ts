import type { Address, Hex } from 'viem'
import type { Queryable } from '../store/database.ts'
import { isHeld, type Lease } from './leases.ts'

export type TransactionRow = {
  hash: Hex
  batchId: bigint
  nonce: number
  kind: 'settle' | 'replacement' | 'cancellation'
  /** Reads its bytes: as much as a hundred kilobytes, which a look at whether it is mined doesn't need. */
  readRaw: () => Promise<Hex>
  gas: bigint
  maxFeePerGas: bigint
  maxPriorityFeePerGas: bigint
  /** Milliseconds since it was stored, by the database's clock: hosts that share a wallet needn't agree about theirs. */
  ageMs: number
  /** Milliseconds since it was last handed to the nodes, by the same clock; null: never. */
  triedAgoMs: number | null
  broadcastAt: Date | null
  minedBlock: bigint | null
  minedBlockHash: Hex | null
  succeeded: boolean | null
}

export type NewTransaction = Pick<
  TransactionRow,
  'hash' | 'batchId' | 'nonce' | 'kind' | 'gas' | 'maxFeePerGas' | 'maxPriorityFeePerGas'
> & { chainId: number; wallet: Address; raw: Hex }

/** The write-ahead: committed before the first byte goes out. */
export async function insertTransaction(sql: Queryable, transaction: NewTransaction): Promise<void> {
  await sql`
    insert into transaction ${sql({
      hash: transaction.hash,
      batch_id: transaction.batchId,
      chain_id: transaction.chainId,
      wallet: transaction.wallet,
      nonce: transaction.nonce,
      kind: transaction.kind,
      raw: Buffer.from(transaction.raw.slice(2), 'hex'),
      gas: transaction.gas,
      max_fee_per_gas: transaction.maxFeePerGas,
      max_priority_fee_per_gas: transaction.maxPriorityFeePerGas,
    })}`
}

/** Milliseconds since a moment that the database wrote down. */
function msSince(sql: Queryable, column: string) {
  return sql`(extract(epoch from clock_timestamp() - ${sql(column)}) * 1000)::float8`
}

/** Every transaction of a batch, the dearest (the one that counts) first. */
export async function readTransactions(sql: Queryable, batchId: bigint): Promise<TransactionRow[]> {
  const rows = await sql<(Omit<TransactionRow, 'readRaw' | 'nonce'> & { nonce: bigint })[]>`
    select hash, batch_id as "batchId", nonce, kind, gas, max_fee_per_gas as "maxFeePerGas",
      max_priority_fee_per_gas as "maxPriorityFeePerGas", ${msSince(sql, 'created_at')} as "ageMs",
      ${msSince(sql, 'tried_at')} as "triedAgoMs", broadcast_at as "broadcastAt", mined_block as "minedBlock",
      mined_block_hash as "minedBlockHash", succeeded
    from transaction where batch_id = ${batchId}
    order by max_fee_per_gas desc, created_at desc`
  return rows.map((row) => ({ ...row, nonce: Number(row.nonce), readRaw: () => readRaw(sql, row.hash) }))
}

async function readRaw(sql: Queryable, hash: Hex): Promise<Hex> {
  const [row] = await sql<{ raw: Uint8Array | null }[]>`select raw from transaction where hash = ${hash}`
  if (!row?.raw) throw new Error(`the bytes of transaction ${hash} are not stored, or no longer`)
  return `0x${Buffer.from(row.raw).toString('hex')}`
}

/** What was offered for a nonce. */
export type Offer = Pick<
  TransactionRow,
  | 'hash'
  | 'nonce'
  | 'readRaw'
  | 'kind'
  | 'gas'
  | 'ageMs'
  | 'triedAgoMs'
  | 'maxFeePerGas'
  | 'maxPriorityFeePerGas'
>

/** The dearest transaction of each nonce of a wallet in a range, whatever became of its batch; the lowest nonce first. */
export async function readDearestBetween(
  sql: Queryable,
  { chainId, address }: { chainId: number; address: Address },
  nonces: { from: number; below: number },
): Promise<Offer[]> {
  const rows = await sql<(Omit<Offer, 'readRaw' | 'nonce'> & { nonce: bigint })[]>`
    select distinct on (nonce) hash, nonce, kind, gas, ${msSince(sql, 'created_at')} as "ageMs", max_fee_per_gas as "maxFeePerGas",
      max_priority_fee_per_gas as "maxPriorityFeePerGas", ${msSince(sql, 'tried_at')} as "triedAgoMs"
    from transaction
    where chain_id = ${chainId} and wallet = ${address} and nonce >= ${nonces.from} and nonce < ${nonces.below}
    order by nonce, max_fee_per_gas desc`
  return rows.map((row) => ({ ...row, nonce: Number(row.nonce), readRaw: () => readRaw(sql, row.hash) }))
}

/** Whether a node has ever said that it has a transaction of this batch. */
export async function wasTaken(sql: Queryable, batchId: bigint): Promise<boolean> {
  const rows = await sql`
    select from transaction where batch_id = ${batchId} and (broadcast_at is not null or mined_block is not null)`
  return rows.length > 0
}

/** It was handed to the nodes; `isTaken`: one of them said that it has it. Says nothing once the lease is lost. */
export async function markTried(sql: Queryable, lease: Lease, hash: Hex, isTaken: boolean): Promise<void> {
  await sql`
    update transaction set tried_at = clock_timestamp(),
      broadcast_at = case when ${isTaken} then clock_timestamp() else broadcast_at end
    where hash = ${hash} and ${isHeld(sql, lease)}`
}

export async function markMined(
  sql: Queryable,
  hash: Hex,
  mined: { blockNumber: bigint; blockHash: Hex; succeeded: boolean },
): Promise<void> {
  await sql`
    update transaction set mined_block = ${mined.blockNumber}, mined_block_hash = ${mined.blockHash},
      succeeded = ${mined.succeeded}
    where hash = ${hash}`
}

/** A reorg dropped whatever of this batch was mined. */
export async function markUnmined(sql: Queryable, batchId: bigint): Promise<void> {
  await sql`
    update transaction set mined_block = null, mined_block_hash = null, succeeded = null
    where batch_id = ${batchId} and mined_block is not null`
}
