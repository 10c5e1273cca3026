import { z } from '@hono/zod-openapi'
import { isHeld } from '#ledger/batches/holds'
import { estimatedSettlement, type TriggerSettings } from '#ledger/queue/triggers'
import { formatUsdc } from '#protocol/amount'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
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

const getStatus = route('get', '/settlements/status', {
  summary: 'What a wallet waits for',
  tags: ['Settlements'],
  query: statusQuery,
  refuses: [404],
  responses: { 200: jsonAnswer('The queue', settlementStatus) },
})

export function addSettlementStatusRoute(
  app: App,
  { sql, heads, networks, settings, now }: RouteOptions,
): void {
  app.openapi(getStatus, async (c) => {
    const { wallet, network: name } = c.req.valid('query')
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
    return c.json(
      {
        wallet_address: wallet,
        ...(queue === null ? emptyQueue : toQueue(queue, settings.triggers, asOf)),
        held_by: queue && (isTooDear ? ('gas_price' as const) : queue.heldBy),
        network: network.name,
        indexedBlock,
      },
      200,
    )
  })
}

const emptyQueue = {
  accumulated_usdc: formatUsdc(0n),
  payment_count: 0,
  first_payment_at: null,
  age_seconds: 0,
  estimated_settlement: null,
}

function toQueue(queue: WalletQueue, triggers: TriggerSettings, now: Date) {
  return {
    accumulated_usdc: formatUsdc(queue.amount),
    payment_count: queue.paymentCount,
    first_payment_at: queue.firstQueuedAt.toISOString(),
    age_seconds: Math.max(0, Math.floor((now.getTime() - queue.firstQueuedAt.getTime()) / 1000)),
    estimated_settlement: estimate(queue, triggers, now).toISOString(),
  }
}

/** When the next payment is settled. */
function estimate({ waiting, nextAttemptAt }: WalletQueue, triggers: TriggerSettings, now: Date): Date {
  const times = [waiting && estimatedSettlement(waiting, triggers, now), nextAttemptAt]
  return new Date(Math.min(...times.map((time) => time?.getTime() ?? Number.POSITIVE_INFINITY)))
}
