import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'

export type CostFlags = {
  network: NetworkName
  /** USDC base units. */
  price: bigint
  perDay: number
  rpc?: string
  /** Wei. */
  gasPrice?: bigint
  /** USDC base units for one gas token. */
  ethUsd?: bigint
  json?: boolean
}
