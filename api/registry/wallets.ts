import type { Address } from 'viem'
import type { Queryable } from '#ledger/database'
import { newId } from '../identifiers.ts'

export type Wallet = {
  walletId: string
  providerId: string
  chainId: number
  address: Address
  createdAt: Date
}

const columns = (sql: Queryable) =>
  sql`id as "walletId", provider_id as "providerId", chain_id as "chainId", address, created_at as "createdAt"`

/** @returns undefined if the provider has registered this address on this chain already. */
export async function insertWallet(
  sql: Queryable,
  { providerId, chainId, address }: { providerId: string; chainId: number; address: Address },
): Promise<Wallet | undefined> {
  const [row] = await sql<Wallet[]>`
    insert into wallet (id, provider_id, chain_id, address)
    values (${newId('wal')}, ${providerId}, ${chainId}, ${address})
    on conflict (provider_id, chain_id, address) do nothing
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

export async function listWallets(sql: Queryable, providerId: string): Promise<Wallet[]> {
  return sql<Wallet[]>`
    select ${columns(sql)} from wallet where provider_id = ${providerId} order by created_at, id limit 1000`
}
