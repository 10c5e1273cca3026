import { ChainUnavailable } from '@tollkeeper/runtime/dependencies'
import type { Probe } from '@tollkeeper/runtime/health'
import type { PublicClient } from 'viem'
import type { ServedNetwork } from './servedNetworks.ts'

/** The block at which a call reads the chain. */
export type At = { blockNumber: bigint } | { blockTag: 'latest' }

/**
 * Returns the block at which a decision reads everything that it depends on. An RPC URL may lead to many nodes, so two requests
 * for `latest` may read different blocks. A difference between these blocks could then look like the payer's fault.
 *
 * @param notBefore the index's block. A node that hasn't reached this block doesn't know all payments that the index has recorded.
 * @throws {ChainUnavailable} if the node that responded is behind that block.
 */
export async function pinBlock(client: PublicClient, notBefore: bigint): Promise<{ blockNumber: bigint }> {
  return requireHead(await client.getBlockNumber({ cacheTime: 0 }), notBefore)
}

/** Checks a head that another call has read, with the same rule as {@link pinBlock}. */
export function requireHead(blockNumber: bigint, notBefore: bigint): { blockNumber: bigint } {
  if (blockNumber < notBefore) {
    throw new ChainUnavailable(`the RPC is at block ${blockNumber}, but the index is already at ${notBefore}`)
  }
  return { blockNumber }
}

const standsStillMs = 60_000

/** Checks that a network's node responds and that its head advances. */
export function probeHead({ network, client }: ServedNetwork): Probe {
  let seen = { block: -1n, at: 0 }
  return {
    name: `rpc ${network.name}`,
    network: network.name,
    async ask() {
      const block = await client.getBlockNumber({ cacheTime: 0 })
      const at = performance.now()
      if (block !== seen.block) seen = { block, at }
      // A development chain doesn't advance while no one sends transactions.
      else if (network.name !== 'localhost' && at - seen.at > standsStillMs) {
        throw new Error(`no new block for ${Math.floor((at - seen.at) / 1000)} s`)
      }
    },
  }
}
