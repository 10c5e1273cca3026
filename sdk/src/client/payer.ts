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
  authorizationDigest,
  domainSeparator,
  type Eip712Domain,
  eip712Domain,
  receiveWithAuthorizationTypes,
  transferWithAuthorizationTypes,
} from '../protocol/eip3009.ts'
import type { Network } from '../protocol/networks.ts'
import { parseSignature } from '../protocol/payload.ts'
import { signatureForms } from '../protocol/signature.ts'
import { ChallengeRefusedError } from './errors.ts'

/** Signs EIP-712 typed data for its address: a local or smart account of viem, or a wrapper around a wallet. */
export type Payer = {
  address: Address
  signTypedData(typedData: AuthorizationTypedData): Promise<Hex>
  /** Whether the address is a contract that verifies signatures itself (ERC-1271). Optional for viem's smart accounts. */
  isContract?: boolean
  /** Only wallet clients have this method, not accounts. */
  getChainId?: undefined
}

/** A viem wallet client with an account, for example from a browser's wallet (EIP-1193). */
export type PayerWallet = Pick<WalletClient, 'account' | 'signTypedData' | 'getChainId'>

/** A message of EIP-3009: a payment's transfer or a tab's state. `types` contains the type that is signed. */
type AuthorizationTypedData = TypedDataDefinition<AuthorizationTypes, keyof AuthorizationTypes>
type AuthorizationTypes = typeof transferWithAuthorizationTypes & typeof receiveWithAuthorizationTypes

const typesOf = {
  TransferWithAuthorization: transferWithAuthorizationTypes,
  ReceiveWithAuthorization: receiveWithAuthorizationTypes,
}

/** The common form of accounts and wallet clients, with methods that explain why signing failed. */
export type Signer = Omit<Payer, 'getChainId'> & {
  /** Returns the chain that a wallet is connected to. */
  getChainId?: (() => Promise<number>) | undefined
  /** Returns how to deploy a smart account. Returns nothing if it is deployed. */
  getFactoryArgs?: () => Promise<{ factory?: string | undefined }>
  /** Sends a request to a wallet, for example whether the address has code. */
  request?: WalletRequest
  /** The public key. Only viem's key-based accounts have it. */
  publicKey?: Hex
  /** Signs an EIP-712 digest. Only available for signers made from `walletPrivateKey`. */
  signDigest?: (digest: Hex) => Promise<Hex>
}

type WalletRequest = (question: { method: 'eth_getCode'; params: [Address, 'latest'] }) => Promise<unknown>

/** The last bytes of a signature by a wallet that isn't deployed yet (ERC-6492). */
const erc6492Suffix = '6492'.repeat(16)

/** The factory that viem reports for an account that isn't delegated yet (EIP-7702). Such an account pays with its own key. */
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
    throw new TypeError('account can’t sign by itself: pass the wallet client that it belongs to')
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
 * Rejects a smart account that isn't deployed. USDC calls the payer's contract to verify a signature (ERC-1271), so the contract must exist. If the
 * client signed anyway, the signature would become valid as soon as anyone deploys the account.
 *
 * @throws {ChallengeRefusedError} `smart_account_not_deployed`
 */
export async function requireDeployed(signer: Signer): Promise<void> {
  // Ignore an error here: if the account's chain doesn't respond, signing fails too and reports the error.
  const { factory } = (await signer.getFactoryArgs?.().catch(() => undefined)) ?? {}
  if (factory && factory !== eip7702Factory) throw notDeployed(signer.address)
}

/**
 * Signs one authorization.
 *
 * @throws {ChallengeRefusedError} if the payer doesn't sign, or if USDC or the gateway can't accept its signature.
 */
export async function signAuthorization(
  signer: Signer,
  network: Network,
  usdc: Address,
  authorization: Authorization,
): Promise<Hex> {
  const domain = eip712Domain(network, usdc)
  // Our own digest takes a third of the time that viem's hashing of typed data takes.
  if (signer.signDigest && authorization.value < 2n ** 64n)
    return signer.signDigest(authorizationDigest(separatorOf(domain), authorization))
  const { primaryType = 'TransferWithAuthorization', ...message } = authorization
  const typedData = withJson({
    domain,
    types: typesOf[primaryType] as AuthorizationTypes,
    primaryType,
    message,
  })
  let signature: Hex
  try {
    signature = await signer.signTypedData(typedData)
  } catch (cause) {
    const { explain } = await import('./signingFailure.ts').catch(() => ({ explain: undefined }))
    if (explain) throw await explain(cause, signer, network)
    throw new ChallengeRefusedError(`${signer.address} could not sign`, { code: 'signing_failed', cause })
  }
  if (String(signature).endsWith(erc6492Suffix)) throw notDeployed(signer.address)
  const canonical = requireForm(signature, signer.address)
  await requireOwnSignature(signer, typedData, canonical)
  return canonical
}

const separators = new Map<string, Hex>()

/** Returns the separator of a domain. Each separator is hashed only once. */
function separatorOf(domain: Eip712Domain): Hex {
  const key = `${domain.chainId} ${domain.verifyingContract} ${domain.name} ${domain.version}`
  const separator = separators.get(key) ?? domainSeparator(domain)
  separators.set(key, separator)
  return separator
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
 * Rejects a signature by another key than the payer's, because every seller would reject it. This happens if the account object is built wrongly, or
 * the wallet has switched accounts. Contracts are exempt: they verify signatures themselves.
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
    `the signature is from ${by ?? 'an unknown key'}, not from ${signer.address}: pass the account whose key signs, or isContract: true for a contract`,
    { code: 'signed_by_another_key' },
  )
}

/** The type of a domain. `eth_signTypedData_v4` requires it in addition to the type of the message. */
const domainType = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
]

/**
 * Makes `JSON.stringify` write typed data in the form of `eth_signTypedData_v4`. JSON has no bigint, and wallets also require the domain's type.
 *
 * The `toJSON` method is on `message` and `types`, not on the whole object, so that a copy such as `{ ...typedData }` keeps the method. It isn't
 * enumerable, because a function can't be sent to a worker.
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

/** Returns the object with a `toJSON` that `JSON.stringify` uses. */
function writtenAs<Written extends object>(object: Written, toJSON: () => object): Written {
  return Object.defineProperty(object, 'toJSON', { value: toJSON })
}

function notDeployed(address: Address): ChallengeRefusedError {
  return new ChallengeRefusedError(
    `the smart account ${address} is not deployed, so USDC can’t verify its signature: send any transaction from it first`,
    { code: 'smart_account_not_deployed' },
  )
}

function accountOfKey(privateKey: string | undefined): Signer {
  try {
    if (privateKey && /^0x[0-9a-fA-F]{64}$/.test(privateKey)) {
      const account = privateKeyToAccount(privateKey as Hex)
      return { ...account, signDigest: (hash) => account.sign({ hash }) }
    }
  } catch {
    // The key is outside the curve's range. Don't throw viem's error, because it contains the key.
  }
  throw new TypeError('walletPrivateKey must be 0x and 64 hex digits of a key, or account must be given')
}
