import { keccak256 } from 'viem'
import type { Fees } from '#chain/fees'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { SettlementWallet } from '../loops/context.ts'
import type { SignedTransaction } from './journal.ts'
import type { Plan } from './plan.ts'

/** What a transaction that only uses a nonce up takes. */
export const cancellationGas = 21_000n

/**
 * Signs a plan; the hash is known from here on, before anybody else has seen the bytes.
 *
 * @param plan null: a cancellation, an empty transaction to oneself.
 */
export async function signPlan(
  served: ServedNetwork,
  wallet: SettlementWallet,
  plan: Pick<Plan, 'calldata' | 'gas'> | null,
  nonce: number,
  { maxFeePerGas, maxPriorityFeePerGas }: Fees,
  kind: SignedTransaction['kind'],
): Promise<SignedTransaction> {
  const gas = plan?.gas ?? cancellationGas
  const raw = await wallet.sign({
    chainId: served.network.chainId,
    to: plan ? served.deployment.batchSettlement : wallet.address,
    data: plan?.calldata ?? '0x',
    nonce,
    gas,
    maxFeePerGas,
    maxPriorityFeePerGas,
  })
  return { hash: keccak256(raw), nonce, kind, raw, gas, maxFeePerGas, maxPriorityFeePerGas }
}
