import { ChainUnavailable } from '@tollkeeper/runtime/dependencies'
import type { Probe } from '@tollkeeper/runtime/health'
import type { PublicClient } from 'viem'
import type { ServedNetwork } from './servedNetworks.ts'

/** Where a call reads the chain. */
export type At = { blockNumber: bigint } | { blockTag: 'latest' }

/**
 * The block at which a decision reads all that it depends on. Behind an RPC URL stand many nodes: asked for `latest`
 * twice, they answer for two blocks, and the difference would look like somebody's fault.
 *
 * @param notBefore The index's block: a node that isn't there yet doesn't know the payments.
 * @throws {ChainUnavailable} if the node that answered is behind that.
 */
export async function pinBlock(client: PublicClient, notBefore: bigint): Promise<{ blockNumber: bigint }> {
  return requireHead(await client.getBlockNumber({ cacheTime: 0 }), notBefore)
}

/** The same check for a head that another call has read. */
export function requireHead(blockNumber: bigint, notBefore: bigint): { blockNumber: bigint } {
  if (blockNumber < notBefore) {
    throw new ChainUnavailable(
      `the RPC answers of block ${blockNumber}, the index is at ${notBefore} already`,
    )
  }
  return { blockNumber }
}

const standsStillMs = 60_000

/** Checks that a network's node answers and its head moves. */
export function probeHead({ network, client }: ServedNetwork): Probe {
  let seen = { block: -1n, at: 0 }
  return {
    name: `rpc ${network.name}`,
    network: network.name,
    async ask() {
      const block = await client.getBlockNumber({ cacheTime: 0 })
      const at = performance.now()
      if (block !== seen.block) seen = { block, at }
      // A development chain rests while nobody sends anything.
      else if (network.name !== 'localhost' && at - seen.at > standsStillMs) {
        throw new Error(`no new block for ${Math.floor((at - seen.at) / 1000)} s`)
      }
    },
  }
}
