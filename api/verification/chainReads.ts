import type { Address, Hex } from 'viem'
import type { ServedNetwork } from '#keeper/chain/servedNetworks'
import { usdcAbi } from '#protocol/abi/usdc'
import { createCache } from '../cache.ts'
import { createGroupCommit } from './groupCommit.ts'

/** What a verification asks a chain for: many questions of one kind in one call. */
export type ChainReads = {
  /** Whether the account has code: a contract wallet, or an EIP-7702 delegation. */
  hasCode(account: Address): Promise<boolean>
  /** USDC of each account as of a block, in order. */
  balances(accounts: Address[], blockNumber: bigint): Promise<bigint[]>
  /** Whether a nonce was used or cancelled, and the block as of which that is so. */
  useOf(authorizer: Address, nonce: Hex): Promise<{ isUsed: boolean; blockNumber: bigint }>
}

/** So many answers fit into one deployless call: its code and questions together may have 49,152 bytes (EIP-3860). */
export const maxReadsAtOnce = 100

/** A nonce that is unused may be so as of a block of so long ago: any use since then is later than the acceptance. */
const headAgeMs = 100

/** Others gather while they are under way. */
const questionsInFlight = 2

/** Reads through one eth_call for many questions; the contract that asks them is part of the call, not of the chain. */
export function createChainReads({ client, token }: Pick<ServedNetwork, 'client' | 'token'>): ChainReads {
  const head = createCache<'head', bigint>({
    load: () => client.getBlockNumber(),
    ttlMs: headAgeMs,
    max: 1,
    // The machine's clock may be set back; this one isn't.
    now: () => performance.now(),
  })

  type Use = { authorizer: Address; nonce: Hex }

  const uses = createGroupCommit({
    commit: async (asked: Use[]) => {
      const asOf = await head.get('head')
      const answers = await client.multicall({
        contracts: asked.map(({ authorizer, nonce }) => ({
          address: token,
          abi: usdcAbi,
          functionName: 'authorizationState' as const,
          args: [authorizer, nonce] as const,
        })),
        allowFailure: false,
        batchSize: 0,
        blockNumber: asOf,
        deployless: true,
      })
      return answers.map((isUsed) => ({ isUsed, blockNumber: asOf }))
    },
    maxItems: maxReadsAtOnce,
    concurrency: questionsInFlight,
    isItemFault: () => false,
  })

  // There is no one call for this; those of one turn travel as one HTTP request.
  const codes = createGroupCommit({
    commit: (accounts: Address[]) =>
      Promise.all(accounts.map(async (address) => (await client.getCode({ address })) !== undefined)),
    maxItems: maxReadsAtOnce,
    concurrency: questionsInFlight,
    isItemFault: () => false,
  })

  return {
    hasCode: codes.submit,
    balances: (accounts, asOf) =>
      client.multicall({
        contracts: accounts.map((account) => ({
          address: token,
          abi: usdcAbi,
          functionName: 'balanceOf' as const,
          args: [account] as const,
        })),
        allowFailure: false,
        batchSize: 0,
        blockNumber: asOf,
        deployless: true,
      }),
    useOf: (authorizer, nonce) => uses.submit({ authorizer, nonce }),
  }
}
