import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import { type Address, type Hex, zeroHash } from 'viem'
import { payerReadsAbi, payerReadsCode } from './generated/payerReads.ts'
import type { ServedNetwork } from './servedNetworks.ts'

/** The state of a payer as of one block. */
export type PayerState = {
  blockNumber: bigint
  /** Its USDC, base units. */
  balance: bigint
  /** Whether it has code: a contract wallet, or an EIP-7702 delegation. */
  hasCode: boolean
  /** Whether USDC has blacklisted it: it can't pay anybody. */
  isBlacklisted: boolean
  /** Whether USDC is paused: nobody can pay anybody. */
  isPaused: boolean
  /** For each nonce of the question, whether it was used or cancelled. */
  isUsed: [boolean, boolean]
}

export type PayerQuestion = {
  payer: Address
  /** The nonces to look up. Default: none, and `isUsed` means nothing. */
  nonces?: readonly [Hex, Hex?]
}

/** Reads of the chain for verifications. Questions that gather while a call is under way share the next one. */
export type ChainReads = {
  read(question: PayerQuestion): Promise<PayerState>
  /** Answers questions for one decision, all of them as of one block. */
  readTogether(questions: readonly PayerQuestion[]): Promise<PayerState[]>
}

/** Most questions a call: an answer takes 160 bytes, and all of them count as a contract's code of at most 24,576 (EIP-170). */
const maxQuestions = 150

const noNonces: readonly [Hex, Hex?] = [zeroHash]

/** How many calls are under way at a time; further questions gather meanwhile. */
const callsInFlight = 2

/** Asks through a contract that travels in the call (contracts/PayerReads.sol) instead of being deployed. */
export function createChainReads({ client, token }: Pick<ServedNetwork, 'client' | 'token'>): ChainReads {
  async function ask(questions: readonly PayerQuestion[], blockNumber: bigint): Promise<PayerState[]> {
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

  const calls = createGroupCommit<PayerQuestion, PayerState>({
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
