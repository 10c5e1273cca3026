/** What a keeper of its own account may spend on gas, by UTC day. Kept in memory: a restart begins a new day. */
export type Budget = {
  /** Whether something that will cost about so much, in USDC base units, may be begun. */
  allows: (cost: bigint) => boolean
  spend: (cost: bigint) => void
  spentToday: () => bigint
}

export function createBudget(dailyLimit: bigint, now: () => Date): Budget {
  let day = ''
  let spent = 0n
  function turnDay(): void {
    const today = now().toISOString().slice(0, 10)
    if (today !== day) [day, spent] = [today, 0n]
  }
  return {
    allows(cost) {
      turnDay()
      return spent + cost <= dailyLimit
    },
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
