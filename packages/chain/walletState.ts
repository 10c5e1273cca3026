import type { Probe } from '@tollkeeper/runtime/health'
import type { Address } from 'viem'
import { estimateFees } from './feeEstimate.ts'
import type { Fees } from './fees.ts'
import { requireHead } from './head.ts'
import { readNonce } from './receipts.ts'
import type { ServedNetwork } from './servedNetworks.ts'

export type WalletState = {
  /** The next nonce, by the most advanced RPC. */
  nonce: number
  /** Wei. */
  balance: bigint
  fees: Fees & { baseFeePerGas: bigint }
  /** The block of this state, at which the decision reads everything else, too. */
  at: { blockNumber: bigint }
}

/**
 * All that must be known of a wallet before it signs, by one HTTP request an RPC.
 *
 * @param notBefore The index's block: a node that isn't there yet doesn't know the payments.
 * @throws {ChainUnavailable} if the node that answered is behind that.
 */
export async function readWalletState(
  { client, clients }: Pick<ServedNetwork, 'client' | 'clients'>,
  address: Address,
  settings: { priorityFeePerGas: bigint | null; maxFeePerGas: bigint },
  notBefore: bigint,
): Promise<WalletState> {
  const [nonce, balance, { blockNumber, ...fees }] = await Promise.all([
    readNonce(clients, address),
    client.getBalance({ address }),
    estimateFees(client, settings),
  ])
  return { nonce, balance, fees, at: requireHead(blockNumber, notBefore) }
}

/** Checks that at least one of the wallets can pay for gas. */
export function probeGas({ network, client }: ServedNetwork, wallets: readonly Address[]): Probe {
  return {
    name: `gas ${network.name}`,
    network: network.name,
    async ask() {
      const balances = await Promise.all(wallets.map((address) => client.getBalance({ address })))
      if (balances.every((balance) => balance === 0n)) throw new Error('every wallet is empty')
    },
  }
}
