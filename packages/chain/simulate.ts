import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { tabSettlementAbi } from '@tollkeeper/sdk/protocol/abi/tabSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { lower } from '@tollkeeper/sdk/protocol/eip3009'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { decodeOutcomes, type PaymentOutcome } from '@tollkeeper/sdk/protocol/settlement'
import {
  type Address,
  BaseError,
  decodeAbiParameters,
  decodeErrorResult,
  encodeFunctionData,
  type Hex,
  type PublicClient,
  toFunctionSelector,
} from 'viem'
import { classifyRevert, type Failure } from './failures.ts'
import type { At } from './head.ts'

const nothingSettledSelector = toFunctionSelector('NothingSettled(bytes)')
const payeeRefusedSelector = toFunctionSelector('PayeeRefused(address)')

export type Simulation =
  | { status: 'outcomes'; outcomes: PaymentOutcome[] }
  /** The token lets neither this account be paid, nor the splitters in which its money would wait: nothing of the batch settles with it. */
  | { status: 'payee_refused'; account: Address }
  | { status: 'reverted'; reason: string }

/** The data that a call reverted with; null if the error isn't a revert but, say, a failed RPC. */
function revertData(error: unknown): Hex | null {
  let revertedWithout = false
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const data = 'data' in cause ? cause.data : undefined
    const hex = typeof data === 'string' ? data : undefined
    if (hex?.startsWith('0x')) return hex as Hex
    if (typeof data === 'object' && data !== null && 'data' in data && typeof data.data === 'string') {
      return data.data as Hex
    }
    if (
      cause.name === 'ExecutionRevertedError' ||
      /execution reverted|reverted without a reason/i.test(cause.message)
    ) {
      revertedWithout = true
    }
  }
  return revertedWithout ? '0x' : null
}

/**
 * Runs a whole batch on a block's state. The contract returns the outcome of each payment.
 *
 * @param call `gasPrice`: what a wallet that looks at its gas price will see when the batch is mined.
 */
export async function simulateBatch(
  client: PublicClient,
  call: { from: Address; to: Address; calldata: Hex; gas: bigint; gasPrice?: bigint },
  at: At,
): Promise<Simulation> {
  try {
    const { data = '0x' } = await client.call({
      account: call.from,
      to: call.to,
      data: call.calldata,
      gas: call.gas,
      ...(call.gasPrice !== undefined && { gasPrice: call.gasPrice }),
      ...at,
    })
    // Each settling function of the contracts returns this.
    const [returned] = decodeAbiParameters([{ type: 'bytes' }], data)
    return { status: 'outcomes', outcomes: decodeOutcomes(returned) }
  } catch (error) {
    const data = revertData(error)
    if (data === null) throw error
    const outcomes = nothingSettled(data)
    if (outcomes) return { status: 'outcomes', outcomes }
    if (data.startsWith(payeeRefusedSelector)) {
      const { args } = decodeErrorResult({ abi: tabSettlementAbi, data })
      return { status: 'payee_refused', account: lower(args?.[0] as Address) }
    }
    return { status: 'reverted', reason: error instanceof BaseError ? error.shortMessage : data.slice(0, 10) }
  }
}

/** The contract's outcomes when it reverts because no payment could be settled. */
function nothingSettled(data: Hex): PaymentOutcome[] | null {
  if (!data.startsWith(nothingSettledSelector)) return null
  const { args } = decodeErrorResult({ abi: batchSettlementAbi, data })
  return decodeOutcomes(args?.[0] as Hex)
}

/** Whether the token is paused. */
export async function isPaused(
  client: PublicClient,
  token: Address,
  at: At = { blockTag: 'latest' },
): Promise<boolean> {
  return client.readContract({ address: token, abi: usdcAbi, functionName: 'paused', ...at })
}

/** Init code is at most 49,152 bytes (EIP-3860), and a deployless multicall takes 256 of them for a call. */
const nonceCallsAtOnce = 150
const nonceCallBytes = 68

/** Whether the token has each nonce as used *or* cancelled. It sends as few requests as their size allows. */
export async function areNoncesSpent(
  client: PublicClient,
  token: Address,
  authorizations: readonly Pick<SignedAuthorization, 'from' | 'nonce'>[],
  at: At = { blockTag: 'latest' },
): Promise<boolean[]> {
  return client.multicall({
    contracts: authorizations.map(({ from, nonce }) => ({
      address: token,
      abi: usdcAbi,
      functionName: 'authorizationState' as const,
      args: [from, nonce] as const,
    })),
    allowFailure: false,
    deployless: true,
    batchSize: nonceCallsAtOnce * nonceCallBytes,
    ...at,
  })
}

/**
 * Why the token refuses an authorization on a block's state; null if it would settle alone.
 *
 * @param from the caller. If only the recipient may execute it, that one calls, without a gas price since it can't pay one.
 * @param call `gas` of the whole call, for payers whose code decides how much it takes; default: the node's limit.
 *   `gasPrice`: what a wallet that looks at its gas price is to see.
 */
export async function diagnose(
  client: PublicClient,
  token: Address,
  from: Address,
  authorization: SignedAuthorization,
  at: At = { blockTag: 'latest' },
  { gas, gasPrice }: { gas?: bigint; gasPrice?: bigint } = {},
): Promise<Failure | null> {
  const { from: payer, to, value, validAfter, validBefore, nonce, signature } = authorization
  const isReceive = authorization.primaryType === 'ReceiveWithAuthorization'
  try {
    await client.call({
      account: isReceive ? to : from,
      to: token,
      gas,
      ...(gasPrice !== undefined && !isReceive && { gasPrice }),
      data: encodeFunctionData({
        abi: usdcAbi,
        functionName: isReceive ? 'receiveWithAuthorization' : 'transferWithAuthorization',
        args: [payer, to, value, validAfter, validBefore, nonce, signature],
      }),
      ...at,
    })
    return null
  } catch (error) {
    const data = revertData(error)
    if (data === null) throw error
    return classifyRevert(data)
  }
}
