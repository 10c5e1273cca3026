import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { filterNodes } from '@tollkeeper/indexer/rpcFilter'
import { createLogSearch } from '@tollkeeper/sdk/audit/logSearch'
import { createLogRangeSearch } from '@tollkeeper/sdk/nodes/logRanges'
import {
  keepRefusal,
  type NodeErrorKind,
  readNodeAnswer,
  readNodeError,
  readRetryAfter,
} from '@tollkeeper/sdk/nodes/nodeErrors'
import { createRangeLength } from '@tollkeeper/sdk/nodes/rangeLength'
import { createPublicClient, type Hex, http, numberToHex, pad, type RpcLog } from 'viem'
import { afterAll, describe, expect, test } from 'vitest'
import {
  type LimitedNode,
  type Refusal,
  type RefusalOf,
  rangeLimit,
  spanOf,
  startLimitedNode,
} from '../support/limitedNode.ts'

// Nodes on free plans refuse long ranges of eth_getLogs, and calls at a high rate.

type Words = [kind: NodeErrorKind, status: number, code: number | null, message: string, blocks?: number]

const words: Words[] = [
  ['range', 400, -32600, 'eth_getLogs: up to a 10 block range is supported on this plan', 10],
  ['range', 413, -32615, 'eth_getLogs is limited to a 5 range', 5],
  ['range', 200, -32602, 'range 20000 exceeds limit of 10000', 10_000],
  ['range', 200, -32600, 'query returned more than 10000 results'],
  ['range', 200, -32000, 'block range is too wide'],
  ['range', 200, -32062, 'Block range is too large'],
  [
    'range',
    400,
    -32600,
    'Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range. Based on your parameters, this block range should work: [0x1, 0xa].',
    10,
  ],
  [
    'range',
    200,
    -32602,
    'You can make eth_getLogs requests with up to a 2K block range and no limit on the response size',
    2_000,
  ],
  ['range', 413, -32614, 'eth_getLogs is limited to a 10,000 range', 10_000],
  [
    'range',
    200,
    -32005,
    'query returned more than 10000 results. Try with this block range [0x1234, 0x1250].',
    29,
  ],
  ['range', 429, -32005, 'query returned more than 10000 results'],
  ['range', 429, -32005, 'block range limit exceeded'],
  ['range', 429, -32005, 'getLogs limited to 5 blocks on the free plan', 5],
  ['range', 200, -32701, 'exceed maximum block range: 50000', 50_000],
  ['range', 400, 35, 'ranges over 10000 blocks are not supported on freetier', 10_000],
  [
    'range',
    400,
    -32047,
    "Invalid eth_getLogs request. 'fromBlock'-'toBlock' range too large. Max range: 800",
    800,
  ],
  ['range', 200, -32000, 'eth_getLogs range is too large, max is 1k blocks', 1_000],
  ['range', 200, -32000, 'query exceeds max block range 100000', 100_000],
  ['range', 200, -32602, 'query exceeds max results 20000, retry with the range 1-2'],
  ['range', 200, -32000, 'eth_getLogs block range too large, range: 20000, max: 1024', 1_024],
  ['range', 200, -32000, 'response size should not greater than 10000000 bytes'],
  ['range', 200, -32000, 'eth_getLogs is limited to 0 - 50 blocks range', 50],
  ['range', 200, -32000, 'requested too many blocks from 1 to 3000, maximum is set to 2048', 2_048],
  ['range', 200, -32602, 'maximum [from, to] blocks distance: 2000', 2_000],
  ['range', 200, -32020, 'backend response too large'],
  ['range', 200, -32005, 'logs matched by query exceeds limit of 10000'],
  ['range', 200, -32602, 'Maximum allowed number of requested blocks is 1000', 1_000],
  ['range', 403, -32600, 'exceeds the range allowed for your plan (20000 > 1000)', 1_000],
  ['range', 200, -32000, 'query timeout exceeded'],
  ['range', 413, -32600, 'request entity too large'],
  ['rate', 429, -32005, 'daily request count exceeded, request rate limited'],
  ['rate', 200, -32005, 'limit exceeded'],
  ['rate', 429, 429, 'compute units per second capacity exceeded'],
  ['rate', 429, -32005, 'rate limit exceeded'],
  ['rate', 200, -32090, 'Too many requests, reason: call rate limit exhausted, retry in 10s'],
  ['rate', 200, -32016, 'over rate limit'],
  ['rate', 200, -32007, '50/second request limit reached - reduce calls per second or upgrade your account'],
  ['rate', 429, -32005, 'project ID request rate exceeded'],
  ['rate', 429, 429, 'Monthly capacity limit exceeded.'],
  ['rate', 429, -32005, 'capacity exceeded'],
  ['behind', 200, -32000, 'header not found'],
  ['behind', 200, -32001, 'block is not available yet'],
  ['behind', 200, -32602, 'block range extends beyond current head block'],
  [
    'behind',
    200,
    -32000,
    'One of the blocks specified in filter (fromBlock, toBlock or blockHash) cannot be found.',
  ],
  ['unsupported', 200, -32602, 'too many arguments, want at most 2'],
  ['unsupported', 200, -32601, 'the method eth_getLogs does not exist/is not available'],
  ['unsupported', 200, -32602, 'state override is not supported'],
  ['unsupported', 200, -32602, 'Invalid params: expected 2 params, got 3'],
  ['execution', 200, 3, 'execution reverted: too many requests, block range is too large'],
  ['execution', 200, -32000, 'out of gas'],
  ['execution', 200, -32000, 'invalid opcode: INVALID'],
  ['unreachable', 502, null, 'Bad gateway'],
  ['other', 200, -32603, 'internal error'],
  ['other', 200, -32000, 'insufficient funds for gas * price + value'],
]

describe('reading a node’s error', () => {
  test.each(words)(
    'args: classifies an error as "%s": status %i, code %s, %s',
    async (kind, status, code, message, blocks) => {
      const expected = { kind, ...(blocks !== undefined && { blocks: BigInt(blocks) }) }
      const answer = { message, ...(code !== null && { code }) }
      expect(readNodeAnswer({ ...answer, status })).toMatchObject(expected)
      // Check the same error in the form in which viem reports it.
      await using node = await startLimitedNode(
        () => null,
        () => ({ ...answer, http: status }),
      )
      const client = createPublicClient({
        transport: http(node.url, { retryCount: 0, onFetchResponse: keepRefusal }),
      })
      const error = await client.getBlockNumber().catch((error: unknown) => error)
      expect(readNodeError(error)).toMatchObject(expected)
    },
  )

  test('args: reads the time to wait from a header in seconds, an HTTP date, or the message', () => {
    const now = Date.parse('2026-11-28T12:00:00Z')
    expect(readRetryAfter('120')).toBe(120_000)
    expect(readRetryAfter('Sat, 28 Nov 2026 12:00:30 GMT', now)).toBe(30_000)
    expect(readRetryAfter('Sat, 28 Nov 2026 11:00:00 GMT', now)).toBe(0)
    for (const nothing of [null, '', 'soon']) expect(readRetryAfter(nothing)).toBeUndefined()
    const ofWords = (message: string) => readNodeAnswer({ status: 429, message }).retryAfterMs
    expect(ofWords('call rate limit exhausted, retry in 10s')).toBe(10_000)
    expect(ofWords('rate limited, try again in 250 ms')).toBe(250)
    expect(readNodeAnswer({ status: 429, message: 'retry in 10s', retryAfterMs: 5 }).retryAfterMs).toBe(5)
  })
})

describe('the number of blocks per call', () => {
  test('behavior: uses the range that the node suggests if it is smaller than the rejected range, otherwise half of the rejected range', () => {
    const length = createRangeLength(2_000n)
    length.refuse(2_000n, 10n)
    expect(length.current).toBe(10n)
    length.refuse(10n, 5_000n)
    expect(length.current).toBe(5n)
    for (let i = 0; i < 4; i++) length.refuse(length.current ?? 0n)
    expect(length.current).toBe(1n)
  })

  test('behavior: grows again up to its maximum, and tries less often if the node keeps rejecting', () => {
    const length = createRangeLength(100n)
    length.refuse(100n, 10n)
    const answersUntilRefusal = () => {
      for (let count = 0; ; count++) {
        const { current = 0n } = length
        if (current > 10n) {
          length.refuse(current)
          return count
        }
        length.accept(current)
      }
    }
    expect([answersUntilRefusal(), answersUntilRefusal(), answersUntilRefusal()]).toEqual([8, 16, 32])
    for (let i = 0; i < 1_000; i++) length.accept(length.current ?? 0n)
    expect(length.current).toBe(100n)
  })

  test('behavior: narrows only once if the node rejects several concurrent calls', () => {
    const length = createRangeLength(1_000n)
    for (let i = 0; i < 4; i++) length.refuse(1_000n)
    expect(length.current).toBe(500n)
  })
})

const nodes: LimitedNode[] = []
afterAll(() => Promise.all(nodes.map((node) => node.close())))

const token: Hex = '0x00000000000000000000000000000000000000aa'
const topic = pad('0x77')

/** Starts a node of a chain with one log in each block. */
async function startNode(refusalOf?: RefusalOf): Promise<LimitedNode> {
  const node = await startLimitedNode((call) => {
    if (spanOf(call) === undefined) return null
    const { fromBlock = '0x0', toBlock = '0x0' } = (call.params?.[0] ?? {}) as {
      fromBlock?: Hex
      toBlock?: Hex
    }
    const logs: Partial<RpcLog>[] = []
    for (let block = BigInt(fromBlock); block <= BigInt(toBlock); block++) {
      const transactionHash = pad(numberToHex(block))
      logs.push({ address: token, topics: [topic], blockNumber: numberToHex(block), transactionHash })
    }
    return logs
  }, refusalOf)
  nodes.push(node)
  return node
}

const clientOf = (node: LimitedNode) =>
  createPublicClient({ transport: http(node.url, { onFetchResponse: keepRefusal }) })

/** Returns the blocks of the logs, in the order in which a search finds them. */
async function search(node: LimitedNode, range: { to: number; isBackwards?: boolean }): Promise<number[]> {
  const blocks: number[] = []
  const searchRange = createLogRangeSearch(clientOf(node), { longest: 2_000n })
  const { to, isBackwards = false } = range
  const wanted = { fromBlock: 1n, toBlock: BigInt(to), isBackwards }
  for await (const { logs } of searchRange({ address: token, topics: [topic] }, wanted)) {
    const found = logs.map(({ blockNumber }) => Number(blockNumber))
    blocks.push(...(isBackwards ? found.reverse() : found))
  }
  return blocks
}

const upTo = (last: number) => Array.from({ length: last }, (_, i) => i + 1)

const refusals: [blocks: number, refusal: Refusal][] = [
  [10, { http: 400, code: -32600, message: 'eth_getLogs: up to a 10 block range is supported on this plan' }],
  [5, { http: 413, code: -32615, message: 'eth_getLogs is limited to a 5 range' }],
  [5, { http: 429, code: -32005, message: 'too many blocks requested' }],
  [1_000, { code: -32602, message: 'block range is too wide' }],
  [10, { http: 400, message: 'Bad Request' }],
  [100, { code: -32603, message: 'ask for less, please' }],
  [1, { code: -32000, message: 'only single blocks in this range' }],
]

describe('a search', () => {
  test.each(refusals)(
    'behavior: finds each log once if a node answers for at most %i blocks and otherwise returns %o',
    async (limit, refusal) => {
      const to = limit < 100 ? 120 : 2_500
      const node = await startNode(rangeLimit(limit, refusal))
      expect(await search(node, { to })).toEqual(upTo(to))
      const asked = node.calls.filter(({ isRefused }) => !isRefused).length
      expect(asked).toBeLessThan(3 * Math.ceil(to / limit) + 3)
      node.calls.splice(0)
      expect(await search(node, { to, isBackwards: true })).toEqual(upTo(to).reverse())
    },
  )

  test('behavior: asks for longer ranges again if the node rejected only one part of the chain', async () => {
    const node = await startNode((call) => {
      const { fromBlock } = (call.params?.[0] ?? {}) as { fromBlock?: Hex }
      const isBusy = Number(fromBlock) < 200 && (spanOf(call) ?? 0) > 20
      return isBusy ? { code: -32005, message: 'query returned more than 10000 results' } : undefined
    })
    expect(await search(node, { to: 4_000 })).toEqual(upTo(4_000))
    expect(Math.max(...node.calls.map((call) => spanOf({ ...call, params: [...call.params] }) ?? 0))).toBe(
      2_000,
    )
    const last = node.calls.at(-2)
    expect(spanOf({ method: 'eth_getLogs', params: [...(last?.params ?? [])] })).toBeGreaterThan(100)
  })

  test.each([
    ['an error code', { code: -32005, message: 'limit exceeded' }],
    [
      'an HTTP status and the header Retry-After',
      { http: 429, message: 'slow down', headers: { 'retry-after': '0' } },
    ],
  ])(
    'behavior: waits and keeps its range if the node reports a rate limit by %s',
    async (_, refusal: Refusal) => {
      let left = 4
      const node = await startNode((call) => (spanOf(call) !== undefined && left-- > 0 ? refusal : undefined))
      const blocks: number[] = []
      const find = createLogSearch(clientOf(node), token)
      for await (const logs of find([topic], 1n, 3_000n))
        blocks.push(...logs.map((log) => Number(log.blockNumber)))
      expect(blocks).toEqual(upTo(3_000))
      expect(node.calls.map((call) => spanOf({ ...call, params: [...call.params] }))).toEqual(
        Array.from({ length: 5 }, () => 3_000),
      )
    },
  )

  test('error: fails on a lasting rate limit, on a rejected single block, and on any other error', async () => {
    const find = async (refusal: Refusal, blocks: bigint) => {
      const node = await startNode(() => refusal)
      const searchRange = createLogRangeSearch(clientOf(node), { patienceMs: 500 })
      const range = { fromBlock: 1n, toBlock: blocks }
      for await (const _ of searchRange({ address: token, topics: [topic] }, range));
    }
    const lasting = { http: 429, message: 'daily quota exceeded', headers: { 'retry-after': '3600' } }
    await expect(find(lasting, 100n)).rejects.toThrow('daily quota')
    await expect(find({ code: -32005, message: 'limit exceeded' }, 100n)).rejects.toThrow('limit')
    await expect(find({ code: -32602, message: 'block range is too wide' }, 1n)).rejects.toThrow()
    await expect(find({ code: -32601, message: 'method not found' }, 100n)).rejects.toThrow('eth_getLogs')
  })

  test('behavior: stops at once when aborted', async () => {
    const node = await startNode(() => ({ code: -32005, message: 'limit exceeded' }))
    const stopping = new AbortController()
    const range = { fromBlock: 1n, toBlock: 10n, signal: stopping.signal }
    const found = createLogRangeSearch(clientOf(node))({ address: token, topics: [topic] }, range).next()
    stopping.abort()
    await expect(found).rejects.toThrow('aborted')
  })
})

/** Ponder's own handling of a node's rejection. */
const { getLogsRetryHelper } = createRequire(fileURLToPath(import.meta.resolve('ponder')))(
  '@ponder/utils',
) as {
  getLogsRetryHelper: (asked: object) => { shouldRetry: boolean; ranges: { fromBlock: Hex; toBlock: Hex }[] }
}

describe('the index', () => {
  const contracts = { settlements: [], token, platforms: [] }

  async function ask(url: string, from: number, to: number) {
    const range = { fromBlock: numberToHex(from), toBlock: numberToHex(to), topics: [topic], address: token }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_getLogs', params: [range] })
    const response = await fetch(url, { method: 'POST', body })
    const isJson = response.headers.get('content-type')?.includes('json') === true || response.ok
    type Body = { result?: RpcLog[]; error?: { message: string } }
    const { result, error } = (isJson ? await response.json() : {}) as Body
    return { status: response.status, blocks: result?.map((log) => Number(log.blockNumber)), error, range }
  }

  test.each(refusals)(
    'behavior: splits the range for a node that answers for at most %i blocks and otherwise returns %o',
    async (limit, refusal) => {
      const node = await startNode(rangeLimit(limit, refusal))
      const [url = ''] = filterNodes([{ url: node.url, ...contracts }])
      let [from, length] = [1, 500]
      const blocks: number[] = []
      while (from <= 500) {
        const found = await ask(url, from, Math.min(from + length - 1, 500))
        if (found.blocks) {
          blocks.push(...found.blocks)
          from += found.blocks.length
          continue
        }
        // Ponder understands each rejection that reaches it, and asks for fewer blocks.
        const { shouldRetry, ranges } = getLogsRetryHelper({ params: [found.range], error: found.error })
        const [first] = ranges
        expect(shouldRetry).toBe(true)
        const suggested = Number(first?.toBlock) - Number(first?.fromBlock)
        expect(suggested).toBeGreaterThan(0)
        expect(suggested).toBeLessThan(length)
        length = suggested
      }
      expect(blocks).toEqual(upTo(500))
    },
  )

  test('behavior: answers a rate limit with a status that slows Ponder down, and pauses the node for as long as it requests', async () => {
    let isLimited = true
    const node = await startNode(() =>
      isLimited ? { http: 200, code: -32090, message: 'Too many requests, retry in 300ms' } : undefined,
    )
    const [url = ''] = filterNodes([{ url: node.url, ...contracts }])
    expect((await ask(url, 1, 5)).status).toBe(429)
    isLimited = false
    const begun = performance.now()
    expect(await ask(url, 1, 5)).toMatchObject({ status: 200, blocks: upTo(5) })
    expect(performance.now() - begun).toBeGreaterThan(200)
  })

  test('behavior: while a node is paused, asks another node of the same chain', async () => {
    const limited = await startNode(() => ({
      http: 429,
      message: 'slower',
      headers: { 'retry-after': '60' },
    }))
    const other = await startNode()
    const [url = ''] = filterNodes([{ url: limited.url, others: [other.url], ...contracts }])
    expect((await ask(url, 1, 5)).status).toBe(429)
    expect((await ask(url, 1, 5)).blocks).toEqual(upTo(5))
    expect(limited.calls).toHaveLength(1)
  })
})
