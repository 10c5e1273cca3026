import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { SplitterTerms } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import { halves } from '../facts/halves.ts'
import type { QueueScope } from '../queue/queue.ts'
import { isShown } from '../queue/stages.ts'
import type { Database, Queryable } from '../store/database.ts'
import { settleMarginSeconds } from '../store/settleMargin.ts'
import { type HalfRow, halfColumns, type ItemTab, toAuthorization, toTab, toTerms } from './items.ts'

/** Age in ms from which an open batch counts as stalled. Its payments are then published as well, because its keeper may be gone. */
const stalledMs = 60_000

export type StalledPayment = { id: string; feeRecipient: Address; trigger: Trigger }

/**
 * Reads the payments of stalled batches, which should have been mined long ago.
 *
 * @param limit maximum number of payments; the oldest batches come first.
 */
export async function readStalled(
  sql: Queryable,
  { chainId, token }: QueueScope,
  now: Date,
  limit: number,
): Promise<StalledPayment[]> {
  return sql<StalledPayment[]>`
    select i.payment_id as id, b.fee_recipient as "feeRecipient", b.trigger
    from batch b
    join batch_item i on i.batch_id = b.id
    join queue q on q.payment_id = i.payment_id and q.batch_id = b.id
    where b.chain_id = ${chainId} and b.token = ${token}
      and b.state in ('claimed', 'broadcast', 'reorged')
      and b.created_at < ${new Date(now.getTime() - stalledMs)}
    order by b.id, i.position
    limit ${limit}`
}

/** A payment's authorizations as payloads (conformance 2.4): the provider's and then the fee's, or the single authorization that pays a splitter. */
export type PublishedPayment = {
  paymentId: string
  payloads: string[]
  splitter: (SplitterTerms & { address: Address }) | null
  /** Set for a tab, which has one payload. */
  tab: ItemTab | null
}

/**
 * Marks payments as published and, once that is committed, returns their signed authorizations. A published payment can't be voided
 * afterwards.
 */
export async function publishPayments(
  database: Database,
  paymentIds: readonly string[],
  now: Date,
): Promise<PublishedPayment[]> {
  if (paymentIds.length === 0) return []
  await database`
    insert into publication (payment_id, published_at)
    select payment_id, ${now} from (
      select q.payment_id from queue q
      where q.payment_id in ${database(paymentIds)} and ${isShown(database)}
        and not exists (select from publication known where known.payment_id = q.payment_id)
      order by q.payment_id for update
    ) wanted
    on conflict do nothing`
  const rows = await database<HalfRow[]>`
    select ${halfColumns(database)}
    from payment p
    join ${halves(database)} h on h.payment_id = p.id
    join presentation s on s.payment_id = p.id
    join publication on publication.payment_id = p.id
    where p.id in ${database(paymentIds)}
    order by h.half`
  const byPayment = Map.groupBy(rows, (row) => row.paymentId)
  const until = BigInt(Math.floor(now.getTime() / 1000) + settleMarginSeconds)
  return paymentIds.flatMap((id) => {
    const authorizations = byPayment.get(id) ?? []
    // If the provider's half was cancelled, no fee is charged.
    if (
      authorizations.some(
        ({ half, state }) => half === 0 && (state === 'cancelled' || state === 'foreign_use'),
      )
    )
      return []
    const given = authorizations.filter(({ state, validBefore }) => state === 'open' && validBefore > until)
    const [first] = given
    if (!first) return []
    const terms = toTerms(first)
    const splitter = terms && { ...terms, address: first.to }
    const payloads = given.map((one) => encodePayload(toAuthorization(one)))
    return [{ paymentId: id, payloads, splitter, tab: toTab(first)?.terms ?? null }]
  })
}
