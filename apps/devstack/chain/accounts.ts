import { pbkdf2Sync } from 'node:crypto'
import { type Hex, toHex } from 'viem'
import { HDKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'

/** The well-known test mnemonic of Hardhat and Foundry. On a public network, anyone can spend what its accounts hold. */
const devMnemonic = 'test test test test test test test test test test test junk'

/** Index of the dev account that deploys everything on the local chain and holds every role of its USDC. */
export const adminAccountIndex = 0

let parent: HDKey | undefined

/**
 * Returns a dev account, which has 10,000 ETH on the local chain. Account 0 is USDC's administrator; the others are free to use.
 */
export function devAccount(index: number): PrivateKeyAccount {
  return privateKeyToAccount(devPrivateKey(index))
}

export function devPrivateKey(index: number): Hex {
  // Derives BIP-39's seed with node:crypto, which takes a millisecond; viem's mnemonicToAccount takes thirty.
  const seed = () => pbkdf2Sync(devMnemonic, 'mnemonic', 2048, 64, 'sha512')
  parent ??= HDKey.fromMasterSeed(seed()).derive("m/44'/60'/0'/0")
  return toHex(parent.deriveChild(index).privateKey as Uint8Array)
}
