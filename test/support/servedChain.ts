import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { shareChain } from './sharedChain.ts'

/** This worker's shared chain, and the network that it plays as our processes see it. */
export async function shareServedChain(): Promise<{ chain: LocalChain; served: ServedNetwork }> {
  const chain = await shareChain()
  const deployment = chain.deployments[chain.network]
  if (!deployment) throw new Error('the local chain has no deployment')
  const [served] = await openServedNetworks([
    { network: networks[chain.network], deployment, rpcUrls: [chain.url] },
  ])
  if (!served) throw new Error('the local chain is not served')
  return { chain, served }
}
