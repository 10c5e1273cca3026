import type { Queryable } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import type { Address } from 'viem'

export type Wallet = {
  walletId: string
  providerId: string
  chainId: number
  address: Address
  createdAt: Date
  /** Since when no endpoint may use it; null: it is in use. Payments signed for it before still settle to it. */
  retiredAt: Date | null
}

const columns = (sql: Queryable) => sql`
  id as "walletId", provider_id as "providerId", chain_id as "chainId", address, created_at as "createdAt",
  retired_at as "retiredAt"`

/** Registers a wallet, or reactivates a retired one. @returns undefined if the provider already uses this address on this chain. */
export async function insertWallet(
  sql: Queryable,
  { providerId, chainId, address }: { providerId: string; chainId: number; address: Address },
): Promise<Wallet | undefined> {
  const [row] = await sql<Wallet[]>`
    insert into wallet as w (id, provider_id, chain_id, address)
    values (${newId('wal')}, ${providerId}, ${chainId}, ${address})
    on conflict (provider_id, chain_id, address) do update set retired_at = null where w.retired_at is not null
    returning ${columns(sql)}`
  return row
}

export async function findWallet(
  sql: Queryable,
  providerId: string,
  walletId: string,
): Promise<Wallet | undefined> {
  const [row] = await sql<Wallet[]>`
    select ${columns(sql)} from wallet where id = ${walletId} and provider_id = ${providerId}`
  return row
}

export async function findWalletByAddress(
  sql: Queryable,
  { providerId, chainId, address }: Pick<Wallet, 'providerId' | 'chainId' | 'address'>,
): Promise<Wallet | undefined> {
  const [row] = await sql<Wallet[]>`
    select ${columns(sql)} from wallet
    where provider_id = ${providerId} and chain_id = ${chainId} and address = ${address}`
  return row
}

export async function listWallets(sql: Queryable, providerId: string): Promise<Wallet[]> {
  return sql<Wallet[]>`
    select ${columns(sql)} from wallet where provider_id = ${providerId} order by created_at, id limit 1000`
}

export async function retireWallet(sql: Queryable, walletId: string): Promise<Wallet> {
  const [row] = await sql<[Wallet]>`
    update wallet set retired_at = coalesce(retired_at, now()) where id = ${walletId} returning ${columns(sql)}`
  return row
}
