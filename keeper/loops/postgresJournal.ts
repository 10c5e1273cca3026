import type { Mined } from '@tollkeeper/chain/receipts'
import {
  type BatchRow,
  lockBatch,
  readWalletBatches,
  setBatchState,
} from '@tollkeeper/ledger/batches/batches'
import { type BatchItem, readBatchItems } from '@tollkeeper/ledger/batches/items'
import { type Lease, pauseWallet, requireLease } from '@tollkeeper/ledger/batches/leases'
import { findDueSweeps } from '@tollkeeper/ledger/batches/sweeps'
import {
  insertTransaction,
  markDropped,
  markMined,
  markTried,
  type Offer,
  readDearestBetween,
  readTransactions,
  wasTaken,
} from '@tollkeeper/ledger/batches/transactions'
import { bookGas } from '@tollkeeper/ledger/queue/gasDraws'
import { quarantinePayers } from '@tollkeeper/ledger/queue/quarantine'
import { quarantinePayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Journal, OpenBatch, Verdict } from '../settler/journal.ts'
import type { Drop } from '../settler/plan.ts'
import { payersOf } from '../settler/prepare.ts'
import type { Context } from './context.ts'
import { applyDrops, paymentsOf } from './drops.ts'
import { endBatch, letGo } from './endBatch.ts'

/** Keeps what a wallet has begun in the database: whoever holds its lease goes on from there. */
export function createPostgresJournal(context: Context, lease: Lease) {
  const { sql, settings, now } = context
  const fenced = (write: (tx: Queryable) => Promise<unknown>) =>
    sql.begin(async (tx) => {
      // Sent together: within a database transaction the answers come in order.
      await Promise.all([requireLease(tx, lease), write(tx)])
    })

  /** A batch that was read already. @param offers default: none yet. */
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
      readSweeps: (items, most) =>
        findDueSweeps(sql, row, { trigger: row.trigger, items }, most, settings.triggers, now()),
      async save(transaction, drops) {
        await sql.begin(async (tx) => {
          const [, locked] = await Promise.all([requireLease(tx, lease), lockBatch(tx, row.id, row.state)])
          if (!locked) throw new Error(`batch ${row.batchId} is not ${row.state} any more`)
          await applyDrops(context, tx, row, drops)
          if (row.state === 'claimed' && drops.length > 0) await markDropped(tx, row.id)
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
      markMined: (mined, verdict, { cost }) => saveMined(context, lease, row, mined, verdict, cost),
      close: ({ outcome, failure, drops = [], unlessTaken = false }) =>
        endBatch(context, row, {
          from: row.state,
          lease,
          outcome,
          unsettled: { failure, drops },
          before: async (tx) => !(unlessTaken && (await wasTaken(tx, row.id))),
        }),
    }
  }

  return {
    open,
    async readOpen() {
      const [row] = await readWalletBatches(sql, lease.chainId, lease.address)
      return row ? open(row, row.state === 'claimed' ? [] : await readTransactions(sql, row.id)) : null
    },
    readOffers: (nonces) => readDearestBetween(sql, lease, nonces),
    markTried: (hash, isTaken) => markTried(sql, lease, hash, isTaken),
    async pause(ms, reason) {
      await fenced((tx) => pauseWallet(tx, lease, new Date(now().getTime() + ms), reason))
    },
  } satisfies Journal & Record<string, unknown>
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
  const isSuccess = status === 'success'
  await sql.begin(async (tx) => {
    const [, locked] = await Promise.all([requireLease(tx, lease), lockBatch(tx, row.id, row.state)])
    if (!locked) return
    const refused = payersOf(verdict.failed.map(({ item }) => item))
    await Promise.all([
      markMined(tx, hash, { blockNumber, blockHash, succeeded: isSuccess, cost, now: now(), refused }),
      // If a mined batch's own report shows the failures, its conclusion says more of them.
      quarantinePayers(tx, row, refused),
      // Last, because an acceptance locks its payer before its drawer.
      bookGas(tx, row.id, { cost, isOver: isSuccess, now: now() }),
    ])
    // Like any batch it stays `mined` until its block is final, but its payments needn't wait for that.
    if (!isSuccess) await letGoOfReverted(context, tx, row, verdict)
    await setBatchState(tx, row.id, 'mined')
  })
  context.memory.mined.set(row.id, receipt)
  context.memory.pace.noteMined(lease.address, blockNumber)
}

async function letGoOfReverted(
  context: Context,
  tx: Queryable,
  row: BatchRow,
  verdict: Verdict,
): Promise<void> {
  const drops = dropsOf(verdict)
  const skipped = drops.flatMap(({ item, reason }) => (reason === 'deferred' ? item : []))
  const untried = verdict.untried.filter((item) => !skipped.includes(item))
  await quarantinePayments(tx, paymentsOf(untried), row.id)
  await letGo(context, tx, row, { failure: verdict.failed[0]?.failure.code ?? 'deferred', drops })
}

/** What follows for the items of a batch that reverted as a whole. */
function dropsOf({ failed, spent, untried }: Verdict): Drop[] {
  const refused = new Set(payersOf(failed.map(({ item }) => item)))
  return [
    // An item that was skipped behind a refusal lets all others go first.
    ...untried.flatMap((item): Drop[] =>
      refused.has(item.provider.authorization.from) ? [{ item, reason: 'deferred' }] : [],
    ),
    ...spent.map((item): Drop => ({ item, reason: 'nonce_used' })),
    ...failed.map(
      ({ item, failure }): Drop => ({ item, reason: 'failed', failure: { owner: 'payment', ...failure } }),
    ),
  ]
}
