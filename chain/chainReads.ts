import { type Address, type Hex, zeroHash } from 'viem'
import { createGroupCommit } from '#process/groupCommit'
import { payerReadsAbi, payerReadsCode } from './generated/payerReads.ts'
import type { ServedNetwork } from './servedNetworks.ts'

/** What the chain says of a payer, as of one block. */
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
  /** Whether each nonce that was asked about was used or cancelled. */
  isUsed: [boolean, boolean]
}

export type PayerQuestion = {
  payer: Address
  /** Whose use to look up. Default: none, and `isUsed` means nothing. */
  nonces?: readonly [Hex, Hex?]
}

/** What verifications ask a chain for: everything that was asked in the meantime goes into one call. */
export type ChainReads = {
  read(question: PayerQuestion): Promise<PayerState>
  /** The same for what one decision depends on: all of it as of one block. */
  readTogether(questions: readonly PayerQuestion[]): Promise<PayerState[]>
}

/** Most questions a call: the answer, of 160 bytes each, counts as a contract's code, which may have 24,576 (EIP-170). */
const maxQuestions = 150

const noNonces: readonly [Hex, Hex?] = [zeroHash]

/** How many calls are under way at once; further questions gather meanwhile. */
const callsInFlight = 2

/** Asks through a contract that is part of the call (contracts/PayerReads.sol) and not on the chain. */
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
      ...{ blockNumber, balance, hasCode, isBlacklisted, isPaused },
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
