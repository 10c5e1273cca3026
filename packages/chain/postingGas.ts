import { isUnreachable } from '@tollkeeper/runtime/dependencies'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { type Address, type Hex, type PublicClient, parseAbi } from 'viem'

// Arbitrum charges for a transaction's data on L1 as gas. Its nodes add enough units to the transaction's own gas to pay for the
// data at L2's gas price. eth_call doesn't include these units. So a transaction whose gas limit covers only the execution fails
// with "intrinsic gas too low", or runs out of gas.

/**
 * Address of Arbitrum's NodeInterface. Nodes implement it for eth_call; there is no code at the address (see Arbitrum's docs,
 * NodeInterface).
 */
export const nodeInterface = '0x00000000000000000000000000000000000000c8'
const nodeInterfaceAbi = parseAbi([
  'function gasEstimateL1Component(address to, bool contractCreation, bytes data) view returns (uint64 gasEstimateForL1, uint256 baseFee, uint256 l1BaseFeeEstimate)',
])

/**
 * A gas limit includes the estimated units times this factor. The number of units follows L1's price, and also increases if L2's price
 * falls between the estimate and the block. Unused gas isn't paid for, so a high factor costs nothing.
 */
const room = 2n

type Posted = { to: Address; data: Hex }

/** Reads the gas units that Arbitrum currently adds for a transaction's data, and L2's price of a unit in wei. */
export async function readPostingGas(
  client: PublicClient,
  { to, data }: Posted,
): Promise<{ gas: bigint; baseFeePerGas: bigint }> {
  const [gas, baseFeePerGas] = await client
    .readContract({
      address: nodeInterface,
      abi: nodeInterfaceAbi,
      functionName: 'gasEstimateL1Component',
      args: [to, false, data],
    })
    .catch((error: unknown) => {
      if (isUnreachable(error)) throw error
      throw new Error("the node has no Arbitrum NodeInterface: check the network's gasModel", {
        cause: error,
      })
    })
  return { gas, baseFeePerGas }
}

/** Returns the gas that a transaction's limit needs in addition to its execution: 0, except on Arbitrum. */
export async function postingGasLimit(
  { client, network }: { client: PublicClient; network: Pick<Network, 'gasModel'> },
  posted: Posted,
): Promise<bigint> {
  if (network.gasModel !== 'arbitrum') return 0n
  const { gas } = await readPostingGas(client, posted)
  return room * gas
}
