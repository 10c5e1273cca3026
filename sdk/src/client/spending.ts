/** A payment that is about to be signed and is counted in a budget. */
export type Spending = {
  /** The host of the seller: lower-case, without port. */
  host: string
  /** USDC base units, including the fee. */
  amount: bigint
  /** Unix milliseconds. */
  at: number
}

/** Maximum sums within 24 hours, in USDC base units. */
export type DailyLimits = {
  perDay?: bigint
  perDayAndHost?: bigint
}

/** A limit that a payment would exceed. */
export type Overrun = {
  limit: keyof DailyLimits
  /** Base units spent within the previous 24 hours. For `perDayAndHost`, only at this host. */
  spent: bigint
}

/** The result of a reservation. Either the amount is counted until it is released, or it exceeds a limit and isn't counted. */
export type Reservation =
  | {
      isReserved: true
      /** Releases the amount of a payment that was never sent. */
      release: () => Promise<void>
    }
  | ({ isReserved: false } & Overrun)

/**
 * Counts the spending of a budget. Clients with the same store share the budget, across wallets and networks.
 *
 * If you write your own store, it must decide and count in one atomic step for all its users. Otherwise another payment could spend the same budget
 * between the two steps.
 */
export type SpendingStore = {
  /** Counts a payment, unless the payment would exceed a limit of the last 24 hours. */
  reserve: (spending: Spending, limits: DailyLimits) => Promise<Reservation>
  /** Returns the limit that a payment would exceed now, or undefined. Counts nothing: `client.quote` calls it. */
  check: (spending: Spending, limits: DailyLimits) => Promise<Overrun | undefined>
}

export const dayMs = 86_400_000

/** Sums of the last 24 hours. */
export function createDailySums() {
  const counted = new Map<string, Spending>()
  const byHost = new Map<string, bigint>()
  let sum = 0n

  function add({ host, amount }: Spending): void {
    const sumOfHost = (byHost.get(host) ?? 0n) + amount
    sum += amount
    if (sumOfHost === 0n) byHost.delete(host)
    else byHost.set(host, sumOfHost)
  }

  function release(id: string): void {
    const spending = counted.get(id)
    if (spending && counted.delete(id)) add({ ...spending, amount: -spending.amount })
  }

  /** Returns the limit that a payment would exceed. Returns undefined if there is none. */
  function findOverrun({ host, amount, at: now }: Spending, limits: DailyLimits): Overrun | undefined {
    // Entries are in order of arrival. If a wrong clock dated an entry too late, the entries behind it also stay, so the sum is too high rather than
    // too low.
    for (const [old, { at }] of counted) {
      if (at + dayMs > now) break
      release(old)
    }
    const spent = { perDay: sum, perDayAndHost: byHost.get(host) ?? 0n }
    for (const limit of ['perDayAndHost', 'perDay'] as const) {
      const most = limits[limit]
      if (most !== undefined && spent[limit] + amount > most) return { limit, spent: spent[limit] }
    }
    return undefined
  }

  /** Counts a payment, or returns the limit that it would exceed. */
  function claim(id: string, spending: Spending, limits: DailyLimits): Overrun | undefined {
    const overrun = findOverrun(spending, limits)
    if (overrun) return overrun
    counted.set(id, spending)
    add(spending)
    return undefined
  }

  return {
    claim,
    findOverrun,
    release,
    /** Returns the payments that count, by id. The next claim removes payments that are older than 24 hours. */
    counted: (): ReadonlyMap<string, Spending> => counted,
  }
}

/**
 * Creates a budget in memory, which lasts as long as the process. Several clients share it if you pass it to each of them. A client that
 * gets no store has a separate budget.
 *
 * @example
 * import { createClient, createSpendingMemory } from '@tollkeeper/sdk'
 *
 * const stores = { spending: createSpendingMemory() }
 * const shared = { gatewayUrl: 'https://gateway.example', limits: { perDay: '5' }, stores }
 * const walletPrivateKey = process.env.WALLET_PRIVATE_KEY ?? `0x${'1'.repeat(64)}`
 *
 * // At most five USDC a day on both networks together.
 * export const onBase = createClient({ ...shared, walletPrivateKey, network: 'base' })
 * export const onPolygon = createClient({ ...shared, walletPrivateKey, network: 'polygon' })
 */
export function createSpendingMemory(): SpendingStore {
  const sums = createDailySums()
  let ids = 0
  return {
    async reserve(spending, limits) {
      const id = String(ids++)
      const overrun = sums.claim(id, spending, limits)
      if (overrun) return { isReserved: false, ...overrun }
      return { isReserved: true, release: async () => sums.release(id) }
    },
    check: async (spending, limits) => sums.findOverrun(spending, limits),
  }
}
