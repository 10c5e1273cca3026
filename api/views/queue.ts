import { z } from '@hono/zod-openapi'
import type { Address } from 'viem'
import { isOpen } from '#ledger/facts/halves'
import { isFresh, isRetryDue, isRetrying, isSent, isShown, isWaiting } from '#ledger/queue/stages'
import {
  estimatedSettlement,
  firedTrigger,
  type TriggerSettings,
  timeTriggerAt,
  type WaitingPayments,
} from '#ledger/queue/triggers'
import type { Database } from '#ledger/store/database'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { listWallets, type Wallet } from '../registry/wallets.ts'
import type { RouteOptions } from '../routeOptions.ts'

const walletQueue = z
  .object({
    walletId: wire.walletId,
    wallet: wire.addressOut,
    network: wire.networkName,
    payments: z.int().openapi({
      description: 'Waiting, without what failed before. Each request on a closed tab is one',
    }),
    tabs: z.int().openapi({ description: 'How many closed tabs are among them' }),
    accumulated_usdc: wire.decimalUsdc.openapi({ description: 'What the wallet receives of them' }),
    settlingPayments: z.int().openapi({ description: 'In a transaction, until it is final' }),
    settling_usdc: wire.decimalUsdc,
    retryingPayments: z.int().openapi({ description: 'Failed before, and wait for their next attempt' }),
    fired: wire.triggerName
      .nullable()
      .openapi({ description: 'The trigger that has fired; the keeper takes it up within moments' }),
    settlesAt: wire.isoTime.nullable().openapi({
      description: 'At the latest, if nothing else is queued; null where no trigger counts anything',
    }),
    triggers: z.object({
      amount: z.object({
        counted_usdc: wire.decimalUsdc.openapi({
          description:
            'Of what waits, without what is settled apart, is asked for at once, or is in a batch already, and without ' +
            'tabs, which wait together with those of others',
        }),
        threshold_usdc: wire.decimalUsdc,
        raised_threshold_usdc: wire.decimalUsdc,
      }),
      count: z.object({ counted: z.int(), threshold: z.int(), raisedThreshold: z.int() }),
      time: z.object({ since: wire.isoTime.nullable(), at: wire.isoTime.nullable(), seconds: z.int() }),
      high_value: z.object({ largest_usdc: wire.decimalUsdc, threshold_usdc: wire.decimalUsdc }),
      expiry: z.object({ validBefore: wire.isoTime.nullable(), at: wire.isoTime.nullable() }),
    }),
  })
  .openapi('WalletQueue')

export const queue = z
  .object({
    wallets: z.array(walletQueue),
    asOf: wire.isoTime.openapi({ description: "The gateway's clock, for countdowns" }),
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('ProviderQueue')

const getQueue = route('get', '/providers/{id}/queue', {
  ...providerViews,
  summary: 'What waits for each wallet, and how far each trigger is from firing',
  responses: { 200: jsonAnswer('The queues', queue) },
})

export function addQueueRoute(app: App, { sql, heads, networks, settings, now }: RouteOptions): void {
  app.openapi(getQueue, async (c) => {
    const providerId = c.req.valid('param').id
    const asOf = new Date(now())
    const [indexedBlocks, all] = await Promise.all([
      heads.ofProvider(providerId),
      listWallets(sql, providerId),
    ])
    const tokens = [...new Set(all.map(({ chainId }) => chainId))].map((chainId) => ({
      chainId,
      token: networks.ofChain(chainId).served.token,
    }))
    const question = { providerId, tokens, now: asOf }
    const [work, tabs] = await Promise.all([readProviderWork(sql, question), readProviderTabs(sql, question)])
    const wallets = all.map((wallet) => {
      const own = work.get(wallet.walletId) ?? noWork
      return toWalletQueue(wallet, own, tabs.get(wallet.walletId), settings.triggers, asOf)
    })
    return c.json({ wallets, asOf: asOf.toISOString(), indexedBlocks }, 200)
  })
}

function toWalletQueue(
  { walletId, address, chainId }: Wallet,
  { counted, firstValidBefore, ...work }: WalletWork,
  tabs: TabWork | undefined,
  triggers: TriggerSettings,
  now: Date,
) {
  // Only the keeper knows whether gas is dear just now, so both thresholds are shown.
  const fired = firedTrigger(counted, triggers, 0n, now)
  const first = counted.paymentCount === 0 ? null : counted
  const times = [...(fired || first ? [counted] : []), ...(tabs && tabs.tabs > 0 ? [tabs.counted] : [])].map(
    (waiting) => estimatedSettlement(waiting, triggers, now).getTime(),
  )
  const settlesAt = times.length === 0 ? null : new Date(Math.min(...times))
  return {
    walletId,
    wallet: address,
    network: networkByChainId(chainId).name,
    payments: work.waitingPayments + (tabs?.waitingPayments ?? 0),
    tabs: tabs?.tabs ?? 0,
    accumulated_usdc: formatUsdc(work.waitingAmount + (tabs?.waitingAmount ?? 0n)),
    settlingPayments: work.settlingPayments + (tabs?.settlingPayments ?? 0),
    settling_usdc: formatUsdc(work.settlingAmount + (tabs?.settlingAmount ?? 0n)),
    retryingPayments: work.retryingPayments + (tabs?.retryingPayments ?? 0),
    fired,
    settlesAt: wire.isoOrNull(settlesAt),
    triggers: {
      amount: {
        counted_usdc: formatUsdc(counted.amount),
        threshold_usdc: formatUsdc(triggers.amount),
        raised_threshold_usdc: formatUsdc(triggers.raisedAmount),
      },
      count: {
        counted: counted.paymentCount,
        threshold: triggers.count,
        raisedThreshold: triggers.raisedCount,
      },
      time: {
        since: wire.isoOrNull(first?.firstQueuedAt),
        at: wire.isoOrNull(first && timeTriggerAt(first, triggers)),
        seconds: triggers.timeMs / 1000,
      },
      high_value: {
        largest_usdc: formatUsdc(counted.largestPayment),
        threshold_usdc: formatUsdc(triggers.highValue),
      },
      expiry: {
        validBefore: first && wire.isoOfSeconds(firstValidBefore),
        at: first && wire.isoOfSeconds(first.firstUrgentAt),
      },
    },
  }
}

/** The payments to a wallet that may still move, by what the keeper does with them. Amounts are what the wallet receives. */
type WalletWork = {
  /** In no transaction yet, without those that failed before. */
  waitingPayments: number
  waitingAmount: bigint
  /** The queue for the triggers, without payments that are settled apart from the others. */
  counted: WaitingPayments
  /** Unix seconds; among the counted payments. */
  firstValidBefore: bigint
  /** In a transaction. */
  settlingPayments: number
  settlingAmount: bigint
  /** Failed before, and in no transaction. */
  retryingPayments: number
}

const noWork: WalletWork = {
  ...{ waitingPayments: 0, waitingAmount: 0n, settlingPayments: 0, settlingAmount: 0n, retryingPayments: 0 },
  counted: {
    ...{ paymentCount: 0, amount: 0n, largestPayment: 0n, retryDue: false },
    ...{ firstQueuedAt: new Date(0), firstUrgentAt: 0n },
  },
  firstValidBefore: 0n,
}

/** The same for sales on closed tabs, counted in requests. */
type TabWork = WalletWork & {
  /** Tabs that wait, without those that failed before. */
  tabs: number
}

type Row = Omit<WalletWork, 'counted'> & WaitingPayments & { walletId: string }

type ProviderWorkQuestion = {
  providerId: string
  /** The USDC of each network served. */
  tokens: { chainId: number; token: Address }[]
  now: Date
}

/** @returns the work by wallet id, of the wallets that have any */
async function readProviderWork(
  sql: Database,
  { providerId, tokens, now }: ProviderWorkQuestion,
): Promise<Map<string, WalletWork>> {
  const waits = isFresh(sql)
  const largest = sql`max(q.provider_amount + q.fee_amount)`
  const rows = await sql<Row[]>`
    select w.id as "walletId",
      count(*) filter (where ${waits})::int as "waitingPayments",
      coalesce(sum(q.provider_amount) filter (where ${waits}), 0) as "waitingAmount",
      count(*) filter (where ${isWaiting(sql)})::int as "paymentCount",
      coalesce(sum(q.provider_amount) filter (where ${isWaiting(sql)}), 0) as amount,
      coalesce(${largest} filter (where ${isWaiting(sql)} or ${isRetryDue(sql, now)}), 0) as "largestPayment",
      coalesce(min(q.accepted_at) filter (where ${isWaiting(sql)}), ${now}) as "firstQueuedAt",
      coalesce(min(q.valid_before) filter (where ${isWaiting(sql)}), ${2n ** 40n}) as "firstValidBefore",
      coalesce(min(q.urgent_at) filter (where ${isWaiting(sql)}), ${2n ** 40n}) as "firstUrgentAt",
      bool_or(${isRetryDue(sql, now)}) is true as "retryDue",
      count(*) filter (where ${isSent(sql)})::int as "settlingPayments",
      coalesce(sum(q.provider_amount) filter (where ${isSent(sql)}), 0) as "settlingAmount",
      count(*) filter (where ${isRetrying(sql)})::int as "retryingPayments"
    from wallet w
    join ${servedTokens(sql, tokens)} on served.chain_id = w.chain_id
    join queue_group g on g.chain_id = served.chain_id and g.token = served.token
    join queue q on q.group_id = g.id and q.payee = w.address and ${isShown(sql)}
    where w.provider_id = ${providerId} and ${isOpen(sql, 0)} and q.valid_before > ${Math.floor(now.getTime() / 1000)}
    group by w.id`
  return new Map(rows.map((row) => [row.walletId, toWork(row)]))
}

function servedTokens(sql: Database, tokens: ProviderWorkQuestion['tokens']) {
  return sql`unnest(${tokens.map(({ chainId }) => chainId)}::int[], ${tokens.map(({ token }) => token)}::text[])
    as served (chain_id, token)`
}

/** Sales on tabs that may still move. When they settle depends on all tabs, so only the time trigger counts here. */
async function readProviderTabs(
  sql: Database,
  { providerId, tokens, now }: ProviderWorkQuestion,
): Promise<Map<string, TabWork>> {
  const waits = isFresh(sql)
  const counted = sql`filter (where ${isWaiting(sql)})`
  const rows = await sql<(Row & { tabs: number })[]>`
    select w.id as "walletId", count(distinct s.payment_id) ${counted}::int as tabs,
      coalesce(sum(s.requests) filter (where ${waits}), 0)::int as "waitingPayments",
      coalesce(sum(s.provider_amount) filter (where ${waits}), 0) as "waitingAmount",
      coalesce(sum(s.requests) ${counted}, 0)::int as "paymentCount",
      0::numeric as amount, 0::numeric as "largestPayment", false as "retryDue",
      coalesce(min(q.accepted_at) ${counted}, ${now}) as "firstQueuedAt",
      coalesce(min(q.valid_before) ${counted}, ${2n ** 40n}) as "firstValidBefore",
      coalesce(min(q.urgent_at) ${counted}, ${2n ** 40n}) as "firstUrgentAt",
      coalesce(sum(s.requests) filter (where ${isSent(sql)}), 0)::int as "settlingPayments",
      coalesce(sum(s.provider_amount) filter (where ${isSent(sql)}), 0) as "settlingAmount",
      coalesce(sum(s.requests) filter (where ${isRetrying(sql)}), 0)::int as "retryingPayments"
    from (select * from tab_sale where provider_id = ${providerId} and arrived is null) s
    join queue q on q.payment_id = s.payment_id
    join queue_group g on g.id = q.group_id
    join ${servedTokens(sql, tokens)} on served.chain_id = g.chain_id and served.token = g.token
    join wallet w on w.provider_id = ${providerId} and w.chain_id = s.chain_id and w.address = s.payee
    where ${isOpen(sql, 0)} and q.valid_before > ${Math.floor(now.getTime() / 1000)}
    group by w.id`
  return new Map(rows.map(({ tabs, ...row }) => [row.walletId, { ...toWork(row), tabs }]))
}

function toWork({
  waitingPayments,
  waitingAmount,
  settlingPayments,
  settlingAmount,
  ...row
}: Row): WalletWork {
  const { walletId: _, retryingPayments, firstValidBefore, ...counted } = row
  return {
    ...{ waitingPayments, waitingAmount, settlingPayments, settlingAmount, retryingPayments },
    ...{ firstValidBefore, counted },
  }
}
