/** What a keeper of its own account has spent on gas, by UTC day. Kept in memory: a restart begins a new day. */
export type Budget = {
  /** @param cost USDC base units. */
  spend: (cost: bigint) => void
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
    spend(cost) {
      turnDay()
      spent += cost
    },
    spentToday() {
      turnDay()
      return spent
    },
  }
}
