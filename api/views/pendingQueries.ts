import type { Address } from 'viem'
import { mostPayments } from '#chain/gas'
import type { ServedNetwork } from '#chain/servedNetworks'
import { type PublishedPayment, publishPayments, readStalled } from '#ledger/batches/publish'
import { createDueBatches, type ReadDueBatches } from '#ledger/queue/dueBatches'
import type { CostSettings } from '#ledger/queue/dueTrigger'
import { readHeldBack } from '#ledger/queue/queue'
import type { TriggerSettings } from '#ledger/queue/triggers'
import type { Database } from '#ledger/store/database'
import type { Trigger } from '#protocol/settlement'

/** Whom one-signature payments of a batch pay; the platform is its fee recipient. */
export type PublishedSplitter = { address: Address; provider: Address; shares: [string, string] }

export type PendingBatch = {
  feeRecipient: Address
  trigger: Trigger
  /** Each payment's signed authorizations that are still open, as payloads (SPEC.md 2.4): the provider's, then the fee's. */
  payments: string[][]
  splitters: PublishedSplitter[]
}

export type PendingQuestion = {
  settings: { triggers: TriggerSettings } & CostSettings
  /** How many batches further down the queue to start; 0: with the most urgent payments. */
  page: number
  now: Date
}

/**
 * The batches that are due, as `GET /settlements/pending` publishes them: what a trigger has fired for, also where its gas
 * is too dear for us, and what stands in a batch of ours that should have been mined long ago.
 */
export function createPendingBatches(sql: Database) {
  const byChain = new Map<number, ReadDueBatches>()

  return async function findPendingBatches(
    served: ServedNetwork,
    { settings, page, now }: PendingQuestion,
  ): Promise<PendingBatch[]> {
    const { chainId } = served.network
    const readDueBatches = byChain.get(chainId) ?? createDueBatches(sql, served)
    byChain.set(chainId, readDueBatches)
    const batches: PendingBatch[] = []
    const publish = async (feeRecipient: Address, trigger: Trigger, ids: string[]) => {
      const payments = await publishPayments(sql, ids, now)
      if (payments.length === 0) return
      const splitters = new Map(
        payments.flatMap(({ splitter }) =>
          splitter ? [[splitter.address, toPublished(splitter)] as const] : [],
        ),
      )
      batches.push({
        ...{ feeRecipient, trigger, payments: payments.map(({ payloads }) => payloads) },
        splitters: [...splitters.values()],
      })
    }

    // Before what is due: to look for that returns what was deferred, and what is deferred stands in no batch.
    const stalled =
      page > 0 ? [] : await readStalled(sql, { chainId, token: served.token }, now, mostPayments)
    for (const payments of Map.groupBy(stalled, ({ feeRecipient }) => feeRecipient).values()) {
      const ids = payments.map(({ id }) => id)
      if (payments[0]) await publish(payments[0].feeRecipient, payments[0].trigger, ids)
    }
    const from = served.deployment.batchSettlement
    for (const due of await readDueBatches({ settings, from, page, now })) {
      // They may cost whoever settles them gas for nothing, and it isn't strangers who let them in.
      if (due.lane === 'quarantined') continue
      // Somebody waits for these, and may give them up: what is published can't be.
      if (due.lane === 'facilitator') continue
      const payments = due.trigger === 'high_value' ? due.payments.slice(0, 1) : due.payments
      const ids = payments.map(({ id }) => id)
      await publish(due.group.feeRecipient, due.trigger, ids)
    }
    // A payment whose gas is too dear for us may be worth it to somebody else.
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

function toPublished({
  address,
  provider,
  providerShare,
  platformShare,
}: NonNullable<PublishedPayment['splitter']>): PublishedSplitter {
  return { address, provider, shares: [`${providerShare}`, `${platformShare}`] }
}
