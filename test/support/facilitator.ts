import type { PrivateKeyAccount } from 'viem'
import type { KeeperStack } from './keeperStack.ts'
import { randomHex } from './usdc.ts'
import { signPayment } from './x402.ts'

// What the tests of the facilitator share.

/** What waits to be mined is told by its first transaction: none is replaced. */
export const facilitatorStack = { replaceAfterMs: 600_000 }
export const facilitator = { timeoutMs: 200_000, holdMs: 250_000 }

/** Builds the function that signs a buyer's payment, for a new seller unless it names one. */
export function createPay(stack: KeeperStack) {
  return async (buyer: PrivateKeyAccount, options: Partial<Parameters<typeof signPayment>[2]> = {}) =>
    signPayment(stack.served, buyer, { payTo: randomHex(20), ...options })
}

/** What the payer's row says was accepted of it. */
export async function acceptedOf(stack: KeeperStack, buyer: PrivateKeyAccount): Promise<bigint> {
  const [row] = await stack.database<[{ total: bigint }?]>`
    select accepted_total as total from payer where address = ${buyer.address.toLowerCase()}`
  return BigInt(row?.total ?? 0n)
}
