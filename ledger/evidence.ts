import type { Address, Hex } from 'viem'
import type { Evidence } from '#chain/evidence'
import type { Queryable } from './database.ts'
import { halves } from './halves.ts'

export type LookupRequest = {
  paymentId: string
  authorizer: Address
  nonce: Hex
  acceptedAt: Date
  isVoided: boolean
}

/** The halves that are spent on chain, as a batch of ours found, and of which the index says nothing. */
export async function readLookupRequests(
  sql: Queryable,
  chainId: number,
  limit: number,
): Promise<LookupRequest[]> {
  return sql<LookupRequest[]>`
    select p.id as "paymentId", h.authorizer, h.nonce, p.accepted_at as "acceptedAt",
      p.voided_at is not null as "isVoided"
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

export async function upsertEvidence(
  sql: Queryable,
  key: { chainId: number; token: Address; authorizer: Address; nonce: Hex },
  evidence: Evidence,
): Promise<void> {
  const row = {
    chain_id: key.chainId,
    token: key.token,
    authorizer: key.authorizer,
    nonce: key.nonce,
    state: evidence.state,
    recipient: evidence.recipient,
    value: evidence.value,
    tx_hash: evidence.txHash,
    log_index: evidence.logIndex,
    block_number: evidence.blockNumber,
    block_hash: evidence.blockHash,
    block_time: evidence.blockTime,
  }
  // Found perhaps long after its block was looked at for notifications: these go back to it.
  await sql`
    with found as (
      insert into evidence ${sql(row)}
      on conflict (chain_id, token, authorizer, nonce) do update set ${sql(row)}, checked_at = now(), is_final = false
    )
    update acted_block set notified_block = least(notified_block, ${evidence.blockNumber - 1n}::bigint)
    where chain_id = ${key.chainId}`
}

export type EvidenceRow = { authorizer: Address; nonce: Hex; blockNumber: bigint; blockHash: Hex }

/** What stands in blocks that a reorg could still drop. */
export async function readUnconfirmedEvidence(
  sql: Queryable,
  chainId: number,
  token: Address,
): Promise<EvidenceRow[]> {
  return sql<EvidenceRow[]>`
    select authorizer, nonce, block_number as "blockNumber", block_hash as "blockHash" from evidence
    where chain_id = ${chainId} and token = ${token} and not is_final`
}

type EvidenceKey = { chainId: number; token: Address; authorizer: Address; nonce: Hex }

/** Its block is no longer part of the chain. A payment that failed for it can be claimed again. */
export async function deleteEvidence(sql: Queryable, key: EvidenceKey): Promise<void> {
  await sql`
    delete from evidence
    where chain_id = ${key.chainId} and token = ${key.token} and authorizer = ${key.authorizer} and nonce = ${key.nonce}`
  await sql`
    update payment set failed_at = null, next_attempt_at = null
    where failure_code in ('authorization_cancelled', 'authorization_used') and failed_at is not null
      and id in (
        select payment_id from signed_authorization
        where chain_id = ${key.chainId} and token = ${key.token} and authorizer = ${key.authorizer} and nonce = ${key.nonce}
      )`
}

/** Deep enough: not looked at again, and its payment is concluded if no half of it is open. */
export async function finishEvidence(sql: Queryable, key: EvidenceKey, now: Date): Promise<void> {
  await sql`
    update evidence set is_final = true
    where chain_id = ${key.chainId} and token = ${key.token} and authorizer = ${key.authorizer} and nonce = ${key.nonce}`
  await sql`
    update payment p set concluded_at = ${now}, lookup_requested_at = null, next_attempt_at = null
    where p.concluded_at is null and p.voided_at is null
      and p.id in (
        select payment_id from signed_authorization
        where chain_id = ${key.chainId} and token = ${key.token} and authorizer = ${key.authorizer} and nonce = ${key.nonce}
      )
      and not exists (select from batch_item i where i.payment_id = p.id and i.active)
      and not exists (select from ${halves(sql)} h where h.payment_id = p.id and h.state <> 'settled')`
}

/** Payments that can't be settled any more: the payer cancelled the provider's half, or spent its nonce elsewhere. */
export async function readSpoiled(
  sql: Queryable,
  chainId: number,
  paymentIds: readonly string[],
): Promise<{ paymentId: string; state: 'cancelled' | 'foreign_use' }[]> {
  if (paymentIds.length === 0) return []
  return sql<{ paymentId: string; state: 'cancelled' | 'foreign_use' }[]>`
    select p.id as "paymentId", h.state
    from payment p
    join lateral ${halves(sql)} h on h.payment_id = p.id
    where p.chain_id = ${chainId} and p.id in ${sql(paymentIds)} and p.failed_at is null and p.voided_at is null
      and h.half = 0 and h.state in ('cancelled', 'foreign_use')`
}
