/** A payment that is about to be signed, as a budget counts it. */
export type Spending = {
  /** The host that asks for it: lower-case, without port. */
  host: string
  /** USDC base units, the fee included. */
  amount: bigint
  /** Unix milliseconds. */
  at: number
}

/** The most that is paid within 24 hours, in USDC base units. */
export type DailyLimits = {
  daily?: bigint
  dailyPerHost?: bigint
}

/** A limit without room for a payment. */
export type Overrun = {
  limit: keyof DailyLimits
  /** Base units that were spent within the 24 hours before, at this host for `dailyPerHost`. */
  spent: bigint
}

/** Counted until it is released; or over a limit, and not counted. */
export type Reservation =
  | {
      isReserved: true
      /** Gives the amount back, for a payment that nobody was shown. */
      release: () => Promise<void>
    }
  | ({ isReserved: false } & Overrun)

/**
 * Where a budget is counted. Clients with one store share it, whatever their wallets and networks.
 *
 * A store of your own must decide and count in one step for all its users: between two steps another payment could spend
 * the same money.
 */
export type SpendingStore = {
  /** Counts a payment, unless that would exceed a limit of the last 24 hours. */
  reserve: (spending: Spending, limits: DailyLimits) => Promise<Reservation>
}

export const dayMs = 86_400_000

/** The sums of the last 24 hours. */
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

  /** Counts a payment, or tells which limit it would exceed. */
  function claim(id: string, spending: Spending, limits: DailyLimits): Overrun | undefined {
    // In the order of arrival. One that a wrong clock dated later keeps those behind it, which counts too much.
    for (const [old, { at }] of counted) {
      if (at + dayMs > spending.at) break
      release(old)
    }
    const { host, amount } = spending
    const spent = { daily: sum, dailyPerHost: byHost.get(host) ?? 0n }
    for (const limit of ['dailyPerHost', 'daily'] as const) {
      const most = limits[limit]
      if (most !== undefined && spent[limit] + amount > most) return { limit, spent: spent[limit] }
    }
    counted.set(id, spending)
    add(spending)
    return undefined
  }

  return { claim, release }
}

/**
 * Creates a budget that lasts as long as the process. Pass it to several clients to have them share it; a client without
 * one has its own.
 *
 * @example
 * import { createClient, createSpendingMemory } from '@tollkeeper/sdk'
 *
 * const spending = createSpendingMemory()
 * const shared = { gatewayUrl: 'https://gateway.example', maxDailyUsdc: '5', spending }
 * const walletPrivateKey = process.env.WALLET_PRIVATE_KEY ?? `0x${'1'.repeat(64)}`
 *
 * // Five USDC a day, on both networks together.
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
  }
}
