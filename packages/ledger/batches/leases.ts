import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'

export type WalletId = { chainId: number; address: Address }

/** The temporary right to use a wallet. Every write of its holder is fenced by {@link requireLease}. */
export type Lease = WalletId & { holder: string; fence: bigint }

export type LeaseState = Lease & { pausedUntil: Date | null; pausedReason: string | null }

/** Another process now holds the wallet, so this process must not write. */
export class LeaseLost extends Error {
  override name = 'LeaseLost'

  constructor(lease: Lease) {
    super(`the lease of wallet ${lease.address} on chain ${lease.chainId} with fence ${lease.fence} is lost`)
  }
}

// Leases expire by the database's clock, because the clocks of their holders may differ.

/** Acquires or renews a wallet's lease; null while another process holds it. The fence increases with every new holder. */
export async function acquireLease(
  sql: Queryable,
  wanted: { chainId: number; address: Address; holder: string; ttlMs: number },
): Promise<LeaseState | null> {
  const { chainId, address, holder, ttlMs } = wanted
  const [row] = await sql<{ fence: bigint; pausedUntil: Date | null; pausedReason: string | null }[]>`
    insert into wallet_lease as lease (chain_id, address, holder, expires_at)
    values (${chainId}, ${address}, ${holder}, clock_timestamp() + ${ttlMs} * interval '1 millisecond')
    on conflict (chain_id, address) do update set
      holder = excluded.holder,
      fence = lease.fence + case when lease.holder = excluded.holder then 0 else 1 end,
      expires_at = excluded.expires_at
    where lease.holder = excluded.holder or lease.expires_at <= clock_timestamp()
    returning fence, paused_until as "pausedUntil", paused_reason as "pausedReason"`
  return row ? { chainId, address, holder, ...row } : null
}

/** Returns the condition that a row of `wallet_lease` is this lease and still held. */
export function isHolder(sql: Queryable, { chainId, address, holder, fence }: Lease) {
  return sql`chain_id = ${chainId} and address = ${address} and holder = ${holder} and fence = ${fence}
    and expires_at > clock_timestamp()`
}

/** Locks the lease row until the transaction ends, so that no other process can take over the wallet in between. */
export async function requireLease(sql: Queryable, lease: Lease): Promise<void> {
  const rows = await sql`select from wallet_lease where ${isHolder(sql, lease)} for share`
  if (rows.length === 0) throw new LeaseLost(lease)
}

export async function releaseLease(sql: Queryable, lease: Lease): Promise<void> {
  await sql`update wallet_lease set expires_at = clock_timestamp() where ${isHolder(sql, lease)}`
}

/** Pauses the wallet until `until`; null resumes it. Payments keep their attempts. */
export async function pauseWallet(
  sql: Queryable,
  wallet: WalletId,
  until: Date | null,
  reason: string | null,
): Promise<void> {
  await sql`
    update wallet_lease set paused_until = ${until}, paused_reason = ${reason}
    where chain_id = ${wallet.chainId} and address = ${wallet.address}`
}

export type ListedLease = {
  address: Address
  holder: string
  /** Whether a keeper currently holds the wallet's lease. */
  isHeld: boolean
  expiresAt: Date
  /** Null if the wallet isn't paused. */
  pausedUntil: Date | null
  pausedReason: string | null
}

/** Lists all wallets of a network that a keeper ever held. */
export async function listLeases(sql: Queryable, chainId: number): Promise<ListedLease[]> {
  return sql<ListedLease[]>`
    select address, holder, expires_at > clock_timestamp() as "isHeld", expires_at as "expiresAt",
      case when paused_until > clock_timestamp() then paused_until end as "pausedUntil",
      case when paused_until > clock_timestamp() then paused_reason end as "pausedReason"
    from wallet_lease where chain_id = ${chainId} order by address`
}

/** Returns whether a network's keepers are running but none of their wallets can pay for gas. */
export async function isOutOfGasMoney(sql: Queryable, chainId: number): Promise<boolean> {
  const [row] = await sql<{ isOut: boolean | null }[]>`
    select bool_and(coalesce(paused_until > clock_timestamp() and paused_reason = 'insufficient_gas_funds', false)) as "isOut"
    from wallet_lease where chain_id = ${chainId} and expires_at > clock_timestamp()`
  return row?.isOut ?? false
}

/** Reads wallets with open batches that no keeper has held for a while, because their keeper or their key is gone. */
export async function readAbandonedWallets(
  sql: Queryable,
  chainId: number,
  own: readonly Address[],
  forMs: number,
): Promise<Address[]> {
  const rows = await sql<{ address: Address }[]>`
    select lease.address from wallet_lease lease
    where lease.chain_id = ${chainId} and lease.expires_at < clock_timestamp() - ${forMs} * interval '1 millisecond'
      and exists (
        select from batch
        where batch.chain_id = lease.chain_id and batch.wallet = lease.address
          and batch.state in ('claimed', 'broadcast', 'reorged')
      )
    order by lease.address`
  return rows.map((row) => row.address).filter((address) => !own.includes(address))
}
