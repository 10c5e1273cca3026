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

/** `isValidSignature`'s selector, as the ABI pads it. */
const magicWord: Hex = `0x1626ba7e${'0'.repeat(56)}`

/** Gas for the wallet's answer: the rest of the 300,000 that a transfer by such a payer has on chain (packages/chain/gas.ts). */
const gasLimit = 260_000n

/** How long the gateway waits for a contract wallet to check a signature, while its buyer waits, too. */
export const contractWalletTimeoutMs = 3_000

/**
 * Whether the payer's contract accepts the signature (ERC-1271), as USDC will ask it on chain: `from` has code, so its
 * answer alone counts. The signature is passed on verbatim, by the token and at the present gas price, as in a transaction now.
 * At another time, or to a keeper, the contract may answer otherwise; quarantine bounds what that costs.
 *
 * @throws {ChainUnavailable} if it doesn't answer within `timeoutMs`.
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
  // The token asks in a transaction that pays for gas; without a price, a node shows the wallet a base fee of 0.
  const question = { account: token, to: authorization.from, data, gas: gasLimit }
  const ask = async () => {
    const gasPrice = await client.getGasPrice()
    const stateOverride = [{ address: token, balance: gasLimit * gasPrice }]
    return client.call({ ...question, gasPrice, stateOverride }).catch((error: unknown) => {
      // Without the balance that the override gives, the token can't pay a price.
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

/** No answer, if the wallet reverted or ran out of gas. Anything else that went wrong is the node's fault and no refusal. */
function readRefusal(error: unknown): { data: undefined } {
  if (readNodeError(error).kind === 'execution') return { data: undefined }
  if (isUnreachable(error)) throw error
  throw new ChainUnavailable('The node could not ask the wallet contract', { cause: error })
}
