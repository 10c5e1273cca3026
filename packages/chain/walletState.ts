import type { Probe } from '@tollkeeper/runtime/health'
import type { Address } from 'viem'
import { estimateFees } from './feeEstimate.ts'
import type { Fees } from './fees.ts'
import { requireHead } from './head.ts'
import { readNonce } from './receipts.ts'
import type { ServedNetwork } from './servedNetworks.ts'

export type WalletState = {
  /** The next nonce, according to the most advanced RPC. */
  nonce: number
  /** Wei. */
  balance: bigint
  fees: Fees & { baseFeePerGas: bigint }
  /** The block at which this state was read. The decision reads everything else at the same block. */
  at: { blockNumber: bigint }
}

/**
 * Reads everything that a keeper must know about a wallet before it signs, with one HTTP request per RPC.
 *
 * @param notBefore the index's block. A node that hasn't reached this block doesn't know all payments that the index has recorded.
 * @throws {ChainUnavailable} if the node that responded is behind that block.
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
