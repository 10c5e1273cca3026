import { type BatchRow, readWalletBatches } from '@tollkeeper/ledger/batches/batches'
import {
  acquireLease,
  type Lease,
  readAbandonedWallets,
  releaseLease,
} from '@tollkeeper/ledger/batches/leases'
import { readTransactions } from '@tollkeeper/ledger/batches/transactions'
import { forEachRow, takeParts } from '@tollkeeper/runtime/stepBack'
import type { Address } from 'viem'
import { reportBadRow } from '../settings/startLoop.ts'
import { followBatches } from '../settler/advance.ts'
import type { Context } from './context.ts'
import { createSettlerContext, whileRenewed } from './worker.ts'

/** Maximum time in ms for which an unmined transaction that no one can replace keeps its payments. */
const maxAdoptionMs = 10 * 60_000

/**
 * Adopts batches of wallets whose keeper is gone and whose key this keeper doesn't have. It releases unsigned batches. It sends signed batches again
 * and follows them, which needs no key.
 *
 * @param own this keeper's wallets
 */
export async function adoptAbandoned(
  context: Context,
  holder: string,
  own: readonly Address[],
): Promise<void> {
  const { sql, served, settings } = context
  // Leaves a grace period, in which a slow or restarting keeper resumes its own wallets.
  const wallets = await readAbandonedWallets(sql, served.network.chainId, own, settings.leaseMs)
  const adoptOne = (address: Address) => adoptWallet(context, holder, address)
  const onBadRow = (error: unknown, wallet: Address) =>
    reportBadRow(context, served.network.name)('adopt', error, { wallet })
  const ask = () => sql`select 1`
  await takeParts(
    Object.fromEntries(
      wallets.map((wallet) => [wallet, () => forEachRow([wallet], adoptOne, onBadRow, { ask })]),
    ),
  )
}

async function adoptWallet(context: Context, holder: string, address: Address): Promise<void> {
  const { sql, served, settings, log } = context
  const { chainId, name } = served.network
  const acquire = () => acquireLease(sql, { chainId, address, holder, ttlMs: settings.leaseMs })
  let lease = await acquire()
  if (!lease) return
  const adoptNext = async (batch: BatchRow) => {
    lease = await acquire()
    if (lease === null) return
    const held = lease
    // Each batch is looked up at all nodes. If a node doesn't answer, the look-up may take longer than the lease lasts.
    await whileRenewed(acquire, settings.leaseMs, () => adopt(context, held, batch))
  }
  const onBadRow = (error: unknown, { batchId }: BatchRow) =>
    reportBadRow(context, name)('adopt', error, { wallet: address, batch: batchId })
  try {
    const batches = await readWalletBatches(sql, chainId, address)
    // If a batch can't be adopted, the next batches are tried anyway, because an unavailable node may be available again by then.
    await takeParts(
      Object.fromEntries(
        batches.map((batch) => [
          batch.batchId,
          () => forEachRow([batch], adoptNext, onBadRow, { ask: () => sql`select 1` }),
        ]),
      ),
    )
  } finally {
    if (lease !== null) await releaseLease(sql, lease)
    log.info({ wallet: address }, 'processed the batches of a wallet whose keeper is gone')
  }
}

async function adopt(context: Context, lease: Lease, batch: BatchRow): Promise<void> {
  const settler = createSettlerContext(context, lease, null)
  const offers = batch.state === 'claimed' ? [] : await readTransactions(context.sql, batch.id)
  const open = settler.journal.open(batch, offers)
  await followBatches(settler, [open])
  // The transaction may still be mined after this batch is closed and its payments are in another batch. Even then no money moves twice, because each
  // authorization can be used only once.
  const [dearest] = open.offers
  if (dearest && dearest.ageMs < maxAdoptionMs) return
  const result = dearest ? 'lost' : 'released'
  if (!(await open.close({ result, failure: 'deferred' }))) return
  context.log.warn(
    { batch: batch.batchId, wallet: lease.address, result },
    'released a batch whose keeper is gone',
  )
}
