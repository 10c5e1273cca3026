import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Address } from 'viem'
import { halvesOf } from '../facts/halves.ts'
import { isApart } from '../queue/stages.ts'
import type { Database } from '../store/database.ts'
import { badDebt } from './badDebt.ts'

/** What a payer owes, in USDC base units. */
export type Exposure = {
  /** All that was ever accepted from it. */
  acceptedTotal: bigint
  /** What it has accepted that can still move, and had not by the block asked for. */
  unsettled: bigint
  /** The part of that which is reserved for open tabs. */
  reserved: bigint
  /** What it owes through its own fault and nobody forgave. */
  debt: bigint
  /**
   * Whether it has a waiting payment that failed on chain after the simulation passed (quarantine.ts), or one that its wallet agreed
   * to here and then disowned to a keeper.
   */
  isQuarantined: boolean
  /** Whether any of its payments ever settled; false if that wasn't asked. */
  everSettled: boolean
  /** What it bought on tabs that ended too small to settle. */
  leftUnpaid: bigint
  /** What it ever settled for good on this network, without fees; 0 if that wasn't asked. */
  settled: bigint
  /** The fees that settled with that, less the rewards of those who settled it. */
  keptFees: bigint
  /** What the platform bore of its defaults. */
  covered: bigint
  /** Credit on tabs that an operator granted beyond earned credit; null: the default limit applies. */
  granted: bigint | null
}

export type ExposureQuestion = {
  payers: Address[]
  /** A payment that moved after this block counts as unsettled: a balance read at this block still holds its money. */
  block: bigint
  /** Unix seconds. */
  now: number
  /** Whether `everSettled` is wanted: it costs a look at the payer's past. */
  withHistory: boolean
  /** Whether `settled` and `keptFees` are wanted. Default: no. */
  withSettled?: boolean
}

/** How long after `validBefore` an authorization still counts as usable, because chain clocks may lag ours. */
const graceSeconds = 120

/**
 * How long after its final end we still look at a payment. All nodes have the blocks of older settlements, so a payer's long
 * past costs nothing.
 */
const endedSeconds = 600

/**
 * What each payer has accepted in all, and what of that isn't settled, from one snapshot.
 *
 * Unsettled leaves out voided and expired payments, which can't or shouldn't move any more. It includes reservations of open
 * tabs, until the tab's payment takes their place.
 */
export async function readExposures(
  database: Database,
  { network, token }: Pick<ServedNetwork, 'network' | 'token'>,
  { payers, block, now, withHistory, withSettled = false }: ExposureQuestion,
): Promise<Map<Address, Exposure>> {
  const { chainId } = network
  const rows = await database<(Exposure & { address: Address })[]>`
    select asked.address, coalesce(payer.accepted_total, 0) as "acceptedTotal",
      coalesce(payer.left_unpaid, 0) as "leftUnpaid",
      coalesce(owed.unsettled, 0) + coalesce(open_tabs.reserved, 0) as unsettled,
      coalesce(open_tabs.reserved, 0) as reserved,
      coalesce(ended.settled, 0) as settled, coalesce(ended.fees, 0) as "keptFees",
      coalesce(payer.covered, 0) as covered, granted.amount as granted,
      coalesce(payer.mined_failures > 0 and owed.is_quarantined or owed.is_disowned, false) as "isQuarantined",
      (
        select coalesce(sum(debt.value), 0) from ${badDebt(database, database`asked.address`)} debt
        where debt.chain_id = ${chainId} and debt.token = ${token} and debt.payer = asked.address
      ) as debt,
      ${
        withHistory
          ? database`exists (
              select from (
                select payment_id from queue where payer = asked.address
                union all
                select payment_id from outcome where payer = asked.address
              ) own
              join payment p on p.id = own.payment_id and p.chain_id = ${chainId} and p.token = ${token}
              join authorization_event e on e.payment_id = p.id and e.state = 'settled'
            )`
          : database`false`
      } as "everSettled"
    from unnest(${payers}::text[]) as asked (address)
    left join payer on payer.chain_id = ${chainId} and payer.token = ${token} and payer.address = asked.address
    left join granted_credit granted on granted.chain_id = ${chainId} and granted.payer = asked.address
    left join lateral (
      select sum(r.reserved) as reserved from tab_reservation r
      where r.payer = asked.address and r.chain_id = ${chainId} and r.token = ${token}
    ) open_tabs on true
    left join lateral (
      select sum(r.settled_net) as settled, sum(r.kept_fee) as fees from payer_revenue r
      where ${withSettled} and r.payer = asked.address and r.chain_id = ${chainId} and r.period = 'all'
    ) ended on true
    left join lateral (
      select sum(h.value) filter (
        where h.state = 'open' or (h.state in ('settled', 'foreign_use') and h.block_number > ${block})
      ) as unsettled, bool_or(open.is_apart and h.state = 'open') as is_quarantined,
        bool_or(open.is_disowned and h.state = 'open') as is_disowned
      from (
        select q.payment_id, ${isApart(database)} or b.lane = 'quarantined' as is_apart,
          q.attempts > 0 and exists (
            select from settlement_failure f
            where f.payment_id = q.payment_id and f.attempt = q.attempts and f.code = 'invalid_signature'
          ) as is_disowned
        from queue q left join batch b on b.id = q.batch_id
        where q.payer = asked.address
        union all
        select o.payment_id, false, false from outcome o
        where o.payer = asked.address and o.kind <> 'voided'
          and (o.final_at is null or o.final_at > to_timestamp(${now - endedSeconds}))
      ) open
      cross join lateral ${halvesOf(database, database`open.payment_id`)} h
      where h.chain_id = ${chainId} and h.token = ${token} and h.valid_before > ${now - graceSeconds}
    ) owed on true`
  return new Map(rows.map(({ address, ...exposure }) => [address, exposure]))
}
