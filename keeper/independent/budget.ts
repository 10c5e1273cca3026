export type Budget = ReturnType<typeof createBudget>

/** What a keeper of its own account spends on gas, and gets for settling. Kept in memory: a restart begins anew. */
export function createBudget(now: () => Date) {
  let day = ''
  let spent = 0n
  function turnDay(): void {
    const today = now().toISOString().slice(0, 10)
    if (today !== day) [day, spent] = [today, 0n]
  }
  return {
    /** USDC base units. */
    book({ cost, reward }: { cost: bigint; reward: bigint }): void {
      turnDay()
      spent += cost - reward
    },
    /** What gas has cost on this UTC day beyond the rewards; below 0 where these were more. */
    spentToday(): bigint {
      turnDay()
      return spent
    },
    /** Decides in order which of these amounts today's limit still covers together. It books none. @param limit 0: none. */
    covers(amounts: readonly bigint[], limit: bigint): boolean[] {
      turnDay()
      let reached = spent
      return amounts.map((amount) => {
        const isCovered = limit === 0n || reached + amount <= limit
        if (isCovered) reached += amount
        return isCovered
      })
    },
  }
}
