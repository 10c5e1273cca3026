import type { Fees } from '@tollkeeper/chain/fees'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import type { Address, Hex } from 'viem'
import { takeFailuresBack } from '../queue/failures.ts'
import type { Queryable } from '../store/database.ts'
import { isHolder, type Lease, type WalletId } from './leases.ts'

/** A stored transaction. */
export type Offer = Fees & {
  hash: Hex
  nonce: number
  kind: 'settle' | 'replacement' | 'cancellation'
  gas: bigint
  /** Reads its bytes. They may be a hundred kilobytes, and a check whether it is mined doesn't need them. */
  readRaw: () => Promise<Hex>
  /** Milliseconds since it was stored, by the database's clock, because the clocks of hosts that share a wallet may differ. */
  ageMs: number
  /** Milliseconds since it was last sent to the nodes, by the database's clock; null if never. */
  triedAgoMs: number | null
  /** Whether a node ever accepted it. */
  isTaken: boolean
}

export type TransactionRow = Offer & {
  minedBlock: bigint | null
  minedBlockHash: Hex | null
  succeeded: boolean | null
}

/** A transaction with its final bytes. Its hash is known before anyone else has seen it. */
export type SignedTransaction = Omit<Offer, 'readRaw' | 'ageMs' | 'triedAgoMs' | 'isTaken'> & { raw: Hex }

/** Stores a transaction (write-ahead): this commits before the first byte is sent. */
export async function insertTransaction(
  sql: Queryable,
  transaction: SignedTransaction & { batchId: bigint; chainId: number; wallet: Address },
): Promise<void> {
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

/** Returns the milliseconds since a time in the database. */
function msSince(sql: Queryable, column: string) {
  return sql`(extract(epoch from clock_timestamp() - ${sql(column)}) * 1000)::float8`
}

/** An offer as the database returns it. */
type Stored<Row extends Offer> = Omit<Row, 'readRaw' | 'nonce'> & { nonce: bigint }

function offerColumns(sql: Queryable) {
  return sql`hash, nonce, kind, gas, max_fee_per_gas as "maxFeePerGas", max_priority_fee_per_gas as "maxPriorityFeePerGas",
    ${msSince(sql, 'created_at')} as "ageMs", ${msSince(sql, 'tried_at')} as "triedAgoMs",
    broadcast_at is not null as "isTaken"`
}

function toOffer<Row extends Offer>(sql: Queryable, row: Stored<Row>) {
  return { ...row, nonce: Number(row.nonce), readRaw: () => readRaw(sql, row.hash) }
}

/** Reads a batch's transactions. The transaction with the highest fee comes first, because it is the one that nodes keep. */
export async function readTransactions(sql: Queryable, batchId: bigint): Promise<TransactionRow[]> {
  return (await readTransactionsOf(sql, [batchId])).get(batchId) ?? []
}

/** Reads the transactions of several batches, keyed by batch. In each batch, the transaction with the highest fee comes first. */
export async function readTransactionsOf(
  sql: Queryable,
  batchIds: readonly bigint[],
): Promise<Map<bigint, TransactionRow[]>> {
  if (batchIds.length === 0) return new Map()
  const rows = await sql<(Stored<TransactionRow> & { batchId: bigint })[]>`
    select batch_id as "batchId", ${offerColumns(sql)}, mined_block as "minedBlock", mined_block_hash as "minedBlockHash", succeeded
    from transaction where batch_id in ${sql(batchIds)}
    order by max_fee_per_gas desc, created_at desc`
  const byBatch = new Map<bigint, TransactionRow[]>(batchIds.map((id) => [id, []]))
  for (const { batchId, ...row } of rows) byBatch.get(batchId)?.push(toOffer<TransactionRow>(sql, row))
  return byBatch
}

/** Reads the unresolved nonces of a wallet's transactions, starting from a given nonce. Transactions of mined batches are included. */
export async function readOpenNonces(
  sql: Queryable,
  { chainId, address }: WalletId,
  from: number,
): Promise<Set<number>> {
  const rows = await sql<{ nonce: bigint }[]>`
    select distinct nonce from transaction
    where chain_id = ${chainId} and wallet = ${address} and nonce >= ${from} and resolved_at is null`
  return new Set(rows.map(({ nonce }) => Number(nonce)))
}

async function readRaw(sql: Queryable, hash: Hex): Promise<Hex> {
  const [row] = await sql<{ raw: Uint8Array | null }[]>`select raw from transaction where hash = ${hash}`
  if (!row?.raw) throw new Error(`the bytes of transaction ${hash} are not stored, or were deleted`)
  return `0x${Buffer.from(row.raw).toString('hex')}`
}

/**
 * Reads, for each of a wallet's nonces in a range, the transaction with the highest fee, even if its batch is closed. The lowest nonce comes first.
 */
export async function readDearestBetween(
  sql: Queryable,
  { chainId, address }: WalletId,
  nonces: { from: number; below: number },
): Promise<Offer[]> {
  const rows = await sql<Stored<Offer>[]>`
    select distinct on (nonce) ${offerColumns(sql)} from transaction
    where chain_id = ${chainId} and wallet = ${address} and nonce >= ${nonces.from} and nonce < ${nonces.below}
    order by nonce, max_fee_per_gas desc`
  return rows.map((row) => toOffer(sql, row))
}

/** Returns whether a node ever accepted a transaction of this batch. */
export async function wasTaken(sql: Queryable, batchId: bigint): Promise<boolean> {
  const rows = await sql`
    select from transaction where batch_id = ${batchId} and (broadcast_at is not null or mined_block is not null)`
  return rows.length > 0
}

/** Marks a transaction as sent; `isTaken`: a node accepted it. Does nothing if the lease is lost. */
export async function markTried(sql: Queryable, lease: Lease, hash: Hex, isTaken: boolean): Promise<void> {
  await sql`
    update transaction set tried_at = clock_timestamp(),
      broadcast_at = case when ${isTaken} then clock_timestamp() else broadcast_at end
    where hash = ${hash} and exists (select from wallet_lease where ${isHolder(sql, lease)})`
}

/** Marks the payments that left a batch before its transaction was signed, so that they don't count as contained in the transaction. */
export async function markDropped(sql: Queryable, batchId: bigint): Promise<void> {
  await sql`
    update batch_item i set is_dropped = true
    where i.batch_id = ${batchId}
      and not exists (select from queue q where q.payment_id = i.payment_id and q.batch_id = i.batch_id)`
}

/** `cost`: USDC base units. `refused`: payers whose payments failed in it. */
type Mined = {
  blockNumber: bigint
  blockHash: Hex
  succeeded: boolean
  cost: bigint
  now: Date
  refused: readonly Address[]
}

/** Marks a transaction as mined, and adds its cost to the network's gas cost of the UTC day. */
export async function markMined(sql: Queryable, hash: Hex, mined: Mined): Promise<void> {
  const day = utcDay(mined.now)
  await sql`
    with mined as (
      update transaction set mined_block = ${mined.blockNumber}, mined_block_hash = ${mined.blockHash},
        succeeded = ${mined.succeeded}, cost = ${mined.cost}, cost_day = ${day}, refused = ${[...new Set(mined.refused)]}::text[]
      where hash = ${hash} and mined_block is null
      returning chain_id
    )
    insert into gas_cost as earlier (chain_id, day, cost) select chain_id, ${day}, ${mined.cost} from mined
    on conflict (chain_id, day) do update set cost = earlier.cost + excluded.cost`
}

/**
 * Reverts the effects of a batch's mined transaction, because a reorg dropped it: its cost isn't spent, and its failures don't count. Payments that
 * failed permanently because of it stay failed, since a caller may have received that answer.
 *
 * The gas that its payments drew is reserved again for payments that are still in the batch, and is released for payments that have left it.
 */
export async function markUnmined(sql: Queryable, batchId: bigint): Promise<void> {
  await sql`
    with undone as materialized (
      select t.hash, b.chain_id, b.token, t.cost, t.cost_day, t.refused, t.beyond
      from transaction t join batch b on b.id = t.batch_id
      where t.batch_id = ${batchId} and t.mined_block is not null
    ), unpaid as (
      update gas_cost g set cost = g.cost - undone.cost
      from undone where g.chain_id = undone.chain_id and g.day = undone.cost_day
    ), item as materialized (
      select i.payment_id, i.gas, i.gas_drawer, i.gas_day, q.batch_id is not distinct from i.batch_id as is_in_it
      from batch_item i left join queue q on q.payment_id = i.payment_id
      where i.batch_id = ${batchId} and i.gas is not null
    ), returned as (
      -- If a payment has drawn gas money again since then, its reservation no longer contains this amount.
      update queue q set gas_spent = greatest(0, q.gas_spent - item.gas),
        gas_reserved = case when is_in_it then q.gas_reserved else q.gas_reserved - item.gas end
      from item
      where item.payment_id = q.payment_id and (
        is_in_it or (q.gas_drawer = item.gas_drawer and q.gas_day = item.gas_day and q.gas_spent >= item.gas)
      )
    ), undrawn as (
      update gas_draw d set drawn = greatest(0, d.drawn - free.amount)
      from (
        select drawer, day, sum(amount) as amount
        from (
          select gas_drawer, gas_day, gas from item where not is_in_it
          union all
          select 'budget:' || chain_id, cost_day, beyond from undone where beyond is not null
        ) own (drawer, day, amount) group by drawer, day
      ) free where d.drawer = free.drawer and d.day = free.day
    ), forgotten as (
      update batch_item set gas = null, gas_drawer = null, gas_day = null where batch_id = ${batchId} and gas is not null
    ), unblamed as (
      update payer p set mined_failures = greatest(0, mined_failures - 1)
      from undone where p.chain_id = undone.chain_id and p.token = undone.token and p.address = any(undone.refused)
    )
    update transaction t set mined_block = null, mined_block_hash = null, succeeded = null, cost = null, cost_day = null,
      refused = null, beyond = null
    from undone where t.hash = undone.hash`
  await takeFailuresBack(sql, batchId)
}
