import type { Address, Hex } from 'viem'
import type { Evidence } from '#chain/evidence'
import type { Queryable } from './database.ts'
import { halves } from './halves.ts'

export type LookupRequest = { paymentId: string; from: Address; nonce: Hex; acceptedAt: Date }

/** The halves that are spent on chain, as a batch of ours found, and of which the index says nothing. */
export async function readLookupRequests(
  sql: Queryable,
  chainId: number,
  limit: number,
): Promise<LookupRequest[]> {
  return sql<LookupRequest[]>`
    select p.id as "paymentId", h.authorizer as "from", h.nonce, p.accepted_at as "acceptedAt"
    from payment p
    join lateral ${halves(sql)} h on h.payment_id = p.id
    where p.chain_id = ${chainId} and p.lookup_requested_at is not null and h.state = 'open'
    order by p.lookup_requested_at
    limit ${limit}`
}

/** Stops looking for payments of which nothing is left to be found. */
export async function endLookups(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  await sql`
    update payment set lookup_requested_at = null, next_attempt_at = case when attempts = 0 then null else next_attempt_at end
    where id in ${sql(paymentIds)} and lookup_requested_at is not null`
}

/**
 * Keeps what USDC's logs show and the index doesn't, in the place of what was known of the same authorizations.
 *
 * A block may have been passed by before its evidence was found: conclusions and notifications go back to it.
 */
export async function storeEvidence(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: Address },
  found: readonly Evidence[],
): Promise<void> {
  if (found.length === 0) return
  const column = <Key extends keyof Evidence>(key: Key) => found.map((one) => one[key])
  const texts = <Key extends keyof Evidence>(key: Key) => found.map((one) => one[key]?.toString() ?? null)
  await sql`
    with found as (
      select * from unnest(${column('authorizer')}::text[], ${column('nonce')}::text[], ${column('state')}::text[],
        ${column('recipient')}::text[], ${texts('value')}::numeric[], ${column('txHash')}::text[],
        ${column('logIndex')}::integer[], ${texts('blockNumber')}::bigint[], ${column('blockHash')}::text[],
        ${texts('blockTime')}::bigint[]
      ) as f (authorizer, nonce, state, recipient, value, tx_hash, log_index, block_number, block_hash, block_time)
      where block_hash is distinct from (
        select i.block_hash from indexer.authorization i
        where i.chain_id = ${chainId} and i.token = ${token} and i.authorizer = f.authorizer and i.nonce = f.nonce
      )
    ), stored as (
      insert into evidence (chain_id, token, authorizer, nonce, state, recipient, value, tx_hash, log_index, block_number,
        block_hash, block_time)
      select ${chainId}, ${token}, found.* from found
      on conflict (chain_id, token, authorizer, nonce) do update set
        state = excluded.state, recipient = excluded.recipient, value = excluded.value, tx_hash = excluded.tx_hash,
        log_index = excluded.log_index, block_number = excluded.block_number, block_hash = excluded.block_hash,
        block_time = excluded.block_time, is_final = false
        where evidence.block_hash <> excluded.block_hash
    ), first as (
      select min(block_number) - 1 as before from found having count(*) > 0
    )
    update acted_block acted set notified_block = least(acted.notified_block, first.before),
      swept_block = least(acted.swept_block, first.before)
    from first
    where acted.chain_id = ${chainId} and (acted.notified_block > first.before or acted.swept_block > first.before)`
}

/** A block of which we have acted on something that a reorg could still take back. */
export type ReliedBlock = { blockNumber: bigint; blockHash: Hex }

/** The blocks that hold a mined batch or evidence and aren't final yet, the lowest first. */
export async function readReliedBlocks(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: Address },
): Promise<ReliedBlock[]> {
  return sql<ReliedBlock[]>`
    select block_number as "blockNumber", block_hash as "blockHash" from evidence
    where chain_id = ${chainId} and token = ${token} and not is_final
    union
    select t.mined_block, t.mined_block_hash from batch b join transaction t on t.batch_id = b.id
    where b.chain_id = ${chainId} and b.state = 'mined' and t.mined_block is not null
    order by 1`
}

/** Drops what a block showed that is no longer part of the chain. */
export async function dropEvidence(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: ReliedBlock,
): Promise<number> {
  const dropped = await sql`
    delete from evidence
    where chain_id = ${chainId} and block_number = ${blockNumber} and block_hash = ${blockHash}
    returning nonce`
  return dropped.length
}

/** Drops what the index shows as well: from then on a reorg takes it back by itself, whether or not a keeper runs. */
export async function dropIndexedEvidence(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: Address },
): Promise<void> {
  await sql`
    delete from evidence e using indexer.authorization i
    where e.chain_id = ${chainId} and e.token = ${token} and not e.is_final
      and i.chain_id = e.chain_id and i.token = e.token and i.authorizer = e.authorizer and i.nonce = e.nonce
      and i.block_hash = e.block_hash`
}

/** A block is too deep for a reorg: its evidence isn't checked again. */
export async function finishEvidence(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: ReliedBlock,
): Promise<void> {
  await sql`
    update evidence set is_final = true
    where chain_id = ${chainId} and block_number = ${blockNumber} and block_hash = ${blockHash} and not is_final`
}

/** A block that was too deep for a reorg is gone all the same: its evidence is checked again. */
export async function unfinishEvidence(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: ReliedBlock,
): Promise<void> {
  await sql`
    update evidence set is_final = false
    where chain_id = ${chainId} and block_number = ${blockNumber} and block_hash = ${blockHash} and is_final`
}
