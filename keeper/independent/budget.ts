/** What a keeper of its own account spends on gas, and gets for settling. Kept in memory: a restart begins anew. */
export type Budget = {
  /** USDC base units. */
  book: (entry: { cost: bigint; reward: bigint }) => void
  /** What gas has cost on this UTC day beyond the rewards; below 0 where these were more. */
  spentToday: () => bigint
}

export function createBudget(now: () => Date): Budget {
  let day = ''
  let spent = 0n
  function turnDay(): void {
    const today = now().toISOString().slice(0, 10)
    if (today !== day) [day, spent] = [today, 0n]
  }
  return {
    book({ cost, reward }) {
      turnDay()
      spent += cost - reward
    },
    spentToday() {
      turnDay()
      return spent
    },
  }
}
