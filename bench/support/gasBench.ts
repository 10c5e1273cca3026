import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import {
  encodeSettle,
  encodeSettleAuthorizations,
  type Sweep,
  triggerCodes,
} from '@tollkeeper/sdk/protocol/batchSettlement'
import { feeNonce, maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { splitSignature } from '@tollkeeper/sdk/protocol/eip3009'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { splitPrice } from '@tollkeeper/sdk/protocol/tier'
import {
  type Address,
  encodeFunctionData,
  type Hex,
  keccak256,
  multicall3Abi,
  parseAbi,
  stringToHex,
} from 'viem'
import { multicall3Address } from '../../apps/devstack/chain/prepareChain.ts'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { type Buyer, createAuthorizer, createBuyers } from '../data/signPayments.ts'
import { gasFloorRuntimeCode } from '../generated/gasFloor.ts'
import { deploymentOf, openSender } from './benchEnv.ts'

/** Maximum number of payments in a batch. */
export const largest = 150
/** EIP-7825's maximum gas of a transaction. */
export const transactionGasCap = 2n ** 24n
const callGasLimit = 150_000n
/** The number of USDC's logs for each authorization: AuthorizationUsed and Transfer. */
const logsPerAuthorization = 2

const floorAbi = parseAbi(['function measure(address token, bytes[] calls) returns (uint256 total)'])
const floorAddress: Address = '0x00000000000000000000000000000000000f1007'

/** Figures by a number of payments or splitters. */
export type BySize = { [size: number]: number }
export type Payment = { authorization: SignedAuthorization; fee: SignedAuthorization }
export type Call = { to: Address; data: Hex }
export type Bench = Awaited<ReturnType<typeof createBench>>

export const addressOf = (seed: string): Address => `0x${keccak256(stringToHex(seed)).slice(26)}`

/** Prepares a local chain with buyers, and returns functions that build batches of their payments and measure their gas. */
export async function createBench(chain: LocalChain) {
  const deployment = deploymentOf(chain)
  const { usdc, batchSettlement } = deployment
  const client = openSender(chain)
  const platform = addressOf('platform')
  const provider = addressOf('provider')
  const buyers = createBuyers(largest)
  await chain.mintUsdc([platform, provider, ...buyers.map(({ address }) => address)], parseUsdc('1000'))
  await client.setCode({ address: floorAddress, bytecode: gasFloorRuntimeCode })

  const authorize = createAuthorizer(usdc)
  const { timestamp } = await client.getBlock()
  const window = { validAfter: 0n, validBefore: timestamp + BigInt(maxTimeoutSeconds) }
  const price = parseUsdc('0.01')
  const { providerAmount, feeAmount } = splitPrice(price)
  const batch = {
    token: usdc,
    feeRecipient: platform,
    batchId: keccak256(stringToHex('bench')),
    trigger: triggerCodes.count,
    callGasLimit,
  }

  function transfer({ signature, ...authorization }: SignedAuthorization): Call {
    const { from, to, value, validAfter, validBefore, nonce } = authorization
    const { v, r, s } = splitSignature(signature)
    const data = encodeFunctionData({
      abi: usdcAbi,
      functionName: 'transferWithAuthorization',
      args: [from, to, value, validAfter, validBefore, nonce, v, r, s],
    })
    return { to: usdc, data }
  }

  const toSettlement = ({ calldata }: { calldata: Hex }): Call => ({ to: batchSettlement, data: calldata })
  const transfers = (payments: readonly Payment[]) =>
    payments.flatMap(({ authorization, fee }) => [transfer(authorization), transfer(fee)])

  return {
    ...deployment,
    provider,
    buyers,
    transfers,
    addressOf,
    platform,
    price,
    fee: feeAmount,
    mint: (addresses: readonly Address[]) => chain.mintUsdc(addresses, parseUsdc('1')),

    pay(buyer: Buyer, to: Address, seed: string): Payment {
      const nonce = keccak256(stringToHex(seed))
      return {
        authorization: authorize(buyer, to, providerAmount, nonce, window),
        fee: authorize(buyer, platform, feeAmount, feeNonce(nonce), window),
      }
    },

    payOne: (buyer: Buyer, to: Address, seed: string) =>
      authorize(buyer, to, price, keccak256(stringToHex(seed)), window),

    settleOnes: (authorizations: readonly SignedAuthorization[], sweep: Sweep) =>
      toSettlement(encodeSettleAuthorizations(batch, authorizations, sweep)),

    settle: (payments: readonly Payment[]) => toSettlement(encodeSettle(batch, payments)),

    multicall(payments: readonly Payment[]): Call {
      const calls = transfers(payments).map(({ to: target, data: callData }) => {
        return { target, allowFailure: true, callData }
      })
      const data = encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [calls] })
      return { to: multicall3Address, data }
    },

    async floorOf(payments: readonly Payment[]): Promise<number> {
      const calls = transfers(payments).map(({ data }) => data)
      const { result } = await client.simulateContract({
        address: floorAddress,
        abi: floorAbi,
        functionName: 'measure',
        args: [usdc, calls],
        gas: transactionGasCap,
      })
      return Number(result)
    },

    /** Returns a call's gas. @param authorizations the number that must settle; with 0, the transaction must revert */
    async gasOf(call: Call, authorizations: number): Promise<number> {
      const hash = await client.sendTransaction({ ...call, gas: transactionGasCap })
      const { status, gasUsed, logs } = await client.waitForTransactionReceipt({ hash })
      const settled = logs.filter(({ address }) => address === usdc).length / logsPerAuthorization
      if (settled !== authorizations || (status === 'success') !== authorizations > 0) {
        throw new Error(
          `${settled} of ${authorizations} authorizations settled, in a transaction with the status ${status}`,
        )
      }
      return Number(gasUsed)
    },

    /** Runs a measurement and reverts the chain afterwards, so that each measurement starts from the same state. */
    async isolated<T>(body: () => Promise<T>): Promise<T> {
      const id = await client.snapshot()
      try {
        return await body()
      } finally {
        await client.revert({ id })
      }
    },
  }
}
