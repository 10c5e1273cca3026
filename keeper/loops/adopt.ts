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
import { advanceBatch } from '../settler/advance.ts'
import type { Context } from './context.ts'
import { createSettlerContext, whileRenewed } from './worker.ts'

/** How long an unmined transaction that nobody can replace keeps its payments. */
const giveUpMs = 10 * 60_000

/**
 * Looks after batches of wallets whose keeper is gone and whose key isn't here: lets unsigned ones go, and sends signed ones
 * again and follows them, which needs no key.
 *
 * @param own the wallets that this keeper works with.
 */
export async function adoptAbandoned(
  context: Context,
  holder: string,
  own: readonly Address[],
): Promise<void> {
  const { sql, served, settings } = context
  // A keeper that is only slow, or restarting, comes first.
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
    // All nodes are asked about a batch, and one that doesn't answer may take longer than the lease lasts.
    await whileRenewed(acquire, settings.leaseMs, () => adopt(context, held, batch))
  }
  const onBadRow = (error: unknown, { batchId }: BatchRow) =>
    reportBadRow(context, name)('adopt', error, { wallet: address, batch: batchId })
  try {
    const batches = await readWalletBatches(sql, chainId, address)
    // A node that is down for one batch may be up for the next.
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
    log.info({ wallet: address }, 'looked after the batches of a wallet whose keeper is gone')
  }
}

async function adopt(context: Context, lease: Lease, batch: BatchRow): Promise<void> {
  const settler = createSettlerContext(context, lease, null)
  const offers = batch.state === 'claimed' ? [] : await readTransactions(context.sql, batch.id)
  const open = settler.journal.open(batch, offers)
  await advanceBatch(settler, open)
  // If it is mined after all, it settles what is left, and the other batch what it left: nothing moves twice.
  const [dearest] = open.offers
  if (dearest && dearest.ageMs < giveUpMs) return
  const outcome = dearest ? 'lost' : 'released'
  if (!(await open.close({ outcome, failure: 'deferred' }))) return
  context.log.warn(
    { batch: batch.batchId, wallet: lease.address, outcome },
    'batch of an absent keeper released',
  )
}
