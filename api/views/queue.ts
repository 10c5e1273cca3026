import { z } from '@hono/zod-openapi'
import { readSettlingCosts } from '@tollkeeper/ledger/queue/settlingCost'
import { isFresh, isRetryDue, isRetrying, isSent, isWaiting } from '@tollkeeper/ledger/queue/stages'
import {
  estimatedSettlement,
  firedTrigger,
  type TriggerSettings,
  timeTriggerAt,
  type WaitingPayments,
} from '@tollkeeper/ledger/queue/triggers'
import { queuedSales } from '@tollkeeper/ledger/sales/sales'
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
      description:
        'Number of waiting payments, without those that failed before. Each request on a closed tab counts as one',
    }),
    tabs: z.int().openapi({ description: 'Number of closed tabs among the waiting payments' }),
    accumulated_usdc: wire.decimalUsdc.openapi({
      description: 'Amount that the wallet will receive from the waiting payments',
    }),
    settlingPayments: z
      .int()
      .openapi({ description: 'Number of payments in a transaction that is not final yet' }),
    settling_usdc: wire.decimalUsdc,
    retryingPayments: z
      .int()
      .openapi({ description: 'Number of payments that failed before and wait for their next attempt' }),
    fired: wire.triggerName
      .nullable()
      .openapi({ description: 'The trigger that has fired: the keeper settles the payments within moments' }),
    settlesAt: wire.isoTime.nullable().openapi({
      description:
        'Latest time of the next settlement if nothing else is queued; null: no payment counts for a trigger',
    }),
    triggers: z.object({
      amount: z.object({
        counted_usdc: wire.decimalUsdc.openapi({
          description:
            'Sum of the waiting payments that count for this trigger. A payment doesn’t count if it settles alone, a caller waits for it, or it is ' +
            'already in a batch. Tabs don’t count either, because they wait together with other providers’ tabs',
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
  summary: 'Payments waiting for each wallet, and how far each trigger is from firing',
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
      const [workOf, costOf] = await Promise.all([
        readProviderWork(sql, { providerId, tokens, now: asOf }),
        readSettlingCosts(
          sql,
          tokens.map(({ chainId }) => chainId),
          asOf,
        ),
      ])
      const wallets = await Promise.all(
        all.map(async (wallet) => ({
          ...toWalletQueue(wallet, workOf(wallet.walletId), {
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
  { batched: work, tabs }: WalletWork,
  { triggers, cost, now }: { triggers: TriggerSettings; cost: bigint; now: Date },
) {
  const fired = firedTrigger(work, triggers, cost, now)
  const first = work.paymentCount === 0 ? null : work
  const times = [...(fired || first ? [work] : []), ...(tabs.queued > 0 ? [tabs] : [])].map((waiting) =>
    estimatedSettlement(waiting, triggers, cost, now).getTime(),
  )
  return {
    walletId,
    wallet: address,
    network: chainId,
    payments: work.waitingPayments + tabs.waitingPayments,
    tabs: tabs.queued,
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
 * A wallet's sales that aren't final, grouped by the keeper's next step. Amounts are what the wallet receives. Also contains the
 * wallet's queue as the triggers count it, without payments that settle alone.
 */
type Work = WaitingPayments & {
  /** Number of waiting entries as the keeper claims them: one per payment or tab, without those that failed before. */
  queued: number
  /** Number of payments in no transaction yet, without those that failed before. */
  waitingPayments: number
  waitingAmount: bigint
  /** Earliest validBefore of the payments that the triggers count, in Unix seconds. */
  firstValidBefore: bigint
  /** Number of payments in a transaction. */
  settlingPayments: number
  settlingAmount: bigint
  /** Number of payments that failed before and are in no transaction. */
  retryingPayments: number
}

/** Tabs settle in separate batches, so a wallet's work has two parts, each with separate triggers. */
type WalletWork = { batched: Work; tabs: Work }

const noWork: Work = {
  queued: 0,
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

type ProviderWorkOptions = {
  providerId: string
  /** USDC on each served network. */
  tokens: { chainId: number; token: Address }[]
  now: Date
}

/** Reads the waiting sales of a provider's wallets. @returns a function that returns a wallet's work, given the wallet's id */
async function readProviderWork(
  sql: Database,
  { providerId, tokens, now }: ProviderWorkOptions,
): Promise<(walletId: string) => WalletWork> {
  const waits = sql`filter (where ${isFresh(sql)})`
  const counted = sql`filter (where ${isWaiting(sql)})`
  const sent = sql`filter (where ${isSent(sql)})`
  const wallets = sql`(
    select w.id as wallet_id, w.chain_id, w.address, served.token
    from wallet w
    join unnest(${tokens.map(({ chainId }) => chainId)}::int[], ${tokens.map(({ token }) => token)}::text[])
      as served (chain_id, token) on served.chain_id = w.chain_id
    where w.provider_id = ${providerId}
  )`
  const rows = await sql<(Work & { walletId: string; isTab: boolean })[]>`
    select q.wallet_id as "walletId", q.is_tab as "isTab",
      (count(distinct q.payment_id) ${counted})::int as queued,
      coalesce(sum(q.payments) ${waits}, 0)::int as "waitingPayments",
      coalesce(sum(q.part) ${waits}, 0) as "waitingAmount",
      coalesce(sum(q.payments) ${counted}, 0)::int as "paymentCount",
      coalesce(sum(q.counted_part) ${counted}, 0) as amount,
      coalesce(max(q.counted_whole) filter (where ${isWaiting(sql)} or ${isRetryDue(sql, now)}), 0) as "largestPayment",
      coalesce(min(q.accepted_at) ${counted}, ${now}) as "firstQueuedAt",
      coalesce(min(q.valid_before) ${counted}, ${2n ** 40n}) as "firstValidBefore",
      coalesce(min(q.urgent_at) ${counted}, ${2n ** 40n}) as "firstUrgentAt",
      bool_or(${isRetryDue(sql, now)} and q.counted_payments > 0) is true as "retryDue", bool_or(q.may_be_voided) as "mayBeVoided",
      coalesce(sum(q.payments) ${sent}, 0)::int as "settlingPayments",
      coalesce(sum(q.part) ${sent}, 0) as "settlingAmount",
      coalesce(sum(q.payments) filter (where ${isRetrying(sql)}), 0)::int as "retryingPayments"
    from ${queuedSales(sql, wallets, now)} q
    group by q.wallet_id, q.is_tab`
  const find = (walletId: string, isTab: boolean) =>
    rows.find((row) => row.walletId === walletId && row.isTab === isTab) ?? noWork
  return (walletId) => ({ batched: find(walletId, false), tabs: find(walletId, true) })
}
