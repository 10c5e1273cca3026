import { type Address, concatHex, type Hex, numberToHex, padHex, toFunctionSelector } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import { createCache } from '#process/cache'
import { createGroupCommit } from './groupCommit.ts'

/** An account as of a block. */
export type ChainAccount = {
  /** Its USDC, base units. */
  balance: bigint
  /** Whether it has code: a contract wallet, or an EIP-7702 delegation. */
  hasCode: boolean
}

/** What a verification asks a chain for: many questions of one kind in one call. */
export type ChainReads = {
  /** Each account, in order. At most {@link maxReadsAtOnce}. */
  accounts(addresses: Address[], blockNumber: bigint): Promise<ChainAccount[]>
  /** Whether a nonce was used or cancelled, and the block as of which that is so. */
  useOf(authorizer: Address, nonce: Hex): Promise<{ isUsed: boolean; blockNumber: bigint }>
}

/** Each takes up to 68 bytes of the 49,152 that code may have (EIP-3860), and 64 of the 24,576 that it may return (EIP-170). */
export const maxReadsAtOnce = 200

/** A nonce that is unused may be so as of a block of so long ago: any use since then is later than the acceptance. */
const headAgeMs = 100

/** Others gather while they are under way. */
const questionsInFlight = 2

const balanceOf = toFunctionSelector('function balanceOf(address)')
const authorizationState = toFunctionSelector('function authorizationState(address,bytes32)')

/** Reads through one eth_call for many questions; the program that asks them is part of the call, not of the chain. */
export function createChainReads({ client, token }: Pick<ServedNetwork, 'client' | 'token'>): ChainReads {
  const head = createCache<'head', bigint>({
    load: () => client.getBlockNumber(),
    ttlMs: headAgeMs,
    max: 1,
    // The machine's clock may be set back; this one isn't.
    now: () => performance.now(),
  })

  /** For each question, the token's answer and the size of the code of its first argument. */
  async function ask(questions: Hex[], blockNumber: bigint): Promise<{ word: bigint; codeSize: bigint }[]> {
    const { data = '0x' } = await client.call({ data: askProgram(token, questions), blockNumber })
    if (data.length !== 2 + questions.length * 128)
      throw new Error('The chain gave no answer for each question')
    return questions.map((_, index) => {
      const at = 2 + index * 128
      return {
        word: BigInt(`0x${data.slice(at, at + 64)}`),
        codeSize: BigInt(`0x${data.slice(at + 64, at + 128)}`),
      }
    })
  }

  type Use = { authorizer: Address; nonce: Hex }

  const uses = createGroupCommit({
    commit: async (asked: Use[]) => {
      const asOf = await head.get('head')
      const answers = await ask(
        asked.map(({ authorizer, nonce }) => concatHex([authorizationState, padHex(authorizer), nonce])),
        asOf,
      )
      return answers.map(({ word }) => ({ isUsed: word !== 0n, blockNumber: asOf }))
    },
    maxItems: maxReadsAtOnce,
    concurrency: questionsInFlight,
    isItemFault: () => false,
  })

  return {
    async accounts(addresses, asOf) {
      const answers = await ask(
        addresses.map((address) => concatHex([balanceOf, padHex(address)])),
        asOf,
      )
      return answers.map(({ word, codeSize }) => ({ balance: word, hasCode: codeSize !== 0n }))
    },
    useOf: (authorizer, nonce) => uses.submit({ authorizer, nonce }),
  }
}

/**
 * A program to be run as a contract's creation code, which leaves nothing behind: puts each question to the token and
 * returns two words for it, the answer and the size of the code at the address in its first argument. Reverts if the
 * token does. A tenth of the work of Multicall3's, for the node and for us.
 *
 * @param questions call data of one length, from 36 to 95 bytes.
 */
function askProgram(token: Address, questions: Hex[]): Hex {
  const length = numberToHex(((questions[0]?.length ?? 2) - 2) / 2, { size: 1 }).slice(2)
  // Answers begin at 60 in memory, behind a question. Each line's comment ends with the stack, its top last.
  const program = [
    '6014 6051 600c 39  6000 51 6060 6065', // the token from behind the program; token out p
    '5b 8038111560 48 57', //                  0e: is p at the code's end? go to 48
    `60${length} 81 6000 39`, //               the question to memory 0
    `6020 82 60${length} 6000 86 5a fa`, //    ask; token out p ok
    '601f 3d11 16 6033 57 60006000fd', //      it reverted, or answered less than a word: revert
    '5b 6004 51 3b 82 602001 52', //           33: its first argument's code size to out + 20
    `60${length}01 90 604001 90 600e 56`, //   token out+40 p+length; again
    '5b 50 6060 90 03 6060 f3', //             48: return what was written
  ]
  return `0x${program.join('').replaceAll(' ', '')}${token.slice(2)}${questions.map((question) => question.slice(2)).join('')}`
}
