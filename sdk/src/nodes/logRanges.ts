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

/** The logs of one part of a range. */
export type LogPart = { fromBlock: bigint; toBlock: bigint; logs: RpcLog[] }

export type LogRange = {
  fromBlock: bigint
  toBlock: bigint
  isBackwards?: boolean
  /** Ends the search before its next question. */
  signal?: AbortSignal | undefined
}

type LogQuestion = {
  method: 'eth_getLogs'
  params: [{ address: Address | Address[]; topics: LogTopic[]; fromBlock: Hex; toBlock: Hex }]
}

/** A client of viem's, or whatever else asks a node. */
export type LogClient = {
  request: (question: LogQuestion, options: { retryCount: 0 }) => Promise<RpcLog[]>
}

/** Yields the logs that match a filter part by part, in the order of the chain or, if `isBackwards`, from its end. */
export type LogRangeSearch = (filter: LogFilter, range: LogRange) => AsyncGenerator<LogPart>

export type LogRangeSearchOptions = {
  /** Maximum blocks of one question. Default: any number, until a node refuses. */
  longest?: bigint
  /** What is known already about the node's limit. Default: nothing. */
  length?: RangeLength
  /** Maximum milliseconds to wait for one answer while the node limits the rate. Default 120,000. */
  patienceMs?: number
  /** Maximum number of questions that are left for a search after a refusal. Default: any number. */
  mostParts?: bigint
}

/** The range takes more questions than the search may ask. */
export class TooManyParts extends Error {
  override readonly name = 'TooManyParts'
  /** Maximum number of blocks for which they would do. */
  readonly longest: bigint

  constructor(longest: bigint) {
    super(`the node answers for so few blocks that at most ${longest} can be searched at once`)
    this.longest = longest
  }
}

/** Even where a node says that it may be asked again at once. */
const shortestPauseMs = 50
const firstPauseMs = 200
const longestPauseMs = 2_000
/** How often a question that no node answered is repeated, and one about a block that isn't there yet. */
const repeats = { unreachable: 3, behind: 5 }

/**
 * Searches logs through nodes that limit the range, the results or the rate. It asks for less when a node refuses a range, waits
 * when it limits the rate, and asks for more again after a while. What it learned stays for its next searches.
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
        // Repeated here, where it is known what a refusal means.
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

/** Whether asking for less may help: it may after a refusal in words that nobody knows, and after a question that took too long. */
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

/** Waits as long as an error asks for. */
function createPatience(patienceMs: number, signal: AbortSignal | undefined) {
  let waitedMs = 0
  let times = 0
  return {
    reset() {
      waitedMs = 0
      times = 0
    },
    /** @throws the error, if waiting wouldn't help or has taken too long. */
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

/** Resolves after a time, or at once when the signal is aborted. */
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
