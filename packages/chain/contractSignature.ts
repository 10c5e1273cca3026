import { setTimeout as sleep } from 'node:timers/promises'
import { ChainUnavailable, isUnreachable } from '@tollkeeper/runtime/dependencies'
import { readNodeError } from '@tollkeeper/sdk/nodes/nodeErrors'
import { authorizationDigest } from '@tollkeeper/sdk/protocol/eip3009'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { encodeFunctionData, type Hex, parseAbi } from 'viem'
import type { ServedNetwork } from './servedNetworks.ts'

const erc1271Abi = parseAbi([
  'function isValidSignature(bytes32 hash, bytes signature) view returns (bytes4)',
])

/** The value that `isValidSignature` returns for a valid signature: its own selector, padded as in the ABI. */
const magicWord: Hex = `0x1626ba7e${'0'.repeat(56)}`

/**
 * Gas for the wallet's check of a signature. On chain, an authorization of a payer with code gets 300,000 gas (packages/chain/gas.ts), of which this
 * much remains for the check.
 */
const gasLimit = 260_000n

/** Timeout in ms for a contract wallet's check of a signature. The buyer waits for it. */
export const contractWalletTimeoutMs = 3_000

/**
 * Whether the payer's contract accepts the signature (ERC-1271), as USDC will check it on chain. `from` has code, so only its
 * contract decides. The signature is passed on unchanged. The token is the caller, and the gas price is the current one, as in a
 * transaction sent now. Later, or for another keeper, the contract may decide differently. If a payment then fails on chain, the payer's
 * further payments settle in separate transactions, which limits the cost.
 *
 * @throws {ChainUnavailable} if there is no response within `timeoutMs`.
 */
export async function isSignedByContract(
  served: ServedNetwork,
  authorization: SignedAuthorization,
  timeoutMs: number,
): Promise<boolean> {
  const data = encodeFunctionData({
    abi: erc1271Abi,
    functionName: 'isValidSignature',
    args: [authorizationDigest(served.domainSeparator, authorization), authorization.signature],
  })
  const { client, token } = served
  // Calls the wallet as the token would in a transaction that pays for gas. Without a gas price, a node would show the wallet a
  // base fee of 0, by which the wallet could recognize the check.
  const question = { account: token, to: authorization.from, data, gas: gasLimit }
  const ask = async () => {
    const gasPrice = await client.getGasPrice()
    const stateOverride = [{ address: token, balance: gasLimit * gasPrice }]
    return client.call({ ...question, gasPrice, stateOverride }).catch((error: unknown) => {
      // This node can't override balances, and without the override, the token has no balance to pay for gas. So ask without a gas price.
      if (readNodeError(error).kind === 'unsupported') return client.call(question)
      throw error
    })
  }
  const answered = new AbortController()
  try {
    const answer = await Promise.race([
      ask().catch(readRefusal),
      sleep(timeoutMs, undefined, { signal: answered.signal, ref: false }).then(() => {
        throw new ChainUnavailable('The wallet contract took too long to answer')
      }),
    ])
    return answer.data === magicWord
  } finally {
    answered.abort()
  }
}

/** Returns no data if the wallet reverted or ran out of gas. Any other error comes from the node, so it isn't a refusal. */
function readRefusal(error: unknown): { data: undefined } {
  if (readNodeError(error).kind === 'execution') return { data: undefined }
  if (isUnreachable(error)) throw error
  throw new ChainUnavailable('The node could not call the wallet contract', { cause: error })
}
