import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { Address, PublicClient } from 'viem'

/** The wallets and contracts that may hold USDC after the demo. All of it was minted for the buyers. */
export type Holders = {
  buyers: readonly Address[]
  /** Providers' wallets by name. */
  providers: ReadonlyMap<string, Address>
  platform: Address
  /** Keepers that settled a tab and received a share of the platform's part. */
  keepers: readonly Address[]
  /** Splitters that received payments and haven't been swept yet. */
  splitters: readonly Address[]
}

/** The balances of all kinds of holders, and the total supply, in USDC base units. */
export type Balances = {
  supply: bigint
  buyers: bigint
  /** Providers' balances by name. */
  providers: ReadonlyMap<string, bigint>
  platform: bigint
  keepers: bigint
  splitters: bigint
}

/** Reads the holders' balances, and the total supply. */
export async function readBalances(
  chain: PublicClient,
  usdc: Address,
  { buyers, providers, platform, keepers, splitters }: Holders,
): Promise<Balances> {
  const contract = { address: usdc, abi: usdcAbi } as const
  const balanceOf = (owner: Address) =>
    chain.readContract({ ...contract, functionName: 'balanceOf', args: [owner] })
  const balancesOf = async (owners: readonly Address[]) =>
    sum(await Promise.all([...new Set(owners)].map(balanceOf)))
  return {
    supply: await chain.readContract({ ...contract, functionName: 'totalSupply' }),
    buyers: await balancesOf(buyers),
    providers: new Map(
      await Promise.all(
        [...providers].map(async ([name, address]) => [name, await balanceOf(address)] as const),
      ),
    ),
    platform: await balanceOf(platform),
    keepers: await balancesOf(keepers),
    splitters: await balancesOf(splitters),
  }
}

/** Whether exactly the amount that left the buyers has arrived at the other holders. */
export function isConserved(balances: Balances): boolean {
  const { providers, platform, keepers, splitters } = balances
  return spentOf(balances) === sum(providers.values()) + platform + keepers + splitters
}

/** Returns the amount that left the buyers, in USDC base units. */
export function spentOf({ supply, buyers }: Balances): bigint {
  return supply - buyers
}

export function sum(amounts: Iterable<bigint>): bigint {
  let total = 0n
  for (const amount of amounts) total += amount
  return total
}
