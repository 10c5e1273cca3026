import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import { type Address, type Hex, zeroHash } from 'viem'
import { payerReadsAbi, payerReadsCode } from './generated/payerReads.ts'
import type { ServedNetwork } from './servedNetworks.ts'

/** The state of a payer at one block. */
export type PayerState = {
  blockNumber: bigint
  /** The payer's USDC balance in base units. */
  balance: bigint
  /** Whether the payer's address has code: a contract wallet, or an EIP-7702 delegation. */
  hasCode: boolean
  /** Whether USDC has blacklisted the payer, who then can't pay. */
  isBlacklisted: boolean
  /** Whether USDC is paused, so that no one can pay. */
  isPaused: boolean
  /** For each requested nonce, whether it was used or cancelled, in the requested order. */
  isUsed: [boolean, boolean]
}

export type PayerOptions = {
  payer: Address
  /** Nonces to look up. Default: none; `isUsed` is then meaningless. */
  nonces?: readonly [Hex, Hex?]
}

/** Reads the chain for verifications. Requests that arrive while a call is in progress share the next call. */
export type ChainReads = {
  read(question: PayerOptions): Promise<PayerState>
  /** Reads everything that one decision needs, all at the same block. */
  readTogether(questions: readonly PayerOptions[]): Promise<PayerState[]>
}

/**
 * Maximum number of requests per call. Each result takes 160 bytes, and the node treats all results together as a contract's
 * code, which is limited to 24,576 bytes (EIP-170).
 */
const maxQuestions = 150

const noNonces: readonly [Hex, Hex?] = [zeroHash]

/** Maximum number of concurrent calls. Further requests wait and share the next call. */
const callsInFlight = 2

/** Reads through a contract that isn't deployed: its code is sent with the call (contracts/PayerReads.sol). */
export function createChainReads({ client, token }: Pick<ServedNetwork, 'client' | 'token'>): ChainReads {
  async function ask(questions: readonly PayerOptions[], blockNumber: bigint): Promise<PayerState[]> {
    const [isPaused, states] = await client.readContract({
      code: payerReadsCode,
      abi: payerReadsAbi,
      functionName: 'read',
      args: [
        token,
        questions.map(({ payer, nonces = noNonces }) => ({
          account: payer,
          nonce: nonces[0],
          feeNonce: nonces[1] ?? nonces[0],
        })),
      ],
      blockNumber,
    })
    return states.map(({ balance, hasCode, isBlacklisted, isNonceUsed, isFeeNonceUsed }) => ({
      blockNumber,
      balance,
      hasCode,
      isBlacklisted,
      isPaused,
      isUsed: [isNonceUsed, isFeeNonceUsed],
    }))
  }

  const calls = createGroupCommit<PayerOptions, PayerState>({
    commit: async (questions) => ask(questions, await client.getBlockNumber()),
    maxItems: maxQuestions,
    concurrency: callsInFlight,
    isItemFault: () => false,
  })
  return {
    read: (question) => calls.submit(question),
    async readTogether(questions) {
      const [only, ...others] = questions
      if (only && others.length === 0) return [await calls.submit(only)]
      const blockNumber = await client.getBlockNumber({ cacheTime: 0 })
      const groups = Array.from({ length: Math.ceil(questions.length / maxQuestions) }, (_, group) =>
        questions.slice(group * maxQuestions, (group + 1) * maxQuestions),
      )
      return (await Promise.all(groups.map((group) => ask(group, blockNumber)))).flat()
    },
  }
}
