import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { SplitterTerms } from '@tollkeeper/sdk/protocol/splitter'
import type { Address } from 'viem'
import { paidSince } from '../facts/payouts.ts'
import type { QueueScope } from '../queue/queue.ts'
import type { TriggerSettings } from '../queue/triggers.ts'
import type { Queryable } from '../store/database.ts'
import { type BatchItem, sharedFee } from './items.ts'

/** The contents of a splitter once a batch is settled. */
export type SplitterQueue = {
  /** Number of payments that wait in it, including the batch's payments. */
  payments: number
  /** Amount that the batch brings to its provider, in base units. */
  amount: bigint
  /** When the oldest payment in the splitter settled; null if the splitter is empty before this batch. */
  since: Date | null
}

/** Returns whether a batch should sweep a splitter. A sweep costs about half as much gas as a payment. */
export function isSweepDue(
  { payments, amount, since }: SplitterQueue,
  trigger: Trigger,
  settings: Pick<TriggerSettings, 'amount' | 'sweepCount' | 'sweepAfterMs'>,
  now: Date,
): boolean {
  if (payments >= settings.sweepCount) return true
  // If one of these triggers fired, the provider should be paid out now. A payment that is due by time or expiry may be paid out later.
  if (amount > 0n && (trigger === 'high_value' || trigger === 'submission' || amount >= settings.amount))
    return true
  return since !== null && now.getTime() - since.getTime() >= settings.sweepAfterMs
}

type SplitterRow = SplitterTerms & {
  address: Address
  isLook: boolean
  waiting: number
  since: bigint | null
}

/** Maximum number of splitters that a batch sweeps only because of their age, without paying them. */
const mostOthers = 20

/**
 * Counts each platform's splitters that are due, because a payment has waited in them for too long or an earlier batch had no room for them. Stops
 * counting at the maximum that a batch sweeps.
 */
export async function countWaitingSplitters(
  sql: Queryable,
  { chainId, token }: QueueScope,
  platforms: readonly Address[],
  now: Date,
): Promise<Map<Address, number>> {
  if (platforms.length === 0) return new Map()
  const rows = await sql<{ platform: Address; count: number }[]>`
    select asked.platform, waiting.count
    from unnest(${[...platforms]}::text[]) as asked (platform)
    cross join lateral (
      select count(*)::int as count from (
        select from splitter s
        where s.chain_id = ${chainId} and s.token = ${token} and s.platform = asked.platform and s.look_at <= ${now}
        limit ${mostOthers}
      ) due
    ) waiting`
  return new Map(rows.map(({ platform, count }) => [platform, count]))
}

/**
 * Finds the splitters that a batch should sweep: those that it pays, and those in which a payment has waited for too long. Their contents
 * come from the index. If the index is ahead or behind, that only costs an unnecessary sweep or a longer wait.
 *
 * @param most maximum number of splitters. Later batches reserve gas for the splitters that remain due, and sweep those first.
 */
export async function findDueSweeps(
  sql: Queryable,
  { chainId, token, feeRecipient }: QueueScope & { feeRecipient: Address },
  { trigger, items }: { trigger: Trigger; items: readonly BatchItem[] },
  most: number,
  settings: TriggerSettings,
  now: Date,
): Promise<SplitterTerms[]> {
  const own = ownQueues(items)
  const rows = await sql<SplitterRow[]>`
    select s.address, s.provider, s.platform, s.provider_share as "providerShare", s.platform_share as "platformShare",
      s.look_at <= ${now} as "isLook", w.waiting, w.since
    from (
      (select * from splitter
        where chain_id = ${chainId} and token = ${token} and address = any(${[...own.keys()]}::text[])
          and (failed_sweeps = 0 or look_at <= ${now}))
      union
      (select * from splitter
        where chain_id = ${chainId} and token = ${token} and platform = ${feeRecipient} and look_at <= ${now}
        order by look_at limit ${mostOthers})
    ) s
    cross join lateral ${waitingIn(sql, settings.sweepCount)} w
    order by s.look_at`
  const due: SplitterTerms[] = []
  const looks: { address: Address; at: Date }[] = []
  for (const { address, isLook, waiting, since: oldest, ...terms } of rows) {
    const queue = own.get(address) ?? { payments: 0, amount: 0n }
    const since = oldest === null ? null : new Date(Number(oldest) * 1000)
    const payments = waiting + queue.payments
    const isDue = isSweepDue({ payments, amount: queue.amount, since }, trigger, settings, now)
    const isListed = isDue && terms.platform === feeRecipient && due.length < most
    if (isListed) due.push(terms)
    // If the batch has no room for a due splitter that already waits, `look_at` stays unchanged, so that the splitter keeps its place in the order.
    if (isDue && !isListed && isLook) continue
    // Check the splitter again when its oldest payment is due, because later payments can't be due sooner.
    const restAt = isDue ? now.getTime() : (since ?? now).getTime() + settings.sweepAfterMs
    const at = isListed ? now.getTime() + retryMs : restAt
    if (isDue || isLook) looks.push({ address, at: new Date(at) })
  }
  await sql`
    update splitter s set look_at = look.at
    from json_to_recordset(${JSON.stringify(looks)}::text::json) as look (address text, at timestamptz)
    where s.chain_id = ${chainId} and s.token = ${token} and s.address = look.address`
  return due
}

/**
 * After a batch includes the sweep of a splitter, later batches leave the splitter out for this many ms. Then it may be listed again, in case the
 * batch's transaction was never sent.
 */
const retryMs = 600_000

/** Returns the contents of the splitter `s`. It counts at most `most` payments. If there are fewer, `since` is the oldest payment's block time. */
function waitingIn(sql: Queryable, most: number) {
  return sql`(
    select count(*)::int as waiting, min(block_time) as since
    from (select block_time from (${paidSince(sql)}) paid order by block_number desc limit ${most}) latest
  )`
}

/** Returns the amounts that a batch brings to each splitter, and to each provider through all splitters. */
function ownQueues(items: readonly BatchItem[]): Map<string, { payments: number; amount: bigint }> {
  const amounts = new Map<Address, bigint>()
  for (const item of items) {
    const { provider } = item.splitter ?? {}
    if (provider)
      amounts.set(
        provider,
        (amounts.get(provider) ?? 0n) + item.provider.authorization.value - sharedFee(item),
      )
  }
  const queues = new Map<string, { payments: number; amount: bigint }>()
  for (const { provider, splitter } of items) {
    if (!splitter) continue
    const { to } = provider.authorization
    queues.set(to, {
      payments: (queues.get(to)?.payments ?? 0) + 1,
      amount: amounts.get(splitter.provider) ?? 0n,
    })
  }
  return queues
}

/** Returns the splitters that receive enough of these items' payments to be worth a sweep. A keeper that knows only these items uses it. */
export function countDueSweeps(items: readonly BatchItem[], sweepCount: number): SplitterTerms[] {
  const queues = ownQueues(items)
  const terms = new Map(items.map(({ provider, splitter }) => [provider.authorization.to, splitter]))
  return [...terms].flatMap(([to, splitter]) =>
    splitter && (queues.get(to)?.payments ?? 0) >= sweepCount ? [splitter] : [],
  )
}

/** Time in ms for which a splitter isn't swept after a failed sweep. It doubles after each further failure, up to 32 hours. */
const failedMs = 3_600_000
const mostDoublings = 5

/** Stores the results of the sweeps in our mined transaction, once, even if its receipt is read again. */
export async function recordSweeps(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: Address },
  { block, swept, failed }: { block: bigint; swept: readonly Address[]; failed: readonly Address[] },
  now: Date,
): Promise<void> {
  const later = sql`chain_id = ${chainId} and token = ${token} and coalesce(failed_block, -1) < ${block}`
  if (swept.length > 0)
    await sql`update splitter set failed_sweeps = 0 where ${later} and address in ${sql(swept)} and failed_sweeps > 0`
  if (failed.length > 0)
    await sql`
      update splitter set failed_sweeps = failed_sweeps + 1, failed_block = ${block},
        look_at = ${now}::timestamptz
          + make_interval(secs => ${failedMs / 1000} * power(2, least(failed_sweeps, ${mostDoublings})))
      where ${later} and address in ${sql(failed)}`
}

/** Counts the splitters that aren't swept for now because their last sweep failed. */
export async function countFailedSweeps(sql: Queryable, chainId: number): Promise<number> {
  const [row] = await sql<[{ count: number }]>`
    select count(*)::int as count from splitter where chain_id = ${chainId} and failed_sweeps > 0`
  return row.count
}

/** Reads the terms of all splitters of a network that accepted payments pay. */
export async function readSplitters(sql: Queryable, chainId: number): Promise<SplitterTerms[]> {
  return sql<SplitterTerms[]>`
    select provider, platform, provider_share as "providerShare", platform_share as "platformShare"
    from splitter where chain_id = ${chainId}`
}
