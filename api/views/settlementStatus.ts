import { z } from '@hono/zod-openapi'
import { isHeld } from '@tollkeeper/ledger/batches/holds'
import { estimatedSettlement, type TriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
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
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'platformWallet' | 'triggers'>
  now: () => number
}

export const addSettlementStatusRoute = view('/settlements/status', {
  summary: 'What a wallet waits for',
  tags: ['Settlements'],
  query: statusQuery,
  refuses: [404],
  answer: ['The queue', settlementStatus],
  open:
    ({ sql, heads, networks, settings, now }: SettlementStatusRouteOptions) =>
    async ({ wallet, network: name }) => {
      const { network, token } = networks.named(name).served
      const { chainId } = network
      const asOf = new Date(now())
      const isPlatform = wallet === settings.platformWallet
      if (!isPlatform) await requireKnownWallet(sql, { chainId, wallet })
      const [indexedBlock, queue, isTooDear] = await Promise.all([
        heads.of(chainId),
        readWalletQueue(sql, { chainId, token, wallet, half: isPlatform ? 1 : 0, now: asOf }),
        isHeld(sql, chainId, asOf),
      ])
      return {
        wallet_address: wallet,
        ...(queue === null ? emptyQueue : toQueue(queue, settings.triggers, asOf)),
        held_by: queue && (isTooDear ? ('gas_price' as const) : queue.heldBy),
        network: network.name,
        indexedBlock,
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

function toQueue(queue: WalletQueue, triggers: TriggerSettings, now: Date) {
  return {
    accumulated_usdc: queue.amount,
    payment_count: queue.paymentCount,
    first_payment_at: queue.firstQueuedAt,
    age_seconds: Math.max(0, Math.floor((now.getTime() - queue.firstQueuedAt.getTime()) / 1000)),
    estimated_settlement: estimate(queue, triggers, now),
  }
}

/** When the next payment is settled. */
function estimate({ waiting, nextAttemptAt }: WalletQueue, triggers: TriggerSettings, now: Date): Date {
  const times = [waiting && estimatedSettlement(waiting, triggers, now), nextAttemptAt]
  return new Date(Math.min(...times.map((time) => time?.getTime() ?? Number.POSITIVE_INFINITY)))
}
