import { utcDay } from '@tollkeeper/sdk/protocol/time'

export type Budget = ReturnType<typeof createBudget>
export type Account = ReturnType<Budget['openAccount']>

/**
 * What a keeper without a database spends on gas in a UTC day, and what it earns by settling. All its wallets, on all networks, share the
 * budget. It is kept in memory, so a restart begins it again.
 */
export function createBudget(now: () => Date) {
  let day = ''
  let spent = 0n
  /** What each wallet's transaction in flight may cost: its payments, and the sweeps with them. */
  const reserved = new Map<symbol, { payments: bigint; sweeps: bigint }>()

  function turnDay(): void {
    const today = utcDay(now())
    if (today !== day) [day, spent] = [today, 0n]
  }

  /** Spent today, or reserved by others. */
  function takenBy(others: (wallet: symbol) => boolean): bigint {
    turnDay()
    return [...reserved].reduce(
      (sum, [wallet, { payments, sweeps }]) => (others(wallet) ? sum + payments + sweeps : sum),
      spent,
    )
  }

  return {
    /** What gas has cost on this UTC day beyond the rewards; below 0 where these were more. */
    spentToday(): bigint {
      turnDay()
      return spent
    },
    /** Opens the account of a wallet, which has one transaction in flight at a time. */
    openAccount() {
      const own = Symbol('wallet')
      return {
        /**
         * Reserves these amounts in order, as far as today's limit covers them together with all that is spent or reserved. They replace
         * what the wallet has reserved.
         *
         * @param limit USDC base units; 0: no limit.
         * @returns for each amount whether it is reserved.
         */
        reserve(amounts: readonly bigint[], limit: bigint): boolean[] {
          const taken = takenBy((wallet) => wallet !== own)
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
         * Reserves an amount for the sweeps of the transaction, if today's limit covers it together with all that is spent or reserved.
         * A replacement reserves again; the larger amount counts, because either may be mined.
         *
         * @returns whether it is reserved.
         */
        reserveSweeps(amount: bigint, limit: bigint): boolean {
          const { payments, sweeps } = reserved.get(own) ?? { payments: 0n, sweeps: 0n }
          const most = amount > sweeps ? amount : sweeps
          if (limit !== 0n && takenBy((wallet) => wallet !== own) + payments + most > limit) return false
          reserved.set(own, { payments, sweeps: most })
          return true
        },
        /** Books what the transaction in flight has cost and earned, in USDC base units. */
        book({ cost, reward }: { cost: bigint; reward: bigint }): void {
          turnDay()
          spent += cost - reward
          reserved.delete(own)
        },
        /** Releases what is reserved, because the wallet has nothing in flight. */
        release(): void {
          reserved.delete(own)
        },
      }
    },
  }
}
