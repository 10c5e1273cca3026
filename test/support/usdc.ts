import { randomBytes } from 'node:crypto'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import {
  type Authorization,
  eip712Domain,
  transferWithAuthorizationTypes,
} from '@tollkeeper/sdk/protocol/eip3009'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import {
  type Address,
  createWalletClient,
  type Hash,
  type Hex,
  http,
  type PublicClient,
  parseAbi,
  publicActions,
  type TransactionReceipt,
} from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'

export function tokenOf(chain: LocalChain): Address {
  const usdc = chain.deployments[chain.network]?.usdc
  if (!usdc) throw new Error(`no USDC on ${chain.network}`)
  return usdc
}

/** Returns a balance in USDC base units. */
export function readBalance(client: PublicClient, token: Address, owner: Address): Promise<bigint> {
  return client.readContract({ address: token, abi: usdcAbi, functionName: 'balanceOf', args: [owner] })
}

/**
 * Returns the validity window for authorizations that are signed now. Call it once per payment, because both authorizations need
 * the same window, and two calls may be in different seconds.
 *
 * @param seconds length of the window.
 */
export function validFor(seconds: number): Pick<Authorization, 'validAfter' | 'validBefore'> {
  return { validAfter: 0n, validBefore: BigInt(Math.floor(Date.now() / 1000) + seconds) }
}

/** Signs an authorization with the given account. */
export async function signAuthorization(
  { network, token }: { network: Network; token: Address },
  signer: PrivateKeyAccount,
  authorization: Authorization,
): Promise<SignedAuthorization> {
  const signature = await signer.signTypedData({
    domain: eip712Domain(network, token),
    types: transferWithAuthorizationTypes,
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  })
  return { ...authorization, signature }
}

/** Sends one authorization straight to USDC from a stranger's account; doesn't wait until it is mined. */
export async function sendDirectly(
  { chain }: { chain: LocalChain },
  { from, to, value, validAfter, validBefore, nonce, signature }: SignedAuthorization,
  fees: { maxFeePerGas: bigint; maxPriorityFeePerGas: bigint } = {
    maxFeePerGas: 50_000_000_000n,
    maxPriorityFeePerGas: 1_000_000_000n,
  },
): Promise<Hash> {
  const stranger = createWalletClient({ account: devAccount(18), transport: http(chain.url) })
  return stranger.writeContract({
    address: tokenOf(chain),
    abi: usdcAbi,
    functionName: 'transferWithAuthorization',
    args: [from, to, value, validAfter, validBefore, nonce, signature],
    chain: null,
    gas: 150_000n,
    ...fees,
  })
}

/** Cancels a payer's authorization on chain. A stranger sends it, so the payer needs no gas money. */
export async function cancelDirectly(
  {
    chain,
    served,
  }: { chain: LocalChain; served: { network: Network; token: Address; client: PublicClient } },
  payer: PrivateKeyAccount,
  nonce: Hex,
): Promise<TransactionReceipt> {
  const { network, token, client } = served
  const signature = await payer.signTypedData({
    domain: eip712Domain(network, token),
    types: {
      CancelAuthorization: [
        { name: 'authorizer', type: 'address' },
        { name: 'nonce', type: 'bytes32' },
      ],
    },
    primaryType: 'CancelAuthorization',
    message: { authorizer: payer.address, nonce },
  })
  const stranger = createWalletClient({ account: devAccount(18), transport: http(chain.url) })
  const hash = await stranger.writeContract({
    address: token,
    abi: usdcAbi,
    functionName: 'cancelAuthorization',
    args: [payer.address, nonce, signature],
    chain: null,
  })
  return client.waitForTransactionReceipt({ hash })
}

/** Adds an address to USDC's blacklist, or removes it, as Circle would. */
export async function setBlacklisted(
  chain: LocalChain,
  address: Address,
  isBlacklisted: boolean,
): Promise<void> {
  const admin = createWalletClient({ account: devAccount(0), transport: http(chain.url) }).extend(
    publicActions,
  )
  const hash = await admin.writeContract({
    address: tokenOf(chain),
    abi: parseAbi(['function blacklist(address account)', 'function unBlacklist(address account)']),
    functionName: isBlacklisted ? 'blacklist' : 'unBlacklist',
    args: [address],
    chain: null,
  })
  const { status } = await admin.waitForTransactionReceipt({ hash })
  if (status !== 'success') throw new Error('the blacklist was not changed')
}

export function randomHex(bytes: number): Hex {
  return `0x${randomBytes(bytes).toString('hex')}`
}
