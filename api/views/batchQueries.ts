import type { Database } from '@tollkeeper/ledger/store/database'
import type { Address, Hash } from 'viem'
import type { BlockRow } from './blockFacts.ts'

/**
 * Selects the batches that paid a wallet or any wallet of a provider, with that owner's count and sum. Without an owner, selects all batches on a
 * chain.
 */
export type BatchOwner =
  | { chainId: number; wallet?: Address | undefined }
  | { providerId: string; chainId?: number | undefined }

export type BatchFilter = BatchOwner & {
  keeper?: Address | undefined
  txHash?: string | undefined
  /** Batches mined at `from` or later, and before `to`. */
  from?: Date | undefined
  to?: Date | undefined
}

/** Position of the last batch on a page, in an order over all chains. `blockTime` in Unix seconds. */
export type BatchPosition = Pick<BatchRow, 'blockTime' | 'position' | 'chainId'>

/** One BatchSettled event, with the count and sum of the selected owner. */
export type BatchRow = BlockRow & {
  chainId: number
  position: bigint
  sequence: number
  keeper: Address
  paymentCount: number
  /** The amount that the selected owner received, in USDC base units. Without an owner, the amount that all providers received. */
  total: bigint
  /** Number of all payments in the batch, and the sum of the fees. */
  batchPaymentCount: number
  feeTotal: bigint
  /** Gas of the whole transaction, and its cost in wei including the L1 fee. */
  gasUsed: bigint
  gasCost: bigint
  txHash: Hash
  triggerCode: number
  /** Unix seconds. */
  blockTime: bigint
}

/** The columns of a settlement that answers and exports show. */
export type SettlementRow = Omit<BatchRow, 'keeper' | 'batchPaymentCount' | 'feeTotal' | 'gasUsed'>

export type BatchPage = { after: BatchPosition | null; limit: number; oldestFirst?: boolean }

/** Lists batches, newest first unless the page asks for another order. */
export function listBatches(sql: Database, filter: BatchFilter, page: BatchPage): Promise<BatchRow[]> {
  const columns = sql`
    b.keeper, b.payment_count as "batchPaymentCount", b.fee_total as "feeTotal", b.gas_used as "gasUsed",`
  return selectBatches<BatchRow>(sql, columns, filter, page)
}

/** Like {@link listBatches}, but with fewer columns, because an export spends most of its time on reading columns. */
export function listSettlements(
  sql: Database,
  filter: BatchFilter,
  page: BatchPage,
): Promise<SettlementRow[]> {
  return selectBatches<SettlementRow>(sql, sql``, filter, page)
}

type Fragment = ReturnType<typeof numberOf>

async function selectBatches<Row extends SettlementRow>(
  sql: Database,
  columns: Fragment,
  { keeper, txHash, from, to, ...owner }: BatchFilter,
  { after, limit, oldestFirst = false }: BatchPage,
): Promise<Row[]> {
  const [order, beyond] = oldestFirst ? [sql`asc`, sql`>`] : [sql`desc`, sql`<`]
  const seconds = (time: Date) => time.getTime() / 1000
  const page = sql`
    ${from === undefined ? sql`` : sql`and block_time >= ${seconds(from)}`}
    ${to === undefined ? sql`` : sql`and block_time < ${seconds(to)}`}
    ${
      after === null
        ? sql``
        : sql`and (block_time, position, chain_id) ${beyond} (${after.blockTime}, ${after.position}, ${after.chainId})`
    }
    order by block_time ${order}, position ${order}
    limit ${limit}`
  const ofTransaction = txHash === undefined ? sql`` : sql`and tx_hash = ${txHash}`
  // An index finds one page of batches per paid address. The query below merges these pages and keeps the first `limit` batches. The sum of a kept
  // batch includes every address that the batch paid: fewer than `limit` batches come before it, so it is on each such address's page.
  const found =
    'providerId' in owner || owner.wallet !== undefined
      ? sql`
        select r.batch_id as id, sum(r.payment_count)::int as payment_count, sum(div(r.total * paid.part, paid.whole)) as total
        from (${paidAddresses(sql, owner)}) paid
        cross join lateral (
          select batch_id, payment_count, total from batch_recipient
          where chain_id = paid.chain_id and recipient = paid.address
            ${txHash === undefined ? sql`` : sql`and batch_id in (select id from settled_batch where true ${ofTransaction})`}
            ${page}
        ) r
        group by r.batch_id`
      : sql`
        select id, payment_count, provider_total as total from settled_batch
        where chain_id = ${owner.chainId} ${keeper === undefined ? sql`` : sql`and keeper = ${keeper}`} ${ofTransaction} ${page}`
  return sql<Row[]>`
    with found as materialized (${found})
    select ${columns} b.chain_id as "chainId", b.position, ${numberOf(sql)} as sequence, found.payment_count as "paymentCount",
      found.total, b.gas_cost as "gasCost", b.tx_hash as "txHash", b.trigger as "triggerCode", b.block_time as "blockTime",
      k.number as "blockNumber", k.hash as "blockHash", k.confirmed_at as "confirmedAt", g.usd as "gasTokenUsd"
    from found join settled_batch b on b.id = found.id
    join recorded_block k on k.id = b.block_id
    left join gas_token_price g on g.chain_id = b.chain_id and g.block_hash = k.hash
    order by b.block_time ${order}, b.position ${order}, b.chain_id ${order}
    limit ${limit}`
}

/** Selects the number of the batch `b` on its chain. Batches that the index hasn't counted yet get the next numbers. */
function numberOf(sql: Database) {
  return sql`coalesce(b.sequence, (
    (select coalesce(max(n.sequence), 0) from settled_batch n where n.chain_id = b.chain_id)
    + (select count(*) from settled_batch n
      where n.chain_id = b.chain_id and n.sequence is null and (n.block_time, n.position) <= (b.block_time, b.position))
  )::int)`
}

/** Selects the addresses that receive an owner's payments, each with the owner's share: the owner's wallets, and the splitters that pay them. */
export function paidAddresses(sql: Database, owner: BatchOwner) {
  const [own, ofPlatform] =
    'providerId' in owner
      ? [
          sql`select distinct chain_id, address from wallet where provider_id = ${owner.providerId}
            ${owner.chainId === undefined ? sql`` : sql`and chain_id = ${owner.chainId}`}`,
          sql`false`,
        ]
      : [
          sql`select ${owner.chainId}::integer as chain_id, ${owner.wallet ?? null}::text as address`,
          sql`s.platform = own.address`,
        ]
  return sql`
    with own as (${own})
    select chain_id, address, 1 as part, 1 as whole from own
    union all
    select s.chain_id, s.address, s.provider_share, s.provider_share + s.platform_share
    from own join splitter s on s.chain_id = own.chain_id and s.provider = own.address
    union all
    select s.chain_id, s.address, s.platform_share, s.provider_share + s.platform_share
    from own join splitter s on s.chain_id = own.chain_id and ${ofPlatform}`
}
