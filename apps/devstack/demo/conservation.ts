import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { Address, PublicClient } from 'viem'

/** Who may hold USDC after the demo. All of it was minted for the buyers. */
export type Holders = {
  buyers: readonly Address[]
  /** By name. */
  providers: ReadonlyMap<string, Address>
  platform: Address
  /** Keepers that settled a tab, for a share of the platform's part. */
  keepers: readonly Address[]
  /** Splitters that were paid and haven't paid out yet. */
  splitters: readonly Address[]
}

/** Where the USDC is, in base units. */
export type Balances = {
  minted: bigint
  /** What buyers have left. */
  left: bigint
  /** By name. */
  providers: ReadonlyMap<string, bigint>
  platform: bigint
  rewards: bigint
  waiting: bigint
}

/** Reads what each of them holds, and how much USDC there is. */
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
    minted: await chain.readContract({ ...contract, functionName: 'totalSupply' }),
    left: await balancesOf(buyers),
    providers: new Map(
      await Promise.all(
        [...providers].map(async ([name, address]) => [name, await balanceOf(address)] as const),
      ),
    ),
    platform: await balanceOf(platform),
    rewards: await balancesOf(keepers),
    waiting: await balancesOf(splitters),
  }
}

/** Compares what left the buyers with what arrived, to the unit. @returns true if nothing was lost or made on the way. */
export function isConserved({ minted, left, providers, platform, rewards, waiting }: Balances): boolean {
  return minted - left === sum(providers.values()) + platform + rewards + waiting
}

export function sum(amounts: Iterable<bigint>): bigint {
  let total = 0n
  for (const amount of amounts) total += amount
  return total
}
