import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { tabSettlementAbi } from '@tollkeeper/sdk/protocol/abi/tabSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { decodeOutcomes, type PaymentOutcome } from '@tollkeeper/sdk/protocol/batchSettlement'
import { lower } from '@tollkeeper/sdk/protocol/eip3009'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
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
  /**
   * The token refuses transfers to this account, and also to the splitter that would hold the account's money instead. So the whole
   * batch reverts.
   */
  | { status: 'payee_refused'; account: Address }
  | { status: 'reverted'; reason: string }

/** Returns the data with which a call reverted; null if the error isn't a revert but, for example, a failed RPC. */
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
 * Runs a whole batch on the state of a block. The contract returns the outcome of each payment.
 *
 * @param call `gasPrice`: the gas price that a payer's contract will see when the batch is mined.
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
    // All settling functions of the contracts have this return type.
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

/** Returns the contract's outcomes if it reverts because no payment could be settled. */
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

/**
 * Maximum number of calls in one request. Init code is limited to 49,152 bytes (EIP-3860), and a deployless multicall takes 256
 * bytes per call.
 */
const nonceCallsAtOnce = 150
const nonceCallBytes = 68

/**
 * Returns for each nonce whether the token has recorded it as used *or* cancelled. It sends as few requests as the limit on their
 * size permits.
 */
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
 * Finds out why the token rejects an authorization on the state of a block; returns null if the authorization alone would settle.
 *
 * @param from the caller. If only the recipient may execute the authorization, the recipient is used as the caller. The call then
 * has no gas price, because a recipient needn't be able to pay for gas.
 * @param call `gas` of the whole call, for payers whose code decides how much it uses; default: the node's limit. `gasPrice`: the
 * gas price that a payer's contract will see.
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
