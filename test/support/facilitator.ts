import type { Keeper } from '@tollkeeper/keeper/keeper'
import type { PrivateKeyAccount } from 'viem'
import { afterAll, beforeAll } from 'vitest'
import { type KeeperStack, useKeeperStack } from './keeperStack.ts'
import { randomHex } from './usdc.ts'
import { signPayment } from './x402.ts'

// Shared by the facilitator's tests.

export const facilitator = { timeoutMs: 200_000, holdMs: 250_000 }

/** Starts a stack with a running keeper, for the tests of a file. */
export function useFacilitator() {
  // Transactions aren't replaced, so each waiting payment is identified by its first transaction.
  const stack = useKeeperStack({ replaceAfterMs: 600_000 })
  let running: Keeper | undefined
  const current = (): Keeper => {
    if (running === undefined) throw new Error('the keeper runs only during tests')
    return running
  }
  /** Passes calls on to the running keeper, because each start creates another keeper. */
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
    /** Signs a buyer's payment to the given seller, or else to a new one. */
    pay: async (buyer: PrivateKeyAccount, options: Partial<Parameters<typeof signPayment>[2]> = {}) =>
      signPayment(stack.served, buyer, { payTo: randomHex(20), ...options }),
  }
}

/** Returns the total of a buyer's accepted payments, which the table `payer` stores. */
export async function acceptedOf(stack: KeeperStack, buyer: PrivateKeyAccount): Promise<bigint> {
  const [row] = await stack.database<[{ total: bigint }?]>`
    select accepted_total as total from payer where address = ${buyer.address.toLowerCase()}`
  return BigInt(row?.total ?? 0n)
}
