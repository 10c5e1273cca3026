import {
  type Address,
  type Hex,
  isAddressEqual,
  recoverTypedDataAddress,
  type TypedDataDefinition,
  type WalletClient,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import {
  type Authorization,
  eip712Domain,
  receiveWithAuthorizationTypes,
  transferWithAuthorizationTypes,
} from '../protocol/eip3009.ts'
import type { Network } from '../protocol/networks.ts'
import { parseSignature } from '../protocol/payload.ts'
import { signatureForms } from '../protocol/signature.ts'
import { ChallengeRefusedError } from './errors.ts'

/** Signs EIP-712 typed data for its address: viem's local and smart accounts, or a wrapper of a wallet. */
export type Payer = {
  address: Address
  signTypedData(typedData: AuthorizationTypedData): Promise<Hex>
  /** The address is a contract's, which judges signatures itself (ERC-1271). viem's smart accounts needn't say so. */
  isContract?: boolean
  /** Only wallet clients have it, accounts don't. */
  getChainId?: undefined
}

/** A viem wallet client with an account, for example of a browser's wallet (EIP-1193). */
export type PayerWallet = Pick<WalletClient, 'account' | 'signTypedData' | 'getChainId'>

/** One of EIP-3009's messages, a payment's transfer or a state of a tab; `types` holds the signed one. */
type AuthorizationTypedData = TypedDataDefinition<AuthorizationTypes, keyof AuthorizationTypes>
type AuthorizationTypes = typeof transferWithAuthorizationTypes & typeof receiveWithAuthorizationTypes

const typesOf = {
  TransferWithAuthorization: transferWithAuthorizationTypes,
  ReceiveWithAuthorization: receiveWithAuthorizationTypes,
}

/** The common form of both, with what tells why one can't sign. */
export type Signer = Omit<Payer, 'getChainId'> & {
  /** The chain that a wallet is on. */
  getChainId?: (() => Promise<number>) | undefined
  /** How to deploy a smart account; nothing if it is deployed. */
  getFactoryArgs?: () => Promise<{ factory?: string | undefined }>
  /** A wallet that can be asked whether the address has code. */
  request?: WalletRequest
  /** viem's accounts of a key have it. */
  publicKey?: Hex
}

type WalletRequest = (question: { method: 'eth_getCode'; params: [Address, 'latest'] }) => Promise<unknown>

/** The end of a signature by a wallet that isn't deployed yet (ERC-6492). */
const erc6492Suffix = '6492'.repeat(16)

/** viem's mark for an account that pays by its own key until it is delegated (EIP-7702). */
const eip7702Factory = '0x7702'

/** @throws {TypeError} for a key or account that can't sign. */
export function signerOf(options: {
  walletPrivateKey?: string | undefined
  account?: Payer | PayerWallet
}): Signer {
  const { account, walletPrivateKey } = options
  if (!account) return accountOfKey(walletPrivateKey)
  if (!account.getChainId) {
    if ('signTypedData' in account) return account
    throw new TypeError('account can not sign by itself: pass the wallet client that it belongs to')
  }
  const { account: payer } = account
  if (!payer) throw new TypeError('A wallet client needs an account: createWalletClient({ account, … })')
  return {
    address: payer.address,
    signTypedData: (typedData) => account.signTypedData({ ...typedData, account: payer }),
    getChainId: () => account.getChainId(),
    ...('request' in account && { request: account.request as WalletRequest }),
    ...(payer.getFactoryArgs && { getFactoryArgs: () => payer.getFactoryArgs() }),
  }
}

/**
 * Refuses a smart account that isn't deployed. USDC asks the payer's contract (ERC-1271), so there must be one; and its
 * signature would become valid as soon as anybody deploys the account.
 *
 * @throws {ChallengeRefusedError} `smart_account_not_deployed`
 */
export async function requireDeployed(signer: Signer): Promise<void> {
  // If its chain doesn't answer, it can't sign either.
  const { factory } = (await signer.getFactoryArgs?.().catch(() => undefined)) ?? {}
  if (factory && factory !== eip7702Factory) throw notDeployed(signer.address)
}

/**
 * Has one authorization signed.
 *
 * @throws {ChallengeRefusedError} if the payer doesn't sign, or signs what USDC or the gateway can't take.
 */
export async function signAuthorization(
  signer: Signer,
  network: Network,
  usdc: Address,
  { primaryType = 'TransferWithAuthorization', ...message }: Authorization,
): Promise<Hex> {
  const typedData = withJson({
    domain: eip712Domain(network, usdc),
    types: typesOf[primaryType] as AuthorizationTypes,
    primaryType,
    message,
  })
  let signature: Hex
  try {
    signature = await signer.signTypedData(typedData)
  } catch (cause) {
    throw await explain(cause, signer, network)
  }
  if (String(signature).endsWith(erc6492Suffix)) throw notDeployed(signer.address)
  const canonical = requireForm(signature, signer.address)
  await requireOwnSignature(signer, typedData, canonical)
  return canonical
}

/** @throws {ChallengeRefusedError} `signature_not_supported` */
function requireForm(signature: Hex, address: Address): Hex {
  try {
    return parseSignature(signature)
  } catch (cause) {
    const given = typeof signature === 'string' ? `${(signature.length - 2) / 2} bytes` : typeof signature
    throw new ChallengeRefusedError(`a signature is 0x and ${signatureForms}; ${address} gave ${given}`, {
      code: 'signature_not_supported',
      cause,
    })
  }
}

/**
 * Refuses a signature of another key than the payer's, which every seller would refuse: of an account object that was put together
 * wrongly, or a wallet that has switched accounts. A contract judges signatures itself.
 */
async function requireOwnSignature(
  signer: Signer,
  typedData: AuthorizationTypedData,
  signature: Hex,
): Promise<void> {
  if (signer.publicKey || signer.isContract || signer.getFactoryArgs || signature.length !== 132) return
  const by = await recoverTypedDataAddress({ ...typedData, signature }).catch(() => undefined)
  if (by !== undefined && isAddressEqual(by, signer.address)) return
  const code = await signer
    .request?.({ method: 'eth_getCode', params: [signer.address, 'latest'] })
    .catch(() => '0x')
  if (typeof code === 'string' && code !== '0x') return
  throw new ChallengeRefusedError(
    `the signature is ${by ?? 'nobody'}'s and not that of ${signer.address}: give the account whose key signs, or isContract: true for a contract`,
    { code: 'signed_by_another_key' },
  )
}

/** The type of a domain, which `eth_signTypedData_v4` wants besides that of the message. */
const domainType = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
]

/**
 * Adds what `JSON.stringify` needs to write typed data as `eth_signTypedData_v4` takes it: JSON has no bigint, and wallets want the
 * domain's type, too.
 *
 * `message` and `types` have it, not the whole, so that a copy such as `{ ...typedData }` keeps it. It isn't enumerable, because a function
 * can't be sent to a worker.
 */
function withJson(typedData: AuthorizationTypedData): AuthorizationTypedData {
  const { message, types } = typedData
  const textOf = (value: unknown) => (typeof value === 'bigint' ? value.toString() : value)
  return {
    ...typedData,
    message: writtenAs(message, () =>
      Object.fromEntries(Object.entries(message).map(([name, value]) => [name, textOf(value)])),
    ),
    types: writtenAs({ ...types }, () => ({ EIP712Domain: domainType, ...types })),
  }
}

/** Returns the object, which `JSON.stringify` then writes as `toJSON` says. */
function writtenAs<Written extends object>(object: Written, toJSON: () => object): Written {
  return Object.defineProperty(object, 'toJSON', { value: toJSON })
}

async function explain(cause: unknown, signer: Signer, network: Network): Promise<ChallengeRefusedError> {
  if (isRejection(cause)) {
    return new ChallengeRefusedError('the wallet’s owner refused it', { code: 'payment_declined', cause })
  }
  // Wallets such as MetaMask sign only for the chain they are on; others sign for any.
  const chainId = await signer.getChainId?.().catch(() => undefined)
  if (chainId !== undefined && chainId !== network.chainId) {
    return new ChallengeRefusedError(
      `the wallet is on chain ${chainId} and did not sign for ${network.name} (${network.chainId}): switch it with walletClient.switchChain({ id: ${network.chainId} })`,
      { code: 'wallet_on_another_chain', cause },
    )
  }
  const { shortMessage, message } = cause as { shortMessage?: unknown; message?: unknown }
  return new ChallengeRefusedError(`${signer.address} could not sign: ${shortMessage ?? message}`, {
    code: 'signing_failed',
    cause,
  })
}

/** Whether a person said no: EIP-1193's 4001, which viem wraps. */
function isRejection(error: unknown): boolean {
  for (let at = error; typeof at === 'object' && at !== null; ) {
    const { code, cause } = at as { code?: unknown; cause?: unknown }
    if (code === 4001) return true
    at = cause
  }
  return false
}

function notDeployed(address: Address): ChallengeRefusedError {
  return new ChallengeRefusedError(
    `the smart account ${address} is not deployed, so USDC can not ask it for its signature: send any transaction from it first`,
    { code: 'smart_account_not_deployed' },
  )
}

function accountOfKey(privateKey: string | undefined): Payer {
  try {
    if (privateKey && /^0x[0-9a-fA-F]{64}$/.test(privateKey)) return privateKeyToAccount(privateKey as Hex)
  } catch {
    // Not on the curve. viem's own error would repeat the key.
  }
  throw new TypeError('walletPrivateKey must be 0x and 64 hex digits of a key, or account must be given')
}
