import { pbkdf2Sync } from 'node:crypto'
import { type Hex, toHex } from 'viem'
import { HDKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'

/** Hardhat's and Foundry's well-known test mnemonic. On a public network anybody can spend what its accounts hold. */
const devMnemonic = 'test test test test test test test test test test test junk'

/** The dev account that deploys everything on the local chain and holds every role of its USDC. */
export const adminAccountIndex = 0

let parent: HDKey | undefined

/** Funded with 10,000 ETH on the local chain. 0 is the USDC's administrator; the rest is free to use. */
export function devAccount(index: number): PrivateKeyAccount {
  return privateKeyToAccount(devPrivateKey(index))
}

export function devPrivateKey(index: number): Hex {
  // BIP-39's seed by node:crypto, which takes a millisecond; viem's mnemonicToAccount takes thirty.
  const seed = () => pbkdf2Sync(devMnemonic, 'mnemonic', 2048, 64, 'sha512')
  parent ??= HDKey.fromMasterSeed(seed()).derive("m/44'/60'/0'/0")
  return toHex(parent.deriveChild(index).privateKey as Uint8Array)
}
