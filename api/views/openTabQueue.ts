import type { OpenLine } from '@tollkeeper/ledger/tabs/tabReads'
import { createCache } from '@tollkeeper/runtime/cache'
import { platformPart, providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import type { QueueOptions } from './settlementQueue.ts'

/** Amounts due to a wallet on tabs that aren't in the ledger yet. */
export type OpenTabQueue = {
  /** Number of requests that are charged. */
  paymentCount: number
  amount: bigint
  firstQueuedAt: Date
  /** The latest time by which the first of these tabs has settled. */
  settlesAt: Date
}

export type OpenTabTimes = {
  /** Minimum amount in USDC base units. A smaller tab waits for more purchases until its authorization expires, and then closes. */
  least: bigint
  /** Maximum time that a payment waits; a tab's wait begins when it is opened. */
  timeMs: number
}

type OpenTabQueueOptions = {
  /** Reads the open lines of a network. */
  readLines: (chainId: number) => Promise<OpenLine[]>
  timesOn: (chainId: number) => OpenTabTimes
  /** Monotonic milliseconds. */
  clock?: () => number
}

/** Milliseconds after which a network's tabs are read again in the background while the old answer is returned. */
const refreshAfterMs = 5_000
/** Maximum age of an answer in milliseconds. */
const maxAgeMs = 10_000
/** Maximum number of cached networks. The operator chooses the networks, so there are few. */
const maxNetworks = 100

/**
 * Creates a reader of what is due to wallets on open tabs. Anyone may ask, and each read scans the store that purchases are
 * written to. Therefore all wallets of a network share one read, which is at most ten seconds old, and a network is read once at a time.
 */
export function createOpenTabQueues({
  readLines,
  timesOn,
  clock = () => performance.now(),
}: OpenTabQueueOptions) {
  const reading = new Map<number, Promise<WalletQueues>>()

  async function readAll(chainId: number): Promise<WalletQueues> {
    try {
      return sumByWallet(await readLines(chainId), timesOn(chainId))
    } finally {
      reading.delete(chainId)
    }
  }

  const queues = createCache<number, WalletQueues>({
    // Returns the read that is running, if there is one. Otherwise, a caller that arrives during a background read would start a second read.
    load(chainId) {
      const current = reading.get(chainId) ?? readAll(chainId)
      reading.set(chainId, current)
      return current
    },
    ttlMs: maxAgeMs,
    refreshAfterMs,
    max: maxNetworks,
    now: clock,
  })

  return async ({
    chainId,
    wallet,
    half,
    now,
  }: Omit<QueueOptions, 'token'>): Promise<OpenTabQueue | null> => {
    const queue = (await queues.get(chainId))[half].get(wallet)
    if (queue === undefined) return null
    return { ...queue, settlesAt: new Date(Math.max(now.getTime(), queue.settlesAt.getTime())) }
  }
}

/** Amounts due to each wallet. 0: providers' wallets; 1: platforms' wallets. */
type WalletQueues = Record<0 | 1, Map<Address, OpenTabQueue>>

function sumByWallet(lines: readonly OpenLine[], times: OpenTabTimes): WalletQueues {
  const sumBy = (half: 0 | 1, walletOf: (line: OpenLine) => Address) => {
    const sums = new Map<Address, OpenTabQueue>()
    for (const [wallet, own] of Map.groupBy(lines, walletOf)) {
      const sum = sumLines(own, half, times)
      if (sum !== null) sums.set(wallet, sum)
    }
    return sums
  }
  return { 0: sumBy(0, ({ split }) => providerOfSplit(split)), 1: sumBy(1, ({ platform }) => platform) }
}

/** Sums what open lines owe to a wallet. Returns null if nothing is charged. `settlesAt` is in the past if a tab is due. */
export function sumLines(
  lines: readonly OpenLine[],
  half: 0 | 1,
  { least, timeMs }: OpenTabTimes,
): OpenTabQueue | null {
  const charged = lines.flatMap(({ split, charged, firstAt, ...line }) => {
    const fee = platformPart(split, charged)
    const part = half === 1 ? fee : charged - fee
    return firstAt !== null && part > 0n ? { ...line, part, firstAt } : []
  })
  if (charged.length === 0) return null
  const ends = charged.map(({ tabCharged, openedAt, expiresAt }) =>
    tabCharged < least ? expiresAt * 1000 : openedAt.getTime() + timeMs,
  )
  return {
    paymentCount: charged.reduce((sum, { requests }) => sum + requests, 0),
    amount: charged.reduce((sum, { part }) => sum + part, 0n),
    firstQueuedAt: new Date(
      charged.reduce((first, { firstAt }) => Math.min(first, firstAt.getTime()), Number.POSITIVE_INFINITY),
    ),
    settlesAt: new Date(ends.reduce((first, at) => Math.min(first, at))),
  }
}
