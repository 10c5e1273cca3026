import { utcDay } from '@tollkeeper/sdk/protocol/time'

export type Budget = ReturnType<typeof createBudget>
export type Account = ReturnType<Budget['openAccount']>

/**
 * Creates the budget of a keeper without a database: the gas money that it spends in a UTC day, less the rewards that it earns. All its
 * wallets, on all networks, share the budget. The budget is in memory, so it starts from zero after a restart.
 */
export function createBudget(now: () => Date) {
  let day = ''
  let spent = 0n
  /** For each transaction in flight, the maximum cost of its payments and the maximum cost of its sweeps. */
  const reserved = new Map<symbol, { payments: bigint; sweeps: bigint }>()

  function turnDay(): void {
    const today = utcDay(now())
    if (today !== day) [day, spent] = [today, 0n]
  }

  /** Returns the sum of what was spent today and what the given transactions have reserved. */
  function takenBy(others: (transaction: symbol) => boolean): bigint {
    turnDay()
    return [...reserved].reduce(
      (sum, [transaction, { payments, sweeps }]) => (others(transaction) ? sum + payments + sweeps : sum),
      spent,
    )
  }

  return {
    /** Returns the cost of gas on this UTC day, less the rewards. It is negative if the rewards were higher. */
    spentToday(): bigint {
      turnDay()
      return spent
    },
    /** Opens the account of a transaction. */
    openAccount() {
      const own = Symbol('transaction')
      return {
        /**
         * Reserves the amounts in order. Skips an amount if today's limit doesn't cover it together with everything that is spent or
         * reserved. The new reservation replaces the transaction's earlier one.
         *
         * @param limit USDC base units; 0 means no limit
         * @returns for each amount whether it is reserved
         */
        reserve(amounts: readonly bigint[], limit: bigint): boolean[] {
          const taken = takenBy((transaction) => transaction !== own)
          let sum = 0n
          const isReserved = amounts.map((amount) => {
            if (limit !== 0n && taken + sum + amount > limit) return false
            sum += amount
            return true
          })
          reserved.set(own, { payments: sum, sweeps: 0n })
          return isReserved
        },
        /**
         * Reserves an amount for the sweeps of the transaction, if today's limit covers it together with everything that is spent or
         * reserved. A replacement reserves again. Then the larger amount counts, because either transaction may be mined.
         *
         * @returns whether the amount is reserved
         */
        reserveSweeps(amount: bigint, limit: bigint): boolean {
          const { payments, sweeps } = reserved.get(own) ?? { payments: 0n, sweeps: 0n }
          const most = amount > sweeps ? amount : sweeps
          if (limit !== 0n && takenBy((transaction) => transaction !== own) + payments + most > limit)
            return false
          reserved.set(own, { payments, sweeps: most })
          return true
        },
        /** Books the transaction's cost and reward, in USDC base units, and releases its reservation. */
        book({ cost, reward }: { cost: bigint; reward: bigint }): void {
          turnDay()
          spent += cost - reward
          reserved.delete(own)
        },
        /** Releases the reservation, because the transaction is over or was never sent. */
        release(): void {
          reserved.delete(own)
        },
      }
    },
  }
}
