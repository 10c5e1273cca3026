import { type BatchRow, readWalletBatches } from '@tollkeeper/ledger/batches/batches'
import { type BatchItem, readBatchItems } from '@tollkeeper/ledger/batches/items'
import { type Lease, pauseWallet, requireLease } from '@tollkeeper/ledger/batches/leases'
import { findDueSweeps } from '@tollkeeper/ledger/batches/sweeps'
import {
  insertTransaction,
  markMined,
  markTried,
  type Offer,
  readDearestBetween,
  readTransactions,
  wasTaken,
} from '@tollkeeper/ledger/batches/transactions'
import { bookGas } from '@tollkeeper/ledger/queue/gasDraws'
import { quarantinePayers } from '@tollkeeper/ledger/queue/quarantine'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Journal, MinedVerdict, OpenBatch } from '../settler/journal.ts'
import { payersOf } from '../settler/prepare.ts'
import type { Context } from './context.ts'
import { type ItemResult, moveBatch } from './moveBatch.ts'

/** Keeps what a wallet has begun in the database: whoever holds its lease goes on from there. */
export function createPostgresJournal(context: Context, lease: Lease) {
  const { sql, settings, memory, now } = context
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
        const isFirst = row.state === 'claimed'
        const isSaved = await moveBatch(context, row, {
          from: row.state,
          to: isFirst ? 'broadcast' : null,
          lease,
          async record(tx) {
            const { chainId, address: wallet } = lease
            await insertTransaction(tx, { ...transaction, batchId: row.id, chainId, wallet })
            return drops
          },
          others: 'stay',
        })
        if (!isSaved) throw new Error(`batch ${row.batchId} is not ${row.state} any more`)
        if (isFirst) row.state = 'broadcast'
      },
      async markMined({ hash, receipt }, verdict, { cost }) {
        const { blockNumber, blockHash, status } = receipt
        const isSuccess = status === 'success'
        const refused = payersOf(verdict.failed.map(({ item }) => item))
        await moveBatch(context, row, {
          from: row.state,
          to: 'mined',
          lease,
          async record(tx) {
            await Promise.all([
              markMined(tx, hash, {
                blockNumber,
                blockHash,
                succeeded: isSuccess,
                cost,
                now: now(),
                refused,
              }),
              // If a mined batch's own report shows the failures, its conclusion says more of them.
              quarantinePayers(tx, row, refused),
              // Last, because an acceptance locks its payer before its drawer.
              bookGas(tx, row.id, { cost, isOver: isSuccess, now: now() }),
            ])
            return isSuccess ? [] : resultsOfReverted(verdict)
          },
          // Like any batch a reverted one stays `mined` until its block is final, but its payments needn't wait for that.
          others: isSuccess ? 'stay' : { failure: verdict.failed[0]?.failure.code ?? 'deferred' },
        })
        memory.mined.set(row.id, receipt)
        memory.pace.noteMined(lease.address, blockNumber)
      },
      close: ({ outcome, failure, drops = [], unlessTaken = false }) =>
        moveBatch(context, row, {
          from: row.state,
          to: { outcome },
          lease,
          record: async (tx) => (unlessTaken && (await wasTaken(tx, row.id)) ? null : drops),
          others: { failure },
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

/** Returns what became of the items of a batch that reverted as a whole. */
function resultsOfReverted({ failed, spent, untried }: MinedVerdict): ItemResult[] {
  const refused = new Set(payersOf(failed.map(({ item }) => item)))
  return [
    // An item that was skipped behind a refusal lets all others go first.
    ...untried.map((item): ItemResult => {
      return { item, reason: refused.has(item.provider.authorization.from) ? 'deferred' : 'untried' }
    }),
    ...spent.map((item): ItemResult => ({ item, reason: 'nonce_used' })),
    ...failed.map(
      ({ item, failure }): ItemResult => ({
        item,
        reason: 'failed',
        failure: { owner: 'payment', ...failure },
      }),
    ),
  ]
}
