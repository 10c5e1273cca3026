/** What a keeper spends of its own money on gas, and gets for settling. Kept in memory, so a restart begins anew. */
export type Budget = {
  /** USDC base units. */
  book: (entry: { cost: bigint; reward: bigint }) => void
  /** Gas beyond the rewards on this UTC day; negative if the rewards were more. */
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
