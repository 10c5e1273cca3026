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
  }
}
