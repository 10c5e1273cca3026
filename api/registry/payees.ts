import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createTabProbe } from '@tollkeeper/chain/tabProbe'
import { createCache } from '@tollkeeper/runtime/cache'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { type Address, zeroAddress } from 'viem'
import { Refusal } from '../http/refusal.ts'

/** Checks which addresses can be paid on one network. */
export type Payees = {
  /** @throws {Refusal} `payee_refused`, with the reason. */
  requirePayable(address: Address): Promise<void>
  /** Returns whether USDC has blacklisted an address; the answer is cached. @throws if the network's node doesn't answer. */
  isBlacklisted(address: Address): Promise<boolean>
  /** Returns whether USDC would pay the TabSettlement contract; if not, tabs are neither offered nor accepted. */
  takesTabs(): boolean | Promise<boolean>
}

const blacklistTtlMs = 60_000
/** Cache time of the answer, because an upgrade of USDC may change it. */
const tabsTtlMs = 60_000

export function createPayees(served: ServedNetwork, platformWallet: Address, now: () => number): Payees {
  const { client, deployment, token, network } = served

  const reasons = new Map<Address, string>([
    [zeroAddress, 'it is the zero address'],
    [token, 'it is the USDC contract'],
    [deployment.batchSettlement.toLowerCase() as Address, 'it is the BatchSettlement contract'],
    [deployment.splitterFactory, 'it is the SplitterFactory contract'],
    [deployment.tabSettlement, 'it is the TabSettlement contract'],
    [platformWallet, "it is the platform's own wallet"],
  ])

  const blacklisted = createCache<Address, boolean>({
    load: (address) =>
      client.readContract({ address: token, abi: usdcAbi, functionName: 'isBlacklisted', args: [address] }),
    ttlMs: blacklistTtlMs,
    refreshAfterMs: blacklistTtlMs / 2,
    max: 50_000,
    now,
  })

  const probeTabs = createTabProbe(served)
  const tabs = createCache<'tabs', boolean>({
    load: () => probeTabs(),
    ttlMs: tabsTtlMs,
    refreshAfterMs: tabsTtlMs / 2,
    max: 1,
    now,
  })

  return {
    isBlacklisted: async (address) => blacklisted.get(address),
    takesTabs: () => tabs.get('tabs'),
    async requirePayable(address) {
      const reason =
        reasons.get(address) ?? ((await blacklisted.get(address)) ? 'USDC has blacklisted it' : undefined)
      if (reason === undefined) return
      throw new Refusal('payee_refused', `${address} cannot be paid on ${network.name}: ${reason}`, {
        details: { network: network.name, address },
      })
    },
  }
}
