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
  readOpenNonces,
  readTransactionsOf,
  wasTaken,
} from '@tollkeeper/ledger/batches/transactions'
import { bookGas } from '@tollkeeper/ledger/queue/gasDraws'
import { isolatePayers } from '@tollkeeper/ledger/queue/isolation'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Journal, MinedVerdict, OpenBatch } from '../settler/journal.ts'
import { payersOf } from '../settler/prepare.ts'
import type { Context } from './context.ts'
import { createLedgerGasControl } from './ledgerGas.ts'
import { type ItemResult, moveBatch } from './moveBatch.ts'

/** Creates a journal that stores a wallet's batches in the database. A keeper that acquires the wallet's lease continues from there. */
export function createPostgresJournal(context: Context, lease: Lease) {
  const { sql, settings, memory, now } = context
  const gas = createLedgerGasControl(context)
  const fenced = (write: (tx: Queryable) => Promise<unknown>) =>
    sql.begin(async (tx) => {
      // Both statements are sent together. Within a database transaction they run in order.
      await Promise.all([requireLease(tx, lease), write(tx)])
    })

  /** Returns the journal's view of a batch that was read already. @param offers its transactions. Default: none yet. */
  function open(row: BatchRow, offers: readonly Offer[] = []): OpenBatch {
    let items: Promise<BatchItem[]> | undefined
    return {
      batch: row,
      offers,
      ageMs: row.ageMs,
      gas,
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
        if (!isSaved) throw new Error(`batch ${row.batchId} is no longer ${row.state}`)
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
              // If the batch succeeded, `finalizeMined` later records the payments' failures in detail. Here only their payers are isolated.
              isolatePayers(tx, row, refused),
              // This comes last, so that all transactions lock in the same order: an acceptance also locks the payer before the source of its
              // gas money.
              bookGas(tx, row.id, { cost, isOver: isSuccess, now: now() }),
            ])
            return isSuccess ? [] : resultsOfReverted(verdict)
          },
          // A reverted batch also stays `mined` until its block is final, but its payments are released now.
          others: isSuccess ? 'stay' : { failure: verdict.failed[0]?.failure.code ?? 'deferred' },
        })
        memory.mined.set(row.id, receipt)
        memory.pace.noteMined(lease.address, blockNumber)
      },
      close: ({ result, failure, drops = [], unlessTaken = false }) =>
        moveBatch(context, row, {
          from: row.state,
          to: { result },
          lease,
          record: async (tx) => (unlessTaken && (await wasTaken(tx, row.id)) ? null : drops),
          others: { failure },
        }),
    }
  }

  return {
    open,
    async readOpen() {
      const rows = await readWalletBatches(sql, lease.chainId, lease.address)
      const signed = rows.flatMap(({ id, state }) => (state === 'claimed' ? [] : id))
      const offers = await readTransactionsOf(sql, signed)
      return rows.map((row) => open(row, offers.get(row.id)))
    },
    readNonces: (from) => readOpenNonces(sql, lease, from),
    readOffers: (nonces) => readDearestBetween(sql, lease, nonces),
    markTried: (hash, isTaken) => markTried(sql, lease, hash, isTaken),
    async pause(ms, reason) {
      await fenced((tx) => pauseWallet(tx, lease, new Date(now().getTime() + ms), reason))
    },
  } satisfies Journal & Record<string, unknown>
}

/** Returns the results of a batch's items if its transaction reverted. */
function resultsOfReverted({ failed, spent, untried }: MinedVerdict): ItemResult[] {
  const refused = new Set(payersOf(failed.map(({ item }) => item)))
  return [
    // An item that was skipped after another item of its payer failed is deferred, so that other payments go first.
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
