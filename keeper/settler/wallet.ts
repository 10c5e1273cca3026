import type { Address, Hex } from 'viem'

export type SettlementWallet = { address: Address; sign: (transaction: SignableTransaction) => Promise<Hex> }

export type SignableTransaction = {
  chainId: number
  to: Address
  data: Hex
  nonce: number
  gas: bigint
  maxFeePerGas: bigint
  maxPriorityFeePerGas: bigint
}
