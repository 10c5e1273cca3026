import { z } from '@hono/zod-openapi'
import { isHeld } from '@tollkeeper/ledger/batches/holds'
import { readSettlingCosts } from '@tollkeeper/ledger/queue/settlingCost'
import { estimatedSettlement, type TriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { minimumPriceOn } from '../registry/price.ts'
import { createOpenTabQueues, type OpenTabQueue } from './openTabQueue.ts'
import { readWalletQueue, requireKnownWallet, type WalletQueue } from './settlementQueue.ts'

const statusQuery = z.object({ wallet: wire.address, network: wire.oneNetwork })

const settlementStatus = z
  .object({
    wallet_address: wire.addressOut,
    accumulated_usdc: wire.decimalUsdc,
    payment_count: z.int(),
    first_payment_at: wire.isoTime.nullable(),
    age_seconds: z.int(),
    estimated_settlement: wire.isoTime.nullable(),
    held_by: wire.heldBy('the oldest payment waits beyond the estimate'),
    network: wire.networkName,
    indexedBlock: wire.indexedBlock,
  })
  .openapi('SettlementStatus')

export type SettlementStatusRouteOptions = {
  sql: Database
  tabReads: TabReads
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'platformWallet' | 'triggers' | 'minimumPrices' | 'tabs'>
  now: () => number
}

export const addSettlementStatusRoute = view('/settlements/status', {
  summary: 'Payments that a wallet is waiting for',
  description:
    'Each request on a tab counts as a payment, within ten seconds of its purchase. For up to ten seconds after a tab closes it may count twice.',
  tags: ['Settlements'],
  query: statusQuery,
  refuses: [404],
  answer: ['The queue', settlementStatus],
  open: ({ sql, tabReads, heads, networks, settings, now }: SettlementStatusRouteOptions) => {
    // If the operator allows it, the tab of a buyer with earned credit may stay open for several hours.
    const timeMs = settings.triggers.timeMs * (settings.tabs?.earnedHours ?? 1)
    const readOpenTabs = createOpenTabQueues({
      readLines: (chainId) =>
        tabReads.readOpenLines({ chainId, token: networks.ofChain(chainId).served.token }),
      timesOn: (chainId) => ({
        least: minimumPriceOn(settings, networks.ofChain(chainId).served.network),
        timeMs,
      }),
    })
    return async ({ wallet, network: name }) => {
      const { network, token } = networks.named(name).served
      const { chainId } = network
      const asOf = new Date(now())
      const isPlatform = wallet === settings.platformWallet
      if (!isPlatform) await requireKnownWallet(sql, { chainId, wallet })
      const question = { chainId, token, wallet, half: isPlatform ? (1 as const) : (0 as const), now: asOf }
      // Open tabs are read before the ledger. A tab that moves into the ledger between the two reads is then counted twice for a few seconds. In
      // the other order, it would not be counted at all.
      const openTabs = await readOpenTabs(question)
      const [indexedBlock, queue, isTooDear, costOf] = await Promise.all([
        heads.of(chainId),
        readWalletQueue(sql, question),
        isHeld(sql, chainId, asOf),
        readSettlingCosts(sql, [chainId], asOf),
      ])
      return {
        wallet_address: wallet,
        ...toQueue(queue, openTabs, { triggers: settings.triggers, cost: costOf(chainId), now: asOf }),
        held_by: queue && (isTooDear ? ('gas_price' as const) : queue.heldBy),
        network: network.name,
        indexedBlock,
      }
    }
  },
})

const emptyQueue = {
  accumulated_usdc: 0n,
  payment_count: 0,
  first_payment_at: null,
  age_seconds: 0,
  estimated_settlement: null,
}

function toQueue(
  queue: WalletQueue | null,
  openTabs: OpenTabQueue | null,
  { triggers, cost, now }: EstimateOptions,
) {
  const parts = [queue, openTabs].filter((part) => part !== null)
  if (parts.length === 0) return emptyQueue
  const first = Math.min(...parts.map(({ firstQueuedAt }) => firstQueuedAt.getTime()))
  const times = [queue && estimate(queue, { triggers, cost, now }), openTabs?.settlesAt]
  return {
    accumulated_usdc: parts.reduce((sum, { amount }) => sum + amount, 0n),
    payment_count: parts.reduce((sum, { paymentCount }) => sum + paymentCount, 0),
    first_payment_at: new Date(first),
    age_seconds: Math.max(0, Math.floor((now.getTime() - first) / 1000)),
    estimated_settlement: earliest(times),
  }
}

/** `cost`: the cost of settling that a keeper last observed, in USDC base units. */
type EstimateOptions = { triggers: TriggerSettings; cost: bigint; now: Date }

/** Estimates when the next payment settles. */
function estimate({ waiting, nextAttemptAt }: WalletQueue, { triggers, cost, now }: EstimateOptions): Date {
  return earliest([waiting && estimatedSettlement(waiting, triggers, cost, now), nextAttemptAt])
}

function earliest(times: readonly (Date | null | undefined)[]): Date {
  return new Date(Math.min(...times.map((time) => time?.getTime() ?? Number.POSITIVE_INFINITY)))
}
