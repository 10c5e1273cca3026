import { z } from '@hono/zod-openapi'
import { mostPayments } from '@tollkeeper/chain/gas'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import {
  type PublishedPayment,
  publishPayments,
  readStalled,
  type StalledPayment,
} from '@tollkeeper/ledger/batches/publish'
import { createDueBatches, type DueSettings, type ReadDueBatches } from '@tollkeeper/ledger/queue/dueBatches'
import { readHeldBack } from '@tollkeeper/ledger/queue/queue'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'
import { toWord } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'

/** Highest fee per gas in wei that estimates assume. */
const maxFeePerGas = 100_000_000_000n
const mostPages = 10

const query = z.object({
  network: wire.oneNetwork,
  page: z.coerce
    .number()
    .int()
    .min(0)
    .max(mostPages - 1)
    .default(0)
    .openapi({
      description:
        "Number of pages to skip: keepers that start on different pages don't compete for the same batch",
    }),
})

const splitter = z.object({
  address: wire.addressOut,
  provider: wire.addressOut,
  shares: z.tuple([z.string(), z.string()]).openapi({
    description: 'Shares of the provider and the platform, in lowest terms',
    items: { type: 'string' },
  }),
})

const tab = z.object({
  payload: z.string().openapi({
    description:
      'Same form as a payment’s `payload`, but it is a ReceiveWithAuthorization that pays `tabSettlement`. Its validBefore holds only the expiry; the signed validBefore also contains a hash of the other fields (docs/tabs.md)',
  }),
  sequence: z.int(),
  rewardShare: z.int().openapi({
    description: "Share of the platform's part, in basis points, that the settling keeper receives",
  }),
  lines: z.array(z.tuple([z.string(), z.string()]).openapi({ items: { type: 'string' } })).openapi({
    description: 'Split (32 bytes) and amount of each line, in the order in which they are signed',
  }),
})

const batch = z.object({
  feeRecipient: wire.addressOut,
  trigger: wire.triggerName,
  payments: z.array(z.array(z.string()).min(1).max(2)).openapi({
    description:
      'Payloads (from,to,value,validAfter,validBefore,nonce,signature): one for the provider and one for the fee, or a single one that pays a splitter',
  }),
  splitters: z.array(splitter).openapi({
    description:
      'Splitters that payments with one signature pay. The platform is `feeRecipient`: recompute the address from these terms',
  }),
  tabs: z.array(tab).openapi({
    description:
      'Closed tabs, each with its newest state. `feeRecipient` is their platform; tabs with the same reward settle together',
  }),
})

const pending = z
  .object({
    batches: z.array(batch),
    network: z.string(),
    batchSettlement: wire.addressOut,
    tabSettlement: wire.addressOut,
    token: wire.addressOut,
    indexedBlock: z.int(),
  })
  .openapi('PendingSettlements')

export type PendingRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'publicQueue' | 'triggers' | 'gasTokenUsd' | 'priorityFeePerGas'>
  now: () => number
}

export const addPendingRoute = view('/settlements/pending', {
  summary: 'Due payments with their signed authorizations, which anyone may settle',
  description:
    "An authorization can only move the buyer's money to the recipients that the buyer signed for. A published payment can't be voided.",
  tags: ['Settlements'],
  query,
  refuses: [404],
  answer: ['The due batches', pending],
  open: ({ sql, heads, networks, settings, now }: PendingRouteOptions) => {
    const findPendingBatches = createPendingBatches(sql)
    return async ({ network: name, page }) => {
      if (!settings.publicQueue) throw new Refusal('not_found', 'This gateway does not publish its queue')
      const { served } = networks.named(name)
      const { network, deployment, token } = served
      const indexedBlock = (await heads.of(network.chainId)) ?? 0
      const { triggers, gasTokenUsd, priorityFeePerGas } = settings
      const batches = await findPendingBatches(served, {
        settings: { triggers, gasTokenUsd, priorityFeePerGas, maxFeePerGas },
        page,
        now: new Date(now()),
      })
      const { batchSettlement, tabSettlement } = deployment
      return { batches, network: network.name, batchSettlement, tabSettlement, token, indexedBlock }
    }
  },
})

type PendingOptions = {
  settings: DueSettings
  /** Page of batches to return; 0 has the most urgent payments. */
  page: number
  now: Date
}

/**
 * Creates the search for the due batches of `GET /settlements/pending`. It finds payments for which a trigger has fired, even if their gas is
 * too expensive for us, and the payments of our own batches that should have been mined long ago.
 */
function createPendingBatches(sql: Database) {
  const byChain = new Map<number, ReadDueBatches>()

  return async function findPendingBatches(
    served: ServedNetwork,
    { settings, page, now }: PendingOptions,
  ): Promise<z.input<typeof batch>[]> {
    const { chainId } = served.network
    const readDueBatches = byChain.get(chainId) ?? createDueBatches(sql, served)
    byChain.set(chainId, readDueBatches)
    const batches: z.input<typeof batch>[] = []
    const publish = async (feeRecipient: Address, trigger: Trigger, ids: string[]) => {
      const published = await publishPayments(sql, ids, now)
      if (published.length === 0) return
      const payments = published.filter(({ tab }) => tab === null)
      const splitters = new Map(
        payments.flatMap(({ splitter }) =>
          splitter ? [[splitter.address, toPublished(splitter)] as const] : [],
        ),
      )
      batches.push({
        feeRecipient,
        trigger,
        payments: payments.map(({ payloads }) => payloads),
        splitters: [...splitters.values()],
        tabs: published.flatMap(toPublishedTab),
      })
    }

    // The later search for due batches returns deferred payments to the queue. That can't change which payments are stalled, because only payments
    // in a batch are stalled, and deferred payments are in none.
    const stalled =
      page > 0 ? [] : await readStalled(sql, { chainId, token: served.token }, now, mostPayments)
    // Payments are grouped by trigger, because keepers treat triggers differently: `high_value` payments settle one at a time.
    const batchOf = ({ feeRecipient, trigger }: StalledPayment) => `${feeRecipient} ${trigger}`
    for (const payments of Map.groupBy(stalled, batchOf).values()) {
      const ids = payments.map(({ id }) => id)
      if (payments[0]) await publish(payments[0].feeRecipient, payments[0].trigger, ids)
    }
    const from = served.deployment.batchSettlement
    for (const due of await readDueBatches({ settings, from, page, now })) {
      // Isolated payments may fail and cost the settling keeper its gas, and other keepers didn't accept these payments.
      if (due.lane === 'isolated') continue
      // Payments of the facilitator aren't published: their caller may still release them, and a published payment can't be released.
      if (due.lane === 'facilitator') continue
      const payments = due.trigger === 'high_value' ? due.payments.slice(0, 1) : due.payments
      const ids = payments.map(({ id }) => id)
      await publish(due.group.feeRecipient, due.trigger, ids)
    }
    // If a payment's gas is too expensive for us, another keeper may still find it worth settling.
    const held = page > 0 ? [] : await readHeldBack(sql, { chainId, token: served.token }, mostPayments)
    for (const [feeRecipient, payments] of Map.groupBy(held, (one) => one.feeRecipient))
      await publish(
        feeRecipient,
        'time',
        payments.map(({ id }) => id),
      )
    return batches
  }
}

function toPublishedTab({ tab, payloads: [payload] }: PublishedPayment) {
  if (!tab || payload === undefined) return []
  const { sequence, rewardShare } = tab
  const lines = tab.lines.map(({ split, amount }): [string, string] => [toWord(split), `${amount}`])
  return [{ payload, sequence, rewardShare, lines }]
}

function toPublished(splitter: NonNullable<PublishedPayment['splitter']>) {
  const { address, provider, providerShare, platformShare } = splitter
  return { address, provider, shares: [`${providerShare}`, `${platformShare}`] as [string, string] }
}
