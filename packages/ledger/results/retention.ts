import { isRowFault, isTimeLimit } from '@tollkeeper/runtime/dependencies'
import { type OnBadRow, takeParts } from '@tollkeeper/runtime/stepBack'
import type { Queryable } from '../store/database.ts'
import { firstIdAt } from '../store/identifiers.ts'

/** One page of a walk over a table, the oldest rows first. */
type Page = {
  /** Deletes only rows that ended before this time. */
  before: Date
  /** The last key of the previous page; null for the first page. */
  after: string | null
  limit: number
}

/** `next`: the key after which the next page begins; null if there is none. */
type Forgotten = { forgotten: number; next: string | null }

/**
 * Deletes presentations. Once a payment is finalized, its signatures are worthless: each authorization was used or cancelled, or has
 * expired. After the deletion, a request that is repeated with its Idempotency-Key counts as a replay and no longer gets the first answer.
 * Receipts are signed again on request.
 *
 * If a payer is in debt, the signatures are kept as the only proof that it signed.
 */
async function forgetPresentations(
  sql: Queryable,
  { before, after, limit }: Page,
): Promise<Forgotten | undefined> {
  // The walk follows the payments' ids, which sort by time of creation. An index by the time of finalization would cost each payment another entry,
  // and would save little, because few old payments are still open.
  const [row] = await sql<[Forgotten]>`
    with page as (
      select payment_id from presentation
      where payment_id > ${after ?? ''} and payment_id < ${firstIdAt('pay', before)}
      order by payment_id limit ${limit}
      for update skip locked
    ), gone as (
      delete from presentation
      where payment_id in (
        select page.payment_id from page join payment_result o on o.payment_id = page.payment_id
        where o.final_at < ${before} and (
          o.code is null or o.kind = 'voided'
          or exists (select from forgiven_debt f where f.payment_id = o.payment_id)
        )
      )
      returning payment_id
    )
    select (select count(*)::int from gone) as forgotten,
      (select max(payment_id) from page having count(*) = ${limit}) as next`
  return row
}

/** Deletes messages to providers and their log, except messages that are still to be sent or were sent recently. */
async function forgetMessages(
  sql: Queryable,
  { before, after, limit }: Page,
): Promise<Forgotten | undefined> {
  const [row] = await sql<[Forgotten]>`
    with page as (
      select id, created_at from outbox
      where id > ${after ?? '0'}
      order by id limit ${limit}
    ), told as materialized (
      select o.id from outbox o join page on page.id = o.id
      where o.created_at < ${before} and o.dispatched_at is not null
        and not exists (
          select from webhook_delivery d
          where d.outbox_id = o.id and (
            d.next_attempt_at is not null
            or exists (select from webhook_attempt a where a.delivery_id = d.id and a.started_at >= ${before})
          )
        )
        and not exists (select from mail_notice n where n.outbox_id = o.id)
      for update of o skip locked
    ), log as (
      delete from webhook_delivery where outbox_id in (select id from told)
    ), gone as (
      delete from outbox where id in (select id from told) returning id
    )
    select (select count(*)::int from gone) as forgotten,
      (select max(id)::text from page having count(*) = ${limit} and max(created_at) < ${before}) as next`
  return row
}

/** Deletes the bytes of transactions in closed batches whose nonce was resolved long ago: the chain still has the transactions that were mined. */
async function forgetTransactionBytes(
  sql: Queryable,
  { before, after, limit }: Page,
): Promise<Forgotten | undefined> {
  const [row] = await sql<[Forgotten]>`
    with page as (
      select t.hash, t.batch_id, t.resolved_at < ${before} and b.state = 'closed' as is_over
      from transaction t join batch b on b.id = t.batch_id
      where t.raw is not null and t.batch_id > ${after ?? '0'}
      order by t.batch_id
      fetch first ${limit} rows with ties
    ), gone as (
      update transaction set raw = null where hash in (select hash from page where is_over) and raw is not null
      returning hash
    )
    select (select count(*)::int from gone) as forgotten,
      (select max(batch_id)::text from page having count(*) >= ${limit}) as next`
  return row
}

/** Deletes the counted requests of passes that have ended. Only the number of used requests is kept. */
async function forgetPassUses(
  sql: Queryable,
  { before, after, limit }: Page,
): Promise<Forgotten | undefined> {
  const [paymentId = '', useId = '00000000-0000-0000-0000-000000000000'] = after?.split(' ') ?? []
  const [row] = await sql<[Forgotten]>`
    with page as (
      select payment_id, use_id from pass_use
      where (payment_id, use_id) > (${paymentId}, ${useId}::uuid) and payment_id < ${firstIdAt('pay', before)}
      order by payment_id, use_id limit ${limit}
    ), gone as (
      delete from pass_use u using page, pass p
      where u.payment_id = page.payment_id and u.use_id = page.use_id and p.payment_id = page.payment_id and p.ends_at < ${before}
      returning u.payment_id
    )
    select (select count(*)::int from gone) as forgotten,
      (select max(payment_id || ' ' || use_id) from page having count(*) = ${limit}) as next`
  return row
}

type Walk = {
  table: string
  forget: (sql: Queryable, page: Page) => Promise<Forgotten | undefined>
  /** Reads the key of the row at which the next page begins. */
  readNext: (sql: Queryable, after: string | null) => Promise<{ key: string | null }[]>
}

const walks: readonly Walk[] = [
  {
    table: 'presentation',
    forget: forgetPresentations,
    readNext: (sql, after) =>
      sql`select min(payment_id) as key from presentation where payment_id > ${after ?? ''}`,
  },
  {
    table: 'outbox',
    forget: forgetMessages,
    readNext: (sql, after) => sql`select min(id)::text as key from outbox where id > ${after ?? '0'}`,
  },
  {
    table: 'transaction',
    forget: forgetTransactionBytes,
    readNext: (sql, after) =>
      sql`select min(batch_id)::text as key from transaction where raw is not null and batch_id > ${after ?? '0'}`,
  },
  {
    table: 'pass_use',
    forget: forgetPassUses,
    readNext: (sql, after) =>
      sql`select min(payment_id || ' ' || use_id) as key from pass_use where payment_id || ' ' || use_id > ${after ?? ''}`,
  },
]

export type RetentionOptions = { days: number; now: () => number; onBadRow: OnBadRow; limit?: number }

/**
 * Creates a step of a background loop that continuously deletes rows, page by page, `days` after they were last needed. A row that can't be
 * deleted is skipped until the walk starts again.
 */
export function createRetention(
  sql: Queryable,
  { days, now, onBadRow, limit = 1_000 }: RetentionOptions,
): () => Promise<'busy' | 'idle'> {
  const steps = walks.map((walk) => ({ table: walk.table, step: createWalk(sql, walk, { limit, onBadRow }) }))
  return async () => {
    const before = new Date(now() - days * 86_400_000)
    let isBusy = false
    await takeParts(
      Object.fromEntries(
        steps.map(({ table, step }) => [
          table,
          async () => {
            isBusy = (await step(before)) || isBusy
          },
        ]),
      ),
    )
    return isBusy ? 'busy' : 'idle'
  }
}

/** @returns a function that deletes a page, and returns whether there is more to delete. */
function createWalk(
  sql: Queryable,
  { table, forget, readNext }: Walk,
  { limit, onBadRow }: Pick<Required<RetentionOptions>, 'limit' | 'onBadRow'>,
): (before: Date) => Promise<boolean> {
  let after: string | null = null
  // After a page failed: the number of single-row pages to process next, to find the row that can't be deleted.
  let alone = 0
  return async (before) => {
    const isAlone = alone > 0
    try {
      const page = await forget(sql, { before, after, limit: isAlone ? 1 : limit })
      after = page?.next ?? null
      if (isAlone) alone--
      return after !== null && (isAlone || (page?.forgotten ?? 0) > 0)
    } catch (error) {
      if (!isRowFault(error) && !isTimeLimit(error)) throw error
      if (!isAlone) {
        alone = limit
        return true
      }
      const [next] = await readNext(sql, after)
      after = next?.key ?? null
      alone--
      onBadRow('retention', error, { table, row: after })
      return after !== null
    }
  }
}
