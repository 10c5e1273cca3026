import type { Keeper } from '@tollkeeper/keeper/keeper'
import type { PrivateKeyAccount } from 'viem'
import { afterAll, beforeAll } from 'vitest'
import { type KeeperStack, useKeeperStack } from './keeperStack.ts'
import { randomHex } from './usdc.ts'
import { signPayment } from './x402.ts'

// What the tests of the facilitator share.

export const facilitator = { timeoutMs: 200_000, holdMs: 250_000 }

/** A stack with a running keeper, for the tests of a file. */
export function useFacilitator() {
  // What waits to be mined is told by its first transaction: none is replaced.
  const stack = useKeeperStack({ replaceAfterMs: 600_000 })
  let running: Keeper | undefined
  const current = (): Keeper => {
    if (running === undefined) throw new Error('the keeper runs only during tests')
    return running
  }
  /** Started again, it is another one. */
  const keeper: Keeper = {
    get app() {
      return current().app
    },
    start() {
      running = stack.keeper({ facilitator })
      running.start()
    },
    stop: () => current().stop(),
  }
  beforeAll(() => keeper.start())
  afterAll(() => running?.stop())
  return {
    stack,
    keeper,
    /** Signs a buyer's payment, for a new seller unless it names one. */
    pay: async (buyer: PrivateKeyAccount, options: Partial<Parameters<typeof signPayment>[2]> = {}) =>
      signPayment(stack.served, buyer, { payTo: randomHex(20), ...options }),
  }
}

/** What the payer's row says was accepted of it. */
export async function acceptedOf(stack: KeeperStack, buyer: PrivateKeyAccount): Promise<bigint> {
  const [row] = await stack.database<[{ total: bigint }?]>`
    select accepted_total as total from payer where address = ${buyer.address.toLowerCase()}`
  return BigInt(row?.total ?? 0n)
}
