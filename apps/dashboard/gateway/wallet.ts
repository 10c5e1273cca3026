import { eip712Domain, transferWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import { type NetworkName, networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Address, Hex } from 'viem'
import { GatewayError } from './gateway.ts'

/** A wallet that a browser extension offers (EIP-1193). */
export type InjectedWallet = { request: (asked: { method: string; params?: unknown[] }) => Promise<unknown> }

export function injectedWallet(): InjectedWallet | undefined {
  return (globalThis as { ethereum?: InjectedWallet }).ethereum
}

export type Transfer = {
  network: NetworkName
  asset: Address
  from: Address
  to: Address
  /** Amount in USDC base units. */
  value: bigint
  /** Unix seconds. */
  validBefore: bigint
  nonce: Hex
}

const eip712DomainType = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
]

/**
 * Asks a wallet to sign a USDC transfer (EIP-3009). The signature by itself moves nothing.
 *
 * @returns the payload for the gateway
 * @throws {GatewayError} `wallet_refused` if the wallet doesn't have the account, or if its user declines
 */
export async function signTransfer(wallet: InjectedWallet, transfer: Transfer): Promise<string> {
  const { network: name, asset, ...message } = transfer
  const network = networkByName(name)
  const domain = eip712Domain(network, asset)
  const accounts = (await ask(wallet, 'eth_requestAccounts')) as string[]
  const account = accounts.find((one) => one.toLowerCase() === message.from)
  if (account === undefined) {
    throw new GatewayError(0, 'wallet_refused', `Choose ${message.from} in your wallet, and try again.`)
  }
  // Switch the wallet's chain: wallets sign only for the chain to which they are connected.
  const chainId = `0x${network.chainId.toString(16)}`
  if ((await ask(wallet, 'eth_chainId')) !== chainId) {
    await ask(wallet, 'wallet_switchEthereumChain', [{ chainId }])
  }
  const authorization = { ...message, validAfter: 0n }
  const typedData = {
    types: { EIP712Domain: eip712DomainType, ...transferWithAuthorizationTypes },
    primaryType: 'TransferWithAuthorization',
    domain,
    message: authorization,
  }
  const json = JSON.stringify(typedData, (_, value) => (typeof value === 'bigint' ? String(value) : value))
  const signature = (await ask(wallet, 'eth_signTypedData_v4', [account, json])) as Hex
  return encodePayload({ ...authorization, signature })
}

async function ask(wallet: InjectedWallet, method: string, params: unknown[] = []): Promise<unknown> {
  try {
    return await wallet.request({ method, params })
  } catch (error) {
    const { code, message } = error as { code?: number; message?: string }
    // EIP-1193: 4001 means that the user declined.
    const reason = code === 4001 ? 'You declined in your wallet.' : `Your wallet reported: ${message}`
    throw new GatewayError(0, 'wallet_refused', reason)
  }
}
