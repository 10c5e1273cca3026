import type { OpenLine } from '@tollkeeper/ledger/tabs/tabReads'
import { createCache } from '@tollkeeper/runtime/cache'
import { platformPart, providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import type { QueueQuestion } from './settlementQueue.ts'

/** What a wallet waits for on tabs that the ledger doesn't have yet. */
export type OpenTabQueue = {
  /** Requests that are charged. */
  paymentCount: number
  amount: bigint
  firstQueuedAt: Date
  /** When the first of these tabs has settled at the latest. */
  settlesAt: Date
}

export type OpenTabTimes = {
  /** USDC base units: a smaller tab waits for more, and ends when it runs out. */
  least: bigint
  /** How long a payment waits at most; a tab's wait begins when it is opened. */
  timeMs: number
}

type OpenTabQueueOptions = {
  /** Reads the open lines of a network. */
  readLines: (chainId: number) => Promise<OpenLine[]>
  timesOn: (chainId: number) => OpenTabTimes
  /** Monotonic milliseconds. */
  clock?: () => number
}

/** After how many milliseconds the tabs of a network are read again, behind the answer. */
const refreshAfterMs = 5_000
/** Maximum age of an answer in milliseconds. */
const maxAgeMs = 10_000
/** Networks are the operator's choice, so there are few. */
const maxNetworks = 100

/**
 * Reads what wallets wait for on open tabs. Anyone may ask, and the answer takes a scan of the store in which purchases are written.
 * So all wallets of a network share one read, which is at most ten seconds old, and there is one read of a network at a time.
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
    // The cache itself would start a second read for those who wait during one in the background.
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
  }: Omit<QueueQuestion, 'token'>): Promise<OpenTabQueue | null> => {
    const queue = (await queues.get(chainId))[half].get(wallet)
    if (queue === undefined) return null
    return { ...queue, settlesAt: new Date(Math.max(now.getTime(), queue.settlesAt.getTime())) }
  }
}

/** By half: what each provider's wallet waits for, and each platform's. */
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

/** @returns null if nothing is charged. `settlesAt` is in the past if a tab is due. */
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
