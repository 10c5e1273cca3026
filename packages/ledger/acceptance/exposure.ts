import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Address } from 'viem'
import { halvesOf } from '../facts/halves.ts'
import { isIsolated } from '../queue/stages.ts'
import type { Database } from '../store/database.ts'
import { badDebt } from './badDebt.ts'

/** The amounts that a payer owes, in USDC base units. */
export type Exposure = {
  /** Total of all payments ever accepted from the payer. */
  acceptedTotal: bigint
  /** Total of its accepted payments that can still move and had not moved by the given block. */
  unsettled: bigint
  /** The part of `unsettled` that is reserved for open tabs. */
  reserved: bigint
  /** Debt that it caused and that was not forgiven. */
  debt: bigint
  /**
   * Whether one of its payments failed on chain after its simulation passed (isolation.ts) and still waits. Also true while a payment waits because
   * the payer's contract wallet rejected the signature in an attempt to settle, although the wallet had accepted that signature before.
   */
  isBlocked: boolean
  /** Whether any of its payments ever settled; false if that wasn't requested. */
  everSettled: boolean
  /** Amount bought on tabs that ended too small to settle. */
  leftUnpaid: bigint
  /** Total of its payments whose settlement on this network is final, without fees; 0 if that wasn't requested. */
  settled: bigint
  /** The fees of the payments in `settled`, less the rewards of the keepers that settled them. */
  keptFees: bigint
  /** Amount of its defaults that the platform bore. */
  covered: bigint
  /** Credit on tabs that an operator granted beyond earned credit; null if the default limit applies. */
  granted: bigint | null
}

export type ExposureOptions = {
  payers: Address[]
  /** Payments that moved after this block count as unsettled, because a balance read at this block still contains their money. */
  block: bigint
  /** Unix seconds. */
  now: number
  /** Whether to read `everSettled`, which needs a query of the payer's history. */
  withHistory: boolean
  /** Whether to read `settled` and `keptFees`. Default false. */
  withSettled?: boolean
}

/** Seconds after `validBefore` for which an authorization still counts as usable, because chain clocks may lag behind ours. */
const graceSeconds = 120

/**
 * Seconds for which a payment is still read after its result became final. By then, every node has the settlement's block, so the balance no longer
 * contains the money. Older payments aren't read, so a long history adds no cost.
 */
const endedSeconds = 600

/**
 * Reads each payer's accepted total and its unsettled part, from one snapshot.
 *
 * The unsettled part excludes expired payments, which can't move any more, and voided payments, which shouldn't. It includes the reservations of an
 * open tab until the tab's payment replaces them.
 */
export async function readExposures(
  database: Database,
  { network, token }: Pick<ServedNetwork, 'network' | 'token'>,
  { payers, block, now, withHistory, withSettled = false }: ExposureOptions,
): Promise<Map<Address, Exposure>> {
  const { chainId } = network
  const rows = await database<(Exposure & { address: Address })[]>`
    select asked.address, coalesce(payer.accepted_total, 0) as "acceptedTotal",
      coalesce(payer.left_unpaid, 0) as "leftUnpaid",
      coalesce(owed.unsettled, 0) + coalesce(open_tabs.reserved, 0) as unsettled,
      coalesce(open_tabs.reserved, 0) as reserved,
      coalesce(ended.settled, 0) as settled, coalesce(ended.fees, 0) as "keptFees",
      coalesce(payer.covered, 0) as covered, granted.amount as granted,
      coalesce(payer.mined_failures > 0 and owed.is_blocked or owed.is_repudiated, false) as "isBlocked",
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
                select payment_id from payment_result where payer = asked.address
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
      ) as unsettled, bool_or(open.is_isolated and h.state = 'open') as is_blocked,
        bool_or(open.is_repudiated and h.state = 'open') as is_repudiated
      from (
        select q.payment_id, ${isIsolated(database)} or b.lane = 'isolated' as is_isolated,
          q.attempts > 0 and exists (
            select from settlement_failure f
            where f.payment_id = q.payment_id and f.attempt = q.attempts and f.code = 'invalid_signature'
          ) as is_repudiated
        from queue q left join batch b on b.id = q.batch_id
        where q.payer = asked.address
        union all
        select o.payment_id, false, false from payment_result o
        where o.payer = asked.address and o.kind <> 'voided'
          and (o.final_at is null or o.final_at > to_timestamp(${now - endedSeconds}))
      ) open
      cross join lateral ${halvesOf(database, database`open.payment_id`)} h
      where h.chain_id = ${chainId} and h.token = ${token} and h.valid_before > ${now - graceSeconds}
    ) owed on true`
  return new Map(rows.map(({ address, ...exposure }) => [address, exposure]))
}
