import { weiToUsd } from '@tollkeeper/chain/settlementCost'
import { badDebt } from '@tollkeeper/ledger/acceptance/badDebt'
import type { Readiness } from '@tollkeeper/runtime/health'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { decodeSettle } from '@tollkeeper/sdk/protocol/batchSettlement'
import { decodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import { splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import type { Address, Hex } from 'viem'
import { type Half, halvesOfPayment } from '../../support/halves.ts'
import { findBlamed, findBreaches } from '../../support/ledger.ts'
import { until } from '../../support/until.ts'
import { readBalance } from '../../support/usdc.ts'
import type { Trade } from './honest.ts'
import { gasBudget, keeperEnv, type Market, tabBudget, usdcOfBuyer, usdPerToken } from './scene.ts'

/** Maximum time in seconds until everything is settled. An idle machine needs only a few, a busy one many. */
export const settleSeconds = 180
/**
 * Maximum number of keeper transactions that are mined while an honest payment waits. The wait includes the two seconds until the payment's trigger
 * fires, and the time that the keeper that claimed the payment was frozen.
 */
const mostBefore = 100
const triggerSeconds = Number(keeperEnv.TRIGGER_TIME_SECONDS)
/** Error codes that a buyer may get while one of our hosts or its database is down. */
const outages = new Set(['dependency_unavailable', 'timeout', 'network_error', 'settlement_pending'])
/** Maximum number of keeper transactions that a payer may cause without any of its money moving. */
const transactionsALiar = 3

export type Verdict = {
  /** Rejections that no outage explains, and all rejections after the last outage. */
  refused: string[]
  /** Served payments with at least one unsettled authorization. */
  unsettled: string[]
  /** Payments that settled only after too many transactions for other payers. */
  starved: string[]
  /** Due payments that were left out of more claims of their lane than there are keepers. */
  overlooked: string[]
  /** Honest payments that were blamed for a failure. */
  blamed: string[]
  /** Buyers and providers whose balance doesn't match what was served. */
  misplaced: string[]
  /** Settled payments for which the provider's webhook got no notification. */
  unannounced: string[]
  /** Payers for whom the keepers sent too many transactions. */
  costly: string[]
  /** Gas allowances, and credit on tabs, that exceeded their daily budget. */
  drained: string[]
  /** Honest payments that waited because strangers had drawn the gas budget. */
  held: string[]
  /** The total debt on tabs, if it is more than new payers were lent plus a tenth of all settled revenue. */
  lent: string[]
  /** Payments for which sellers got `success` more than once. */
  repeatedSuccess: string[]
  /** Honest x402 sellers' payments that didn't settle, or whose settlement wasn't reported to them. */
  turnedAway: string[]
  /** Payments that were accepted for a suspended provider. */
  admitted: string[]
  /** Splitters whose sweep counts as failed, although the splitter was merely empty. */
  unswept: string[]
  /** Answers to read requests with another status than success or 429. */
  unread: string[]
  /** Successful attacks. */
  won: string[]
  /** Batches that are still open, and the forbidden states that {@link findBreaches} finds. */
  stuck: string[]
  /** Failing checks of the keepers' `/readyz`. */
  unready: string[]
}

/** The verdict on a scene in which nothing went wrong. */
export const nothingWrong: Verdict = {
  refused: [],
  unsettled: [],
  starved: [],
  blamed: [],
  misplaced: [],
  unannounced: [],
  costly: [],
  drained: [],
  held: [],
  repeatedSuccess: [],
  turnedAway: [],
  admitted: [],
  unswept: [],
  stuck: [],
  unready: [],
  overlooked: [],
  unread: [],
  won: [],
  lent: [],
}

/** Waits until everything is settled, then checks chain and database for everything that went wrong. */
export async function judge(scene: Market, { purchases, sales, announced }: Trade): Promise<Verdict> {
  const { database, chain, token, liars } = scene
  const served = [...new Set(purchases.flatMap(({ paymentId }) => paymentId ?? []))]
  const unsettled = async () => {
    const halves = await Promise.all(served.map((paymentId) => halvesOfPayment(database, paymentId)))
    const isSettled = (own: Half[] = []) => own.length > 0 && own.every(({ state }) => state === 'settled')
    return served.filter((_, index) => !isSettled(halves[index]))
  }
  const unannounced = () => served.filter((paymentId) => !announced.has(paymentId))
  // Remember these lists from the end of the trade: later, the keepers retry payments that strangers left behind, and open batches for them.
  let open: string[] = []
  let unready: string[] = []
  let untaken: string[] = []
  const isOver = async () => {
    const batches = await database<{ id: string; state: string }[]>`
      select id::text, state from batch where state <> 'closed'`
    open = batches.map(({ id, state }) => `batch ${id} is ${state}`)
    unready = await readComplaints(scene)
    untaken = await readUntaken(scene)
    if (open.length + unready.length + untaken.length + unannounced().length > 0) return false
    return (await unsettled()).length === 0
  }
  // If the time runs out, the verdict below names what is missing.
  await until('the trade is over', isOver, settleSeconds * 1_000).catch(() => {})

  const waits = await countWaits(scene, served)
  const withoutCode: { id: string; attempts: number }[] = []
  for (const one of await findBlamed(database)) {
    if (!served.includes(one.id)) continue
    if (!(await chain.getCode({ address: one.payer }))) withoutCode.push(one)
  }

  const owed = new Map<Address, bigint>()
  const add = (address: Address, amount: bigint) => owed.set(address, (owed.get(address) ?? 0n) + amount)
  for (const payer of new Set(purchases.map((one) => one.payer))) add(payer, parseUsdc(usdcOfBuyer))
  for (const { payer, shop, price, paymentId } of purchases) {
    add(payer, paymentId === undefined ? 0n : -price)
    add(shop.address, paymentId === undefined ? 0n : splitAnyPrice(price).providerAmount)
  }
  for (const payer of new Set(sales.map((one) => one.payer))) add(payer, parseUsdc(usdcOfBuyer))
  for (const { payer, payee, value, refusal } of sales) {
    add(payer, refusal === null ? -value : 0n)
    add(payee, refusal === null ? value : 0n)
  }
  const misplaced: string[] = []
  for (const [address, amount] of owed) {
    const balance = await readBalance(chain, token, address)
    if (balance !== amount) misplaced.push(`${address} has ${balance} instead of ${amount}`)
  }

  const sold = await database<{ id: string }[]>`
    select id from payment where payer = any(${sales.map(({ payer }) => payer.toLowerCase())}::text[])`
  const honest = [...served, ...sold.map(({ id }) => id)]
  const costs = await countVain(scene)
  for (const [payer, lie] of liars)
    scene.events.push(`${lie}: ${costs.get(payer) ?? 0} transactions that settled nothing`)
  return {
    refused: purchases.flatMap(({ refusal, afterwards, shop }) =>
      refusal === undefined || (outages.has(refusal) && !afterwards) ? [] : [`${refusal} at ${shop.url}`],
    ),
    unsettled: await unsettled(),
    starved: waits.flatMap(({ id, lane, before }) =>
      before > mostBefore ? [`${id} of lane ${lane}: after ${before} transactions`] : [],
    ),
    overlooked: await findOverlooked(scene, honest),
    blamed: withoutCode.map(({ id, attempts }) => `${id}: ${attempts} attempts`),
    misplaced,
    unannounced: unannounced(),
    costly: [...liars].flatMap(([payer, lie]) => {
      const vain = costs.get(payer) ?? 0
      return vain > transactionsALiar ? [`${payer}, ${lie}: ${vain} transactions`] : []
    }),
    drained: await readDrained(scene),
    held: honest.flatMap((id) => (scene.held.has(id) ? [`${id}: ${scene.held.get(id)}`] : [])),
    lent: await readLent(scene),
    ...readFacilitated(scene, sales),
    ...(await readRefused(scene)),
    unread: scene.unread,
    won: [...scene.won, ...(await readOwnTerms(scene)), ...untaken],
    stuck: [...open, ...(await findBreaches(database))],
    unready,
  }
}

/**
 * Compares each gas allowance and the tab budget with its limit, and returns those above their limit. The cost of
 * replaced transactions is added to the operator's setting, because a replacement may cost more than was reserved for
 * it.
 */
async function readDrained(scene: Market): Promise<string[]> {
  const { database, events } = scene
  const drawn = await database<{ drawer: string; drawn: bigint; grant: bigint | null }[]>`
    select d.drawer, max(d.drawn) as drawn, max(p.gas_grant) as grant
    from gas_draw d left join provider p on p.id = split_part(d.drawer, ':', 1) group by 1
    union all
    select 'tab_budget:' || money, max(lent), null from tab_budget group by 1
    order by 1`
  const replaced = await sumReplaced(scene)
  const [row] = await database<[{ free: number; batches: number; vain: number }]>`
    select (
        select count(*)::int from payment p join payment_result o on o.payment_id = p.id and o.kind = 'settled'
        where p.fee_amount = 0
      ) as free,
      (select count(*)::int from batch) as batches,
      (select count(*)::int from batch b where not exists (select from transaction t where t.batch_id = b.id)) as vain`
  events.push(
    `${row.free} payments without a fee settled; ${row.batches} batches, ${row.vain} without a transaction`,
    `replaced transactions cost ${formatUsdc(replaced)} USD`,
  )
  const limitOf = (drawer: string, grant: bigint | null) => {
    if (drawer === 'tab_budget:test') return parseUsdc(tabBudget)
    if (drawer === 'common:test' || drawer === 'refunds:test') return parseUsdc(gasBudget.common)
    return drawer.startsWith('budget:') ? parseUsdc(gasBudget.fees) : BigInt(grant ?? 0)
  }
  return drawn.flatMap(({ drawer, drawn, grant }) => {
    const limit = limitOf(drawer, grant)
    const summary = `${drawer}: ${formatUsdc(BigInt(drawn))} of ${formatUsdc(limit)} USD`
    events.push(summary)
    return BigInt(drawn) > limit + replaced ? [summary] : []
  })
}

/** Returns closed tabs that are not in the ledger yet. */
async function readUntaken({ database }: Market): Promise<string[]> {
  const rows = await database<{ id: string; since: Date }[]>`
    select 'tab_' || encode(id, 'hex') as id, closed_at as since from tabs.tab
    where closed_at is not null and taken_at is null order by closed_at limit 20`
  return rows.map(
    ({ id, since }) => `${id} has been closed since ${since.toISOString()} and isn't in the ledger`,
  )
}

/** Returns tabs that count as settled although their buyers had the platform's part paid to themselves. */
async function readOwnTerms({ gatewayUrl, ownTerms }: Market): Promise<string[]> {
  const answers = [...ownTerms].map(async (paymentId) => {
    const response = await fetch(new URL(`/payments/${paymentId}`, gatewayUrl))
    const { payment_status } = (await response.json()) as { payment_status?: string }
    return payment_status === 'settled'
      ? [`${paymentId} counts as settled, although the platform got nothing`]
      : []
  })
  return (await Promise.all(answers)).flat()
}

/** Compares what payers owe on tabs with its limit (docs/security.md). */
async function readLent({ database, events }: Market): Promise<string[]> {
  const [row] = await database<[{ owed: bigint; lent: bigint; settled: bigint }]>`
    select
      (
        select coalesce(sum(d.value), 0) from ${badDebt(database)} d
        join payment p on p.id = d.payment_id and p.source = 'tab'
      ) as owed,
      (select coalesce(sum(lent), 0) from tab_budget) as lent,
      (select coalesce(sum(settled_net), 0) from payer_revenue where period = 'all') as settled`
  const [owed, lent, settled] = [row.owed, row.lent, row.settled].map((sum) => BigInt(sum)) as [
    bigint,
    bigint,
    bigint,
  ]
  const summary = `${formatUsdc(owed)} USDC are owed on tabs; ${formatUsdc(lent)} were lent, ${formatUsdc(settled)} have settled`
  events.push(summary)
  return owed > lent + settled / 10n ? [summary] : []
}

/** Returns the cost of our mined transactions that replaced others, in USDC base units, read from the chain. */
async function sumReplaced({ database, chain }: Market): Promise<bigint> {
  const mined = await database<{ hash: Hex }[]>`
    select t.hash from transaction t
    where t.mined_block is not null and (
      t.kind <> 'settle' or exists (select from transaction o where o.batch_id = t.batch_id and o.hash <> t.hash)
    )`
  const receipts = await Promise.all(mined.map(({ hash }) => chain.getTransactionReceipt({ hash })))
  const wei = receipts.reduce((sum, { gasUsed, effectiveGasPrice }) => sum + gasUsed * effectiveGasPrice, 0n)
  return weiToUsd(wei, usdPerToken)
}

function readFacilitated({ successes, events }: Market, sales: Trade['sales']) {
  events.push(`sellers got success for ${successes.size} payments`)
  return {
    repeatedSuccess: [...successes].flatMap(([nonce, times]) =>
      times > 1 ? [`${nonce}: ${times} times`] : [],
    ),
    turnedAway: sales.flatMap(({ refusal }) => refusal ?? []),
  }
}

async function readRefused({ database, suspended }: Market) {
  const admitted = await database<
    { id: string }[]
  >`select id from payment where payee = any(${[...suspended]}::text[])`
  const unswept = await database<{ address: Address; failed: number }[]>`
    select address, failed_sweeps as failed from splitter where failed_sweeps > 0`
  return {
    admitted: admitted.map(({ id }) => id),
    unswept: unswept.map(({ address, failed }) => `${address}: ${failed} times`),
  }
}

async function readComplaints({ keepers }: Market): Promise<string[]> {
  const complaints = keepers.map(async ({ name, service }) => {
    try {
      const answer = await fetch(new URL('/readyz', service.url), { signal: AbortSignal.timeout(5_000) })
      const { checks } = (await answer.json()) as Readiness
      return checks.flatMap((check) => (check.ok ? [] : [`${name}: ${check.name}: ${check.detail}`]))
    } catch (error) {
      // The last lines of a dead process show why it ended.
      return [`${name}: ${error}`, ...(service.isRunning ? [] : service.lastLines)]
    }
  })
  return (await Promise.all(complaints)).flat()
}

type Wait = { id: string; lane: string; before: number }

/**
 * For each settled payment, counts the keepers' transactions that overtook it: they were mined before the payment, although their batches were
 * claimed after its acceptance.
 */
async function countWaits({ database, events }: Market, served: readonly string[]): Promise<Wait[]> {
  const mined = await database<{ claimedAt: Date; lane: string; block: bigint }[]>`
    select b.created_at as "claimedAt", b.lane, t.mined_block as block
    from transaction t join batch b on b.id = t.batch_id where t.mined_block is not null`
  const settled = await database<{ id: string; acceptedAt: Date; lane: string | null; block: bigint }[]>`
    select p.id, p.accepted_at as "acceptedAt", max(seen.block_number) as block, (
        select b.lane from batch_item i join batch b on b.id = i.batch_id where i.payment_id = p.id order by b.id desc limit 1
      ) as lane
    from payment p join signed_authorization a on a.payment_id = p.id
    join indexer.authorization seen on seen.nonce = a.nonce and seen.authorizer = a.authorizer
    where p.id = any (${served}) group by p.id`
  const waits = settled.map(({ id, lane, acceptedAt, block }) => ({
    id,
    lane: lane ?? 'no batch',
    before: mined.filter((one) => one.claimedAt > acceptedAt && one.block < block).length,
  }))
  for (const [lane, own] of Map.groupBy(mined, (one) => one.lane))
    events.push(`${lane}: ${own.length} transactions`)
  for (const [lane, own] of Map.groupBy(waits, (one) => one.lane))
    events.push(
      `${own.length} honest payments of lane ${lane}: after ${Math.max(...own.map(({ before }) => before))} for others at most`,
    )
  return waits
}

/**
 * Returns payments whose trigger had fired, or whose caller waited, while batches of their lane were claimed without them. A payment that isn't in
 * the first of these batches was delayed by others. Payments of contract wallets aren't checked, because a batch holds only a few of them.
 *
 * A batch counts only if it was claimed after the payment had been seen in the queue. `accepted_at` isn't enough: it is the time at which the
 * process began to check the payment, and a busy machine stores the payment seconds later. A payment that was claimed before the watcher saw it
 * wasn't overlooked.
 *
 * The payment that has waited longest decides the kind of a shared batch (pairs or single authorizations). So a batch
 * with a payment that was accepted earlier doesn't count: the payment may be of the other kind, or the batch may have
 * had no room for it.
 */
async function findOverlooked(
  { database, events, keepers, seenAt }: Market,
  honest: readonly string[],
): Promise<string[]> {
  // Each keeper may leave out a due payment once, because it may have read the queue just before the payment was due.
  const mostOverlooked = keepers.length
  const seen = honest.flatMap((id) => {
    const at = seenAt.get(id)
    return at ? [{ id, at: at.toISOString() }] : []
  })
  const rows = await database<{ id: string; lane: string; count: number }[]>`
    select p.id, own.lane, count(other.id)::int as count
    from payment p
    left join unnest(
      ${seen.map(({ id }) => id)}::text[], ${seen.map(({ at }) => at)}::timestamptz[]
    ) as seen (id, at) using (id)
    cross join lateral (
      select b.* from batch_item i join batch b on b.id = i.batch_id where i.payment_id = p.id order by b.id limit 1
    ) own
    left join batch other on other.chain_id = own.chain_id and other.lane = own.lane
      and other.created_at between greatest(seen.at, p.accepted_at + make_interval(secs => ${triggerSeconds})) and own.created_at
      and seen.at is not null
      and other.id <> own.id
      and (own.lane = 'facilitator' or p.accepted_at < all (
        select o.accepted_at from batch_item i join payment o on o.id = i.payment_id where i.batch_id = other.id
      ))
    where p.id = any(${[...honest]}::text[]) and own.lane in ('shared', 'facilitator')
    group by p.id, own.lane`
  const most = Math.max(0, ...rows.map(({ count }) => count))
  events.push(
    `${rows.length} honest payments without code: at most ${most} claims of their lane left one out`,
  )
  return rows.flatMap(({ id, lane, count }) =>
    count > mostOverlooked ? [`${id} of lane ${lane}: ${count} batches`] : [],
  )
}

/**
 * Counts, by payer, the keepers' mined transactions that contained a payment of the payer but moved none of its money.
 * Reads only the chain.
 */
async function countVain({ chain, token, keepers }: Market): Promise<Map<Address, number>> {
  const wallets = new Set(keepers.map(({ wallet }) => wallet?.toLowerCase()))
  const head = await chain.getBlockNumber({ cacheTime: 0 })
  const vain = new Map<Address, number>()
  for (let blockNumber = 0n; blockNumber <= head; blockNumber++) {
    const { transactions } = await chain.getBlock({ blockNumber, includeTransactions: true })
    for (const { from, input, hash } of transactions) {
      if (!wallets.has(from)) continue
      const carried = payersIn(input)
      if (carried.size === 0) continue
      const { logs } = await chain.getTransactionReceipt({ hash })
      const moved = new Set(
        logs
          .filter(({ address }) => address === token)
          .flatMap(({ topics }) => topics.slice(1).map((topic) => `0x${topic?.slice(26)}`)),
      )
      for (const payer of carried) if (!moved.has(payer)) vain.set(payer, (vain.get(payer) ?? 0) + 1)
    }
  }
  return vain
}

function payersIn(calldata: Hex): Set<Address> {
  const readers = [
    () => decodeSettle(calldata).items.map(({ authorization }) => authorization.from),
    () => decodeSettleTabs(calldata).tabs.map(({ payer }) => payer),
  ]
  for (const read of readers) {
    try {
      return new Set(read())
    } catch {
      // This calldata is of the other contract, or it cancels a nonce and contains no payer.
    }
  }
  return new Set()
}
