import type { Mined } from '#chain/receipts'
import { type BatchRow, lockBatch, readWalletBatches, releaseItems, setBatchState } from '#ledger/batches'
import type { Queryable } from '#ledger/database'
import { recordFailure } from '#ledger/failures'
import { addFacilitatorCost, addGasCost, readGasCost } from '#ledger/gasCosts'
import { type BatchItem, readBatchItems } from '#ledger/items'
import { type Lease, pauseWallet, requireLease } from '#ledger/leases'
import { quarantinePayers, quarantinePayments } from '#ledger/quarantine'
import { deferPayments, requestChainLookup, setPayerHasCode } from '#ledger/queue'
import { findDueSweeps } from '#ledger/sweeps'
import {
  insertTransaction,
  markMined,
  markTried,
  readDearestBetween,
  readTransactions,
  wasTaken,
} from '#ledger/transactions'
import type { Context } from '../loops/context.ts'
import { endBatch } from '../loops/endBatch.ts'
import { sweepChosen } from '../loops/sweep.ts'
import { noteTokenPaused } from '../loops/tokenPause.ts'
import type { Journal, Offer, OpenBatch, Verdict } from './journal.ts'
import { type Drop, reportDrops } from './plan.ts'
import { payersOf } from './prepare.ts'

/** How long a payment is deferred when the chain and the index don't agree about it yet. */
const deferMs = 5_000
/** While nothing of the token moves, each look at a payment is in vain. */
const pausedTokenMs = 60_000

export type PostgresJournal = Journal & {
  /** A batch that was read already. @param offers default: none yet. */
  open: (row: BatchRow, offers?: readonly Offer[]) => OpenBatch
}

/** Keeps what a wallet has begun in the database: whoever holds its lease goes on from there. */
export function createPostgresJournal(context: Context, lease: Lease): PostgresJournal {
  const { sql, settings, now } = context
  const fenced = (write: (tx: Queryable) => Promise<unknown>) =>
    sql.begin(async (tx) => {
      // Sent together: within a database transaction the answers come in order.
      await Promise.all([requireLease(tx, lease), write(tx)])
    })
  const tried: OpenBatch['markTried'] = async (hash, isTaken) => {
    await markTried(sql, lease, hash, isTaken)
  }

  function open(row: BatchRow, offers: readonly Offer[] = []): OpenBatch {
    let items: Promise<BatchItem[]> | undefined
    return {
      batch: row,
      offers,
      ageMs: row.ageMs,
      readItems: () => {
        items ??= readBatchItems(sql, row.id)
        return items
      },
      readSweeps: (items) =>
        findDueSweeps(sql, row, { trigger: row.trigger, items }, settings.triggers, now()),
      async save(transaction, drops) {
        await sql.begin(async (tx) => {
          const [, locked] = await Promise.all([requireLease(tx, lease), lockBatch(tx, row.id, row.state)])
          if (!locked) throw new Error(`batch ${row.batchId} is not ${row.state} any more`)
          await applyDrops(context, tx, row, drops)
          await Promise.all([
            insertTransaction(tx, {
              ...transaction,
              batchId: row.id,
              chainId: lease.chainId,
              wallet: lease.address,
            }),
            row.state === 'claimed' && setBatchState(tx, row.id, 'broadcast'),
          ])
        })
        if (row.state === 'claimed') row.state = 'broadcast'
      },
      markTried: tried,
      markMined: (mined, verdict, cost) => saveMined(context, lease, row, mined, verdict, cost),
      close: ({ outcome, failure, report = [], drops = [], unlessTaken = false }) =>
        endBatch(context, row, {
          from: row.state,
          lease,
          outcome,
          failure,
          report,
          before: async (tx) => {
            if (unlessTaken && (await wasTaken(tx, row.id))) return false
            return applyDrops(context, tx, row, drops)
          },
        }),
    }
  }

  return {
    open,
    async readOpen() {
      const [row] = await readWalletBatches(sql, lease.chainId, lease.address)
      return row ? open(row, row.state === 'claimed' ? [] : await readTransactions(sql, row.id)) : null
    },
    async readOffers(nonces) {
      const offers = await readDearestBetween(sql, lease, nonces)
      return offers.map((offer) => ({ offer, markTried: tried }))
    },
    async pause(ms, reason) {
      await fenced((tx) => pauseWallet(tx, lease, new Date(now().getTime() + ms), reason))
    },
    spentToday: () => readGasCost(sql, lease.chainId, now()),
  }
}

async function saveMined(
  context: Context,
  lease: Lease,
  row: BatchRow,
  { hash, receipt }: Mined,
  verdict: Verdict,
  cost: bigint,
): Promise<void> {
  const { sql, now } = context
  const { blockNumber, blockHash, status } = receipt
  const write = async (tx: Queryable) => {
    await Promise.all([
      markMined(tx, hash, { blockNumber, blockHash, succeeded: status === 'success' }),
      addGasCost(tx, row.chainId, now(), cost),
      addFacilitatorCost(tx, row.id, now(), cost),
      // Of payments whose failure the mined batch's own report shows, more is said when that is concluded.
      quarantinePayers(tx, row, payersOf(verdict.failed.map(({ item }) => item))),
    ])
  }
  if (status === 'success') {
    await sql.begin(async (tx) => {
      const [, locked] = await Promise.all([requireLease(tx, lease), lockBatch(tx, row.id, row.state)])
      if (!locked) return
      await write(tx)
      await setBatchState(tx, row.id, 'mined')
    })
    return
  }
  const drops = dropsOf(verdict)
  const failure = verdict.failed[0]?.failure.code ?? 'deferred'
  await endBatch(context, row, {
    from: row.state,
    lease,
    outcome: 'reverted',
    failure,
    report: reportDrops([], drops),
    before: async (tx) => {
      await write(tx)
      await quarantinePayments(tx, paymentsOf(verdict.untried))
      await applyDrops(context, tx, row, drops)
    },
  })
}

/** What follows for the items of a batch that reverted as a whole. */
function dropsOf({ failed, spent }: Verdict): Drop[] {
  return [
    ...spent.map((item): Drop => ({ item, reason: 'nonce_used' })),
    ...failed.map(
      ({ item, failure }): Drop => ({ item, reason: 'failed', failure: { owner: 'payment', ...failure } }),
    ),
  ]
}

/** Releases what a plan leaves out, each for its reason. An item of which one half is still planned stays. */
export async function applyDrops(
  context: Context,
  tx: Queryable,
  row: { id: bigint; batchId: string } | null,
  drops: readonly Drop[],
): Promise<void> {
  const { now, settings, metrics, served, log } = context
  const network = served.network.name
  const leaving = drops.filter(({ isPartial }) => isPartial !== true)
  const by = <Reason extends Drop['reason']>(reason: Reason, among: readonly Drop[] = leaving) =>
    among.filter((drop): drop is Extract<Drop, { reason: Reason }> => drop.reason === reason)
  const later = (ms: number) => new Date(now().getTime() + ms)
  const kinds = by('payer_kind_differs')
  const ofKind = (hasCode: boolean) =>
    paymentsOf(kinds.filter((drop) => drop.hasCode === hasCode).map(itemOf))
  const used = paymentsOf(by('nonce_used').map(itemOf))

  if (row) {
    const positions = leaving.map((drop) => drop.item.position)
    await releaseItems(tx, row.id, positions)
  }
  for (const paymentId of used) await requestChainLookup(tx, paymentId, now())
  await deferPayments(tx, [...used, ...paymentsOf(by('deferred').map(itemOf))], later(deferMs))
  const paused = by('token_paused')
  if (paused.length > 0) noteTokenPaused(context)
  await deferPayments(tx, paymentsOf(paused.map(itemOf)), later(pausedTokenMs))
  await setPayerHasCode(tx, ofKind(true), true)
  await setPayerHasCode(tx, ofKind(false), false)
  for (const { item, failure } of by('failed', drops)) {
    if (item.paymentId === null) continue
    const { code, detail } = failure
    const attempts = await recordFailure(
      tx,
      { paymentId: item.paymentId, batchId: row?.id ?? null, code, detail, isFinal: false },
      { now: now(), leadMs: settings.triggers.expiryLeadMs },
    )
    metrics.attempts.inc({ network, result: code })
    log.warn({ payment: item.paymentId, batch: row?.batchId, code, attempts }, 'settlement failed')
  }
  await sweepChosen(context, tx, paymentsOf(by('already_settled').map(itemOf)))
}

function itemOf({ item }: Drop): BatchItem {
  return item
}

function paymentsOf(items: readonly BatchItem[]): string[] {
  return [...new Set(items.flatMap(({ paymentId }) => paymentId ?? []))]
}
