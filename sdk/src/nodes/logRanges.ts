import {
  type Address,
  BaseError,
  type Hex,
  type LogTopic,
  numberToHex,
  type RpcLog,
  TimeoutError,
} from 'viem'
import { NodeRefusal, readNodeError } from './nodeErrors.ts'
import { createRangeLength, type RangeLength } from './rangeLength.ts'

export type LogFilter = { address: Address | Address[]; topics: LogTopic[] }

/** The logs of a part of a range. */
export type LogPart = { fromBlock: bigint; toBlock: bigint; logs: RpcLog[] }

export type LogRange = {
  fromBlock: bigint
  toBlock: bigint
  isBackwards?: boolean
  /** When it fires, the search ends before its next request. */
  signal?: AbortSignal | undefined
}

type LogOptions = {
  method: 'eth_getLogs'
  params: [{ address: Address | Address[]; topics: LogTopic[]; fromBlock: Hex; toBlock: Hex }]
}

/** A viem client, or any other object that calls a node. */
export type LogClient = {
  request: (question: LogOptions, options: { retryCount: 0 }) => Promise<RpcLog[]>
}

/** Yields the logs that match a filter, one block range at a time, in chain order or, if `isBackwards`, in reverse. */
export type LogRangeSearch = (filter: LogFilter, range: LogRange) => AsyncGenerator<LogPart>

export type LogRangeSearchOptions = {
  /** Maximum number of blocks per request. Default: unlimited, until a node rejects the range. */
  longest?: bigint
  /** The range length that earlier searches through this node have learned. Default: none. */
  length?: RangeLength
  /** Maximum time in ms to wait for one response while the node limits the rate. Default 120,000. */
  patienceMs?: number
  /** Maximum number of further requests after a rejection. Default: unlimited. */
  mostParts?: bigint
}

/** Thrown if the range needs more requests than the search may send. */
export class TooManyParts extends Error {
  override readonly name = 'TooManyParts'
  /** Maximum number of blocks that the remaining requests could cover. */
  readonly longest: bigint

  constructor(longest: bigint) {
    super(`the node accepts so few blocks per request that at most ${longest} blocks can be searched at once`)
    this.longest = longest
  }
}

/** Minimum pause in ms, even if a node allows an immediate retry. */
const shortestPauseMs = 50
const firstPauseMs = 200
const longestPauseMs = 2_000
/** Maximum number of retries: `unreachable` if no node responded, `behind` if the node doesn't have the block yet. */
const repeats = { unreachable: 3, behind: 5 }

/**
 * Searches logs through nodes that limit the range, the results or the rate. If a node rejects a range, the search requests fewer blocks, and later
 * tries longer ranges again. If a node limits the rate, the search waits. Later searches reuse the learned limits.
 */
export function createLogRangeSearch(client: LogClient, options: LogRangeSearchOptions = {}): LogRangeSearch {
  const { longest, length = createRangeLength(longest), patienceMs = 120_000, mostParts } = options

  return async function* search({ address, topics }, { fromBlock, toBlock, isBackwards = false, signal }) {
    let [low, high] = [fromBlock, toBlock]
    const patience = createPatience(patienceMs, signal)
    while (low <= high) {
      signal?.throwIfAborted()
      const left = high - low + 1n
      const blocks = length.current !== undefined && length.current < left ? length.current : left
      const from = isBackwards ? high - blocks + 1n : low
      const to = from + blocks - 1n
      const filter = { address, topics, fromBlock: numberToHex(from), toBlock: numberToHex(to) }
      let logs: RpcLog[]
      try {
        // Retry here and not in viem, because only this code knows the meaning of a rejection.
        logs = await client.request({ method: 'eth_getLogs', params: [filter] }, { retryCount: 0 })
      } catch (error) {
        if (!narrow(error, blocks, length)) await patience.wait(error)
        else if (mostParts !== undefined && length.current !== undefined && left > length.current * mostParts)
          throw new TooManyParts(length.current * mostParts)
        continue
      }
      patience.reset()
      length.accept(blocks)
      yield { fromBlock: from, toBlock: to, logs }
      if (isBackwards) high = from - 1n
      else low = to + 1n
    }
  }
}

/**
 * Returns whether a smaller request may help after an error, and reduces the range if so. It may also help if a node rejects a request in unknown
 * words or takes too long.
 */
function narrow(error: unknown, blocks: bigint, length: RangeLength): boolean {
  if (blocks === 1n) return false
  const { kind, blocks: suggested } = readNodeError(error)
  const isTimeout =
    error instanceof BaseError && error.walk((cause) => cause instanceof TimeoutError) !== null
  const isAnswer = error instanceof BaseError || error instanceof NodeRefusal
  if (kind !== 'range' && !isTimeout && !(kind === 'other' && isAnswer)) return false
  length.refuse(blocks, suggested)
  return true
}

/** Creates a function that waits for as long as an error requires. */
function createPatience(patienceMs: number, signal: AbortSignal | undefined) {
  let waitedMs = 0
  let times = 0
  return {
    reset() {
      waitedMs = 0
      times = 0
    },
    /** Waits before the request is repeated. @throws the error itself, if waiting wouldn't help or has already taken too long. */
    async wait(error: unknown): Promise<void> {
      const { kind, retryAfterMs } = readNodeError(error)
      const ownMs = Math.min(firstPauseMs * 2 ** times, longestPauseMs)
      const pauseMs = retryAfterMs === undefined ? ownMs : Math.max(retryAfterMs, shortestPauseMs)
      const isWorthIt = kind === 'rate' || (kind in repeats && times < repeats[kind as keyof typeof repeats])
      if (!isWorthIt || waitedMs + pauseMs > patienceMs) throw error
      times += 1
      waitedMs += pauseMs
      await pause(pauseMs, signal)
    },
  }
}

/** Resolves after a time, or immediately when the signal fires. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    signal?.addEventListener('abort', end)
  })
}
