import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import type { NetworkName } from '#protocol/networks'
import { type Client, createClient } from '#sdk/client/createClient'

export type Buyer = { address: Address; client: Client }

/** A buyer with a wallet and a limit for each payment, who keeps tabs or makes each payment by itself. */
export function createBuyer(options: {
  gatewayUrl: string
  network: NetworkName
  usdcAddress: Address
  maxPaymentUsdc: string
  tabs: boolean
}): Buyer {
  const walletPrivateKey: Hex = generatePrivateKey()
  const client = createClient({ ...options, walletPrivateKey, timeout: 60_000 })
  return { address: privateKeyToAddress(walletPrivateKey), client }
}

/** Runs `work` on every item, a few at a time. */
export async function forEachLimited<Item>(
  items: readonly Item[],
  atOnce: number,
  work: (item: Item, index: number) => Promise<void>,
): Promise<void> {
  let next = 0
  const worker = async () => {
    for (let index = next++; index < items.length; index = next++) await work(items[index] as Item, index)
  }
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker))
}
