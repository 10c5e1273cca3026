import { toHex } from 'viem'
import { type HDAccount, mnemonicToAccount } from 'viem/accounts'

/** Hardhat's and Foundry's well-known test mnemonic. Anyone can spend what its accounts hold on a public network. */
export const devMnemonic = 'test test test test test test test test test test test junk'

/** The dev account that deploys everything on the local chain and holds every role of its USDC. */
export const adminAccountIndex = 0

/** Funded with 10,000 ETH on the local chain. 0 is the USDC's administrator; the rest is free to use. */
export function devAccount(index: number): HDAccount {
  return mnemonicToAccount(devMnemonic, { addressIndex: index })
}

export function devPrivateKey(index: number): `0x${string}` {
  const { privateKey } = devAccount(index).getHdKey()
  if (privateKey === null) throw new Error(`dev account ${index} has no private key`)
  return toHex(privateKey)
}
