import type { Address } from 'viem'
import { mostPayments } from '#chain/gas'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '#ledger/database'
import { type CostSettings, findDueTrigger, type QueueReads } from '#ledger/dueTrigger'
import { type PublishedPayment, publishPayments, readStalled } from '#ledger/publish'
import {
  findFullWallet,
  type QueueGroup,
  readExtremes,
  readGreatest,
  readGroups,
  readMostUrgent,
  readNextBatchSize,
  returnPutOff,
} from '#ledger/queue'
import type { TriggerSettings } from '#ledger/triggers'
import type { Trigger } from '#protocol/settlement'

export type PendingBatch = { feeRecipient: Address; trigger: Trigger; payments: PublishedPayment[] }

export type PendingQuestion = {
  settings: { triggers: TriggerSettings } & CostSettings
  /** 0: the most urgent payments; from 1 on, so many batches further down the queue. */
  page: number
  now: Date
}

/**
 * The batches that are due, as `GET /settlements/pending` publishes them: what a trigger has fired for, and what stands
 * in a batch of ours that should have been mined long ago.
 */
export function createPendingBatches(sql: Database) {
  const noneFullUntil = new Map<string, number>()

  /** Many wallets looked at in vain: not more often than it takes a tenth of the time, whoever asks. */
  function createSparing(group: QueueGroup): QueueReads['findFullWallet'] {
    const key = `${group.chainId}:${group.feeRecipient}`
    return async (threshold) => {
      const began = performance.now()
      if (began < (noneFullUntil.get(key) ?? 0)) return null
      const full = await findFullWallet(sql, group, threshold)
      if (!full) noneFullUntil.set(key, performance.now() + 10 * (performance.now() - began))
      return full
    }
  }

  return async function findPendingBatches(
    served: ServedNetwork,
    { settings, page, now }: PendingQuestion,
  ): Promise<PendingBatch[]> {
    const { triggers } = settings
    const scope = { chainId: served.network.chainId, token: served.token }
    const batches: PendingBatch[] = []
    const publish = async ({ feeRecipient }: QueueGroup, trigger: Trigger, ids: string[]) => {
      const payments = await publishPayments(sql, ids, now)
      if (payments.length > 0) batches.push({ feeRecipient, trigger, payments })
    }
    // A keeper does so as well; where it's gone, others need what it had put off.
    await returnPutOff(sql, scope, now)
    for (const group of await readGroups(sql, scope)) {
      const stalled = page > 0 ? [] : await readStalled(sql, group, now, mostPayments)
      if (stalled[0])
        await publish(
          group,
          stalled[0].trigger,
          stalled.map(({ id }) => id),
        )

      const extremes = await readExtremes(sql, group, now)
      if (!extremes) continue
      const reads = {
        findFullWallet: createSparing(group),
        readSize: () => readNextBatchSize(sql, group, mostPayments),
      }
      const from = served.deployment.batchSettlement
      const trigger = await findDueTrigger(served, from, extremes, settings, reads, now)
      if (!trigger) continue
      if (trigger === 'high_value') {
        const [greatest] = (await readGreatest(sql, group, triggers.highValue, page + 1)).slice(page)
        if (greatest) await publish(group, trigger, [greatest.id])
        continue
      }
      const urgent = await readMostUrgent(sql, group, {
        now,
        below: triggers.highValue,
        expiryLeadMs: triggers.expiryLeadMs,
        limit: mostPayments,
        skip: page * mostPayments,
      })
      await publish(
        group,
        trigger,
        urgent.map(({ id }) => id),
      )
    }
    return batches
  }
}
