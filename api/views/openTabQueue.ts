import type { OpenLine, TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import { createCache } from '@tollkeeper/runtime/cache'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
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
  now: Date
}

/** Reads what wallets wait for on open tabs; questions about one wallet that come together share an answer. */
export function createOpenTabQueues(tabReads: Pick<TabReads, 'readOpenLines'>) {
  const lines = createCache<string, OpenLine[]>({
    load: (key) => tabReads.readOpenLines(JSON.parse(key)),
    ttlMs: 0,
    max: 1_000,
    now: () => performance.now(),
  })

  return async (
    { chainId, token, wallet, half }: Omit<QueueQuestion, 'now'>,
    times: OpenTabTimes,
  ): Promise<OpenTabQueue | null> =>
    sumLines(await lines.get(JSON.stringify({ chainId, token, wallet, isPlatform: half === 1 })), half, times)
}

/** @returns null if nothing is charged. */
export function sumLines(
  lines: readonly OpenLine[],
  half: 0 | 1,
  { least, timeMs, now }: OpenTabTimes,
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
    settlesAt: new Date(
      Math.max(
        now.getTime(),
        ends.reduce((first, at) => Math.min(first, at)),
      ),
    ),
  }
}
