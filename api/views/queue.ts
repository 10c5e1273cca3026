import { z } from '@hono/zod-openapi'
import { isOpen } from '@tollkeeper/ledger/facts/halves'
import { readSettlingCosts } from '@tollkeeper/ledger/queue/settlingCost'
import { isFresh, isRetryDue, isRetrying, isSent, isShown, isWaiting } from '@tollkeeper/ledger/queue/stages'
import {
  estimatedSettlement,
  firedTrigger,
  type TriggerSettings,
  timeTriggerAt,
  type WaitingPayments,
} from '@tollkeeper/ledger/queue/triggers'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Address } from 'viem'
import { providerViews } from '../http/authenticate.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { listWallets, type Wallet } from '../registry/wallets.ts'
import { createWithheldReader, withheld } from './withheld.ts'

const walletQueue = z
  .object({
    walletId: wire.walletId,
    wallet: wire.addressOut,
    network: wire.networkOfChain,
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
      expiry: z.object({ validBefore: wire.isoSeconds.nullable(), at: wire.isoSeconds.nullable() }),
    }),
    withheld,
  })
  .openapi('WalletQueue')

export const queue = z
  .object({
    wallets: z.array(walletQueue),
    asOf: wire.isoTime.openapi({ description: "The gateway's clock, for countdowns" }),
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('ProviderQueue')

export type QueueRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'triggers'>
  now: () => number
}

export const addQueueRoute = view('/providers/{id}/queue', {
  ...providerViews,
  summary: 'What waits for each wallet, and how far each trigger is from firing',
  answer: ['The queues', queue],
  open({ sql, heads, networks, settings, now }: QueueRouteOptions) {
    const withheldOf = createWithheldReader({ sql, now })
    return async ({ id: providerId }) => {
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
      const [work, tabs, costOf] = await Promise.all([
        readProviderWork(sql, question),
        readProviderTabs(sql, question),
        readSettlingCosts(
          sql,
          tokens.map(({ chainId }) => chainId),
          asOf,
        ),
      ])
      const wallets = await Promise.all(
        all.map(async (wallet) => ({
          ...toWalletQueue(wallet, work.get(wallet.walletId), tabs.get(wallet.walletId), {
            triggers: settings.triggers,
            cost: costOf(wallet.chainId),
            now: asOf,
          }),
          withheld: await withheldOf(networks.ofChain(wallet.chainId), wallet.address),
        })),
      )
      return { wallets, asOf, indexedBlocks }
    }
  },
})

function toWalletQueue(
  { walletId, address, chainId }: Wallet,
  work: WalletWork = noWork,
  tabs: TabWork = { ...noWork, tabs: 0 },
  { triggers, cost, now }: { triggers: TriggerSettings; cost: bigint; now: Date },
) {
  const fired = firedTrigger(work, triggers, cost, now)
  const first = work.paymentCount === 0 ? null : work
  const times = [...(fired || first ? [work] : []), ...(tabs.tabs > 0 ? [tabs] : [])].map((waiting) =>
    estimatedSettlement(waiting, triggers, cost, now).getTime(),
  )
  return {
    walletId,
    wallet: address,
    network: chainId,
    payments: work.waitingPayments + tabs.waitingPayments,
    tabs: tabs.tabs,
    accumulated_usdc: work.waitingAmount + tabs.waitingAmount,
    settlingPayments: work.settlingPayments + tabs.settlingPayments,
    settling_usdc: work.settlingAmount + tabs.settlingAmount,
    retryingPayments: work.retryingPayments + tabs.retryingPayments,
    fired,
    settlesAt: times.length === 0 ? null : new Date(Math.min(...times)),
    triggers: {
      amount: {
        counted_usdc: work.amount,
        threshold_usdc: triggers.amount,
        raised_threshold_usdc: triggers.raisedAmount,
      },
      count: { counted: work.paymentCount, threshold: triggers.count, raisedThreshold: triggers.raisedCount },
      time: {
        since: first?.firstQueuedAt ?? null,
        at: first && timeTriggerAt(first, triggers),
        seconds: triggers.timeMs / 1000,
      },
      high_value: { largest_usdc: work.largestPayment, threshold_usdc: triggers.highValue },
      expiry: { validBefore: first?.firstValidBefore ?? null, at: first?.firstUrgentAt ?? null },
    },
  }
}

/**
 * The payments to a wallet that may still move, by what the keeper does with them; amounts are what the wallet receives. And its
 * queue as the triggers see it, which don't count payments that are settled apart from the others.
 */
type WalletWork = WaitingPayments & {
  /** In no transaction yet, without what failed before. */
  waitingPayments: number
  waitingAmount: bigint
  /** Of what the triggers count, Unix seconds. */
  firstValidBefore: bigint
  /** In a transaction. */
  settlingPayments: number
  settlingAmount: bigint
  /** Failed before, and in no transaction. */
  retryingPayments: number
}

const noWork: WalletWork = {
  waitingPayments: 0,
  waitingAmount: 0n,
  settlingPayments: 0,
  settlingAmount: 0n,
  retryingPayments: 0,
  paymentCount: 0,
  amount: 0n,
  largestPayment: 0n,
  retryDue: false,
  firstQueuedAt: new Date(0),
  firstUrgentAt: 0n,
  firstValidBefore: 0n,
}

/** The same for sales on closed tabs, counted in requests. */
type TabWork = WalletWork & {
  /** Tabs that wait, without those that failed before. */
  tabs: number
}

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
  const rows = await sql<(WalletWork & { walletId: string })[]>`
    select w.id as "walletId",
      count(*) filter (where ${waits})::int as "waitingPayments",
      coalesce(sum(q.provider_amount) filter (where ${waits}), 0) as "waitingAmount",
      count(*) filter (where ${isWaiting(sql)})::int as "paymentCount",
      coalesce(sum(q.provider_amount) filter (where ${isWaiting(sql)}), 0) as amount,
      coalesce(${largest} filter (where ${isWaiting(sql)} or ${isRetryDue(sql, now)}), 0) as "largestPayment",
      coalesce(min(q.accepted_at) filter (where ${isWaiting(sql)}), ${now}) as "firstQueuedAt",
      coalesce(min(q.valid_before) filter (where ${isWaiting(sql)}), ${2n ** 40n}) as "firstValidBefore",
      coalesce(min(q.urgent_at) filter (where ${isWaiting(sql)}), ${2n ** 40n}) as "firstUrgentAt",
      bool_or(${isRetryDue(sql, now)}) is true as "retryDue", bool_or(q.may_be_voided) as "mayBeVoided",
      count(*) filter (where ${isSent(sql)})::int as "settlingPayments",
      coalesce(sum(q.provider_amount) filter (where ${isSent(sql)}), 0) as "settlingAmount",
      count(*) filter (where ${isRetrying(sql)})::int as "retryingPayments"
    from wallet w
    join ${servedTokens(sql, tokens)} on served.chain_id = w.chain_id
    join queue_group g on g.chain_id = served.chain_id and g.token = served.token
    join queue q on q.group_id = g.id and q.payee = w.address and ${isShown(sql)}
    where w.provider_id = ${providerId} and ${isOpen(sql, 0)} and q.valid_before > ${Math.floor(now.getTime() / 1000)}
    group by w.id`
  return new Map(rows.map((row) => [row.walletId, row]))
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
  const rows = await sql<(TabWork & { walletId: string })[]>`
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
  return new Map(rows.map((row) => [row.walletId, row]))
}
