import type { Address, Hex } from 'viem'
import type { ServedNetwork } from '#keeper/chain/servedNetworks'
import { usdcAbi } from '#protocol/abi/usdc'
import { createGroupCommit } from './groupCommit.ts'

/** What a verification asks a chain for: many questions of one kind in one call. */
export type ChainReads = {
  /** USDC of each account as of a block, in order. */
  balances(accounts: Address[], blockNumber: bigint): Promise<bigint[]>
  /** Whether a nonce was used or cancelled, and the block as of which that is so. */
  useOf(authorizer: Address, nonce: Hex): Promise<{ isUsed: boolean; blockNumber: bigint }>
}

/** So many answers fit into one deployless call: its code and questions together may have 49,152 bytes (EIP-3860). */
export const maxReadsAtOnce = 100

/** Others gather while they are under way. */
const questionsInFlight = 2

/** Reads through one eth_call for many questions; the contract that asks them is part of the call, not of the chain. */
export function createChainReads({ client, token }: Pick<ServedNetwork, 'client' | 'token'>): ChainReads {
  type Use = { authorizer: Address; nonce: Hex }

  const uses = createGroupCommit({
    commit: async (asked: Use[]) => {
      const blockNumber = await client.getBlockNumber()
      const answers = await client.multicall({
        contracts: asked.map(({ authorizer, nonce }) => ({
          address: token,
          abi: usdcAbi,
          functionName: 'authorizationState' as const,
          args: [authorizer, nonce] as const,
        })),
        allowFailure: false,
        batchSize: 0,
        blockNumber,
        deployless: true,
      })
      return answers.map((isUsed) => ({ isUsed, blockNumber }))
    },
    maxItems: maxReadsAtOnce,
    concurrency: questionsInFlight,
    isItemFault: () => false,
  })

  return {
    balances: (accounts, blockNumber) =>
      client.multicall({
        contracts: accounts.map((account) => ({
          address: token,
          abi: usdcAbi,
          functionName: 'balanceOf' as const,
          args: [account] as const,
        })),
        allowFailure: false,
        batchSize: 0,
        blockNumber,
        deployless: true,
      }),
    useOf: (authorizer, nonce) => uses.submit({ authorizer, nonce }),
  }
}
