import type { Address } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import { badDebt } from './badDebt.ts'
import type { Database } from './database.ts'
import { halves } from './halves.ts'
import { isMissingIndex } from './indexedHead.ts'

/** What a payer owes, in USDC base units. */
export type Exposure = {
  /** All that was ever accepted of it. */
  acceptedTotal: bigint
  /** What of it can still move, and had not by the block that was asked for. */
  unsettled: bigint
  /** What it owes for a fault of its own, and nobody forgave; 0 without the index. */
  debt: bigint
  /** Whether a payment of it failed on chain that the simulation had let pass, and waits still (quarantine.ts). */
  isQuarantined: boolean
  /** Whether anything accepted of it ever settled; false where that was not asked for. */
  everSettled: boolean
  /** Whether the index could be read; without it, everything accepted counts as unsettled. */
  isIndexed: boolean
}

export type ExposureQuestion = {
  payers: Address[]
  /** What moved after it counts as unsettled: a balance read at this block still holds that money. */
  block: bigint
  /** Unix seconds. */
  now: number
  /** Whether `everSettled` is wanted: it costs a look at the payer's past. */
  withHistory: boolean
}

/** Chain clocks may lag ours: so long after `validBefore`, an authorization still counts as usable. */
const graceSeconds = 120

/**
 * What was concluded longer ago than this had settled, if at all, in blocks that no node we ask can lack. It isn't looked
 * at again, so that a payer's long past makes nothing slower.
 */
const concludedSeconds = 600

type Row = Omit<Exposure, 'isIndexed'> & { address: Address }

/**
 * What each payer has accepted and not settled, both from one snapshot.
 *
 * Voided payments and what expired by itself count as neither: they can't move any more, or are not to.
 */
export async function readExposures(
  database: Database,
  { network, token }: Pick<ServedNetwork, 'network' | 'token'>,
  { payers, block, now, withHistory }: ExposureQuestion,
): Promise<Map<Address, Exposure>> {
  const { chainId } = network

  const read = (isIndexed: boolean) => database<Row[]>`
    select asked.address, coalesce(payer.accepted_total, 0) as "acceptedTotal",
      coalesce(owed.unsettled, 0) as unsettled,
      coalesce(payer.mined_failures > 0 and owed.is_quarantined, false) as "isQuarantined",
      ${
        isIndexed
          ? database`(
              select coalesce(sum(debt.value), 0) from ${badDebt(database)} debt
              where debt.chain_id = ${chainId} and debt.token = ${token} and debt.payer = asked.address
            )`
          : database`0::numeric`
      } as debt,
      ${
        isIndexed && withHistory
          ? database`exists (
              select from signed_authorization own
              join indexer.authorization used using (chain_id, token, authorizer, nonce)
              where own.chain_id = ${chainId} and own.token = ${token} and own.authorizer = asked.address
                and used.state = 'used'
            )`
          : database`false`
      } as "everSettled"
    from unnest(${payers}::text[]) as asked (address)
    left join payer on payer.chain_id = ${chainId} and payer.token = ${token} and payer.address = asked.address
    left join lateral (
      select sum(h.value) filter (
        where h.state = 'open' or (h.state in ('settled', 'foreign_use') and h.block_number > ${block})
      ) as unsettled, bool_or(payment.quarantined and h.state = 'open') as is_quarantined
      from payment
      join ${
        isIndexed
          ? halves(database)
          : database`(select *, 'open' as state, null::bigint as block_number from signed_authorization)`
      } h on h.payment_id = payment.id
      where payment.chain_id = ${chainId} and payment.token = ${token} and payment.payer = asked.address
        and (payment.concluded_at is null or payment.concluded_at > to_timestamp(${now - concludedSeconds}))
        and payment.voided_at is null
        and h.valid_before > ${now - graceSeconds}
    ) owed on true`

  const [rows, isIndexed] = await read(true).then(
    (found) => [found, true] as const,
    async (error) => {
      if (!isMissingIndex(error)) throw error
      return [await read(false), false] as const
    },
  )
  return new Map(rows.map(({ address, ...exposure }) => [address, { ...exposure, isIndexed }]))
}
