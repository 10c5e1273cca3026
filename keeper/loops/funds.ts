import type { Address } from 'viem'
import type { BroadcastResult } from '#chain/broadcast'
import type { Fees } from '#chain/fees'
import type { BatchRow } from '#ledger/batches'
import { type Lease, pauseWallet } from '#ledger/leases'
import { wasTaken } from '#ledger/transactions'
import type { Context } from './context.ts'
import { endBatch } from './endBatch.ts'

/** How long a wallet without gas money waits before it looks at its balance again. */
const emptyWalletPauseMs = 15_000

/** What a wallet lacks of what nodes ask for before they take a transaction; null: nothing. In wei. */
export async function findMissingFunds(
  { served, metrics }: Context,
  address: Address,
  gas: bigint,
  fees: Fees,
): Promise<{ balance: bigint; needed: bigint } | null> {
  const balance = await served.client.getBalance({ address })
  metrics.walletBalance.set(
    { network: served.network.name, wallet: address },
    Number(balance / 10n ** 9n) / 1e9,
  )
  // On an OP-stack chain the data's fee comes on top; where that is what lacks, the nodes refuse it and it is let go then.
  const needed = gas * fees.maxFeePerGas
  return balance < needed ? { balance, needed } : null
}

/** Every node refuses it for want of gas money: the balance went between the look at it and the broadcast. */
export function isUnfunded(result: BroadcastResult | null): boolean {
  return result?.status === 'rejected' && result.code === 'insufficient_gas_funds'
}

/**
 * Pauses a wallet that can't pay for its batch, and lets go of the batch, for a wallet that can. No payment's attempt is
 * spent. What a node has taken already stays: it may be mined as soon as there is money.
 *
 * @returns whether the batch was let go.
 */
export async function releaseUnfunded(
  context: Context,
  lease: Lease,
  batch: BatchRow,
  missing: { balance: bigint; needed: bigint } | null,
): Promise<boolean> {
  const { now, log } = context
  const until = new Date(now().getTime() + emptyWalletPauseMs)
  const isReleased = await endBatch(context, batch, {
    from: batch.state,
    lease,
    outcome: 'released',
    failure: 'insufficient_gas_funds',
    before: async (tx) => {
      await pauseWallet(tx, lease, until, 'insufficient_gas_funds')
      return !(await wasTaken(tx, batch.id))
    },
  })
  const details = missing && { balance: `${missing.balance}`, needed: `${missing.needed}` }
  log.error(
    { wallet: lease.address, batch: batch.batchId, isReleased, ...details },
    'the wallet is out of gas money: paused',
  )
  return isReleased
}
