import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { shareChain } from './sharedChain.ts'

/** Returns this worker's shared chain, and its network as our processes see it. */
export async function shareServedChain(): Promise<{ chain: LocalChain; served: ServedNetwork }> {
  const chain = await shareChain()
  const deployment = chain.deployments[chain.network]
  if (!deployment) throw new Error('the local chain has no deployment')
  const [served] = await openServedNetworks([
    { network: networkByName(chain.network), deployment, rpcUrls: [chain.url] },
  ])
  if (!served) throw new Error('the local chain is not served')
  return { chain, served }
}
