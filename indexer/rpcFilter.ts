import { setTimeout as delay } from 'node:timers/promises'
import { createLogRangeSearch, type LogFilter, TooManyParts } from '@tollkeeper/sdk/nodes/logRanges'
import {
  type NodeAnswer,
  NodeRefusal,
  readNodeAnswer,
  readRetryAfter,
} from '@tollkeeper/sdk/nodes/nodeErrors'
import { createRangeLength, type RangeLength } from '@tollkeeper/sdk/nodes/rangeLength'
import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import {
  type Address,
  getAbiItem,
  type Hex,
  hexToBigInt,
  isHex,
  pad,
  type RpcLog,
  toEventSelector,
} from 'viem'

// Sits between Ponder and the nodes, and follows the same rules as the keeper and the audit: it requests fewer blocks if a node refuses a range, and
// waits if a node limits the rate. Ponder understands the error messages of only some providers. If it doesn't understand a message, it ends.
//
// It also removes data that the index doesn't need. A batch's receipt proves everything that its transaction did, so Ponder doesn't need the
// transaction's other logs. Half of these logs match one of our filters, because they are transfers of fees. Ponder would store each of them, and
// call a handler that has nothing to do.

const batchSettled = toEventSelector(getAbiItem({ abi: batchSettlementAbi, name: 'BatchSettled' }))
const transfer = toEventSelector(getAbiItem({ abi: usdcAbi, name: 'Transfer' }))

/** A node, and the addresses on its chain that the index reads. */
export type FilteredNode = {
  url: string
  /** Other nodes of the same chain, used if this node can't be reached. Without them, Ponder would keep using this node. */
  others?: readonly string[]
  /** The contracts whose BatchSettled events are batches. */
  settlements: readonly Address[]
  token: Address
  /** Recipients of the platform's parts. */
  platforms: readonly Address[]
}

type Log = Pick<RpcLog, 'address' | 'topics' | 'blockHash' | 'transactionHash'>
type Question = {
  id: unknown
  method: string
  params?: [Filter?, ...unknown[]]
}
type Answer = { status: number; body: string; retryAfterMs?: number }
type Filter = { fromBlock?: Hex; toBlock?: Hex; address?: unknown; topics?: unknown[] }

/** A node, and the range length that it accepts, as far as it is known. */
type AskedNode = FilteredNode & { length: RangeLength }

/** Maximum number of requests into which one of Ponder's requests is split, because Ponder waits only ten seconds for the whole answer. */
const mostParts = 16n
/** Time at which each node that limits the rate may be used again, by URL. */
const restsUntil = new Map<string, number>()
const longestRestMs = 60_000

/** Number of filtered nodes so far. */
let filtered = 0

/**
 * Replaces `fetch` by a function that removes data that the index doesn't need from each node's answers, and splits ranges that a node refuses. It
 * passes on anything else unchanged, including errors; only the status of a rate limit becomes 429, which Ponder understands. The filter replaces
 * `fetch`, because Ponder accepts several nodes only as URLs.
 *
 * @returns a URL for each node. Its host doesn't exist: only this process's `fetch` handles it.
 */
export function filterNodes(nodes: readonly FilteredNode[]): string[] {
  const byUrl = new Map(
    nodes.map((node): [string, AskedNode] => {
      const asked = { ...node, length: createRangeLength() }
      return [`http://node-${++filtered}.invalid/`, asked]
    }),
  )
  const fetchDirectly = globalThis.fetch
  globalThis.fetch = async (input, init) => {
    const node = byUrl.get(input instanceof Request ? input.url : String(input))
    if (node === undefined) return fetchDirectly(input, init)
    // Reuses Ponder's Request, because a second one would copy its body and signal again.
    const request = input instanceof Request && init === undefined ? input : new Request(input, init)
    const { status, body } = await answer(node, await request.text(), request.signal)
    return new Response(body, { status })
  }
  return [...byUrl.keys()]
}

async function answer(node: AskedNode, body: string, signal: AbortSignal): Promise<Answer> {
  const { id, method, params = [] } = JSON.parse(body) as Question
  const ask = (body: string) => askOneOf([node.url, ...(node.others ?? [])], body, signal)
  if (method === 'eth_getBlockByNumber' || method === 'eth_getBlockByHash') {
    const found = await ask(body)
    return { ...found, body: withoutCalldata(found.body) }
  }
  const [filter] = params
  if (method !== 'eth_getLogs' || filter === undefined) return ask(body)
  if (filter.fromBlock === undefined) {
    return changeLogs(await ask(body), id, (logs) => {
      const batches = batchesOf(logs, node)
      const kept = logs.filter((log) => isRead(log, node) && !isExplained(log, batches))
      // Keep at least one log, because an empty answer would contradict the block's bloom filter, and Ponder would reject it.
      return kept.length > 0 ? kept : logs.slice(0, 1)
    })
  }
  const askRange = (filter: Filter) => askInParts(node, { id, filter }, ask)
  if (filter.topics?.[0] !== transfer) return askRange(filter)
  const { fromBlock, toBlock } = filter
  const topics = [batchSettled, null, null, pad(node.token).toLowerCase()]
  const ofBatches = { fromBlock, toBlock, address: node.settlements, topics }
  const [transfers, settled] = await Promise.all([askRange(filter), askRange(ofBatches as Filter)])
  const batches = batchesOf(readLogs(settled) ?? [], node)
  return changeLogs(transfers, id, (logs) => logs.filter((log) => !isExplained(log, batches)))
}

const calldataStart = '"input":"0x'

/** Removes the calldata of a block's transactions. It uses `indexOf`, because a regular expression takes ten times as long on such a long text. */
function withoutCalldata(body: string): string {
  let kept = ''
  let from = 0
  for (let at = body.indexOf(calldataStart); at !== -1; at = body.indexOf(calldataStart, from)) {
    kept += body.slice(from, at + calldataStart.length)
    from = body.indexOf('"', at + calldataStart.length)
    if (from === -1) return body
  }
  return kept + body.slice(from)
}

/**
 * Requests a range's logs, in parts if a node refuses the whole range. If too many parts would be needed, returns an error from which Ponder learns
 * the maximum range.
 */
async function askInParts(
  { length }: AskedNode,
  { id, filter }: { id: unknown; filter: Filter },
  ask: (body: string) => Promise<Answer>,
): Promise<Answer> {
  const askPart = (filter: object) =>
    ask(JSON.stringify({ jsonrpc: '2.0', id, method: 'eth_getLogs', params: [filter] }))
  const { fromBlock, toBlock } = filter
  if (!isHex(fromBlock) || !isHex(toBlock)) return askPart(filter)
  let last: Answer = { status: 200, body: '' }
  const request = async ({ params }: { params: [object] }) => {
    last = await askPart({ ...filter, ...params[0] })
    const logs = readLogs(last)
    if (logs === null) throw new NodeRefusal(readRefusal(last))
    return logs as RpcLog[]
  }
  const search = createLogRangeSearch({ request }, { length, mostParts, patienceMs: 0 })
  const range = { fromBlock: hexToBigInt(fromBlock), toBlock: hexToBigInt(toBlock) }
  const found: Log[] = []
  try {
    for await (const { logs } of search(filter as LogFilter, range)) found.push(...logs)
  } catch (error) {
    if (error instanceof NodeRefusal) return last
    if (!(error instanceof TooManyParts)) throw error
    // Ponder understands this message, and requests smaller ranges.
    const message = `Max range: ${error.longest}`
    return { status: 200, body: JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32_602, message } }) }
  }
  return { status: 200, body: JSON.stringify({ jsonrpc: '2.0', id, result: found }) }
}

/** Sends a request to the first of these nodes that can be reached. Nodes that limit the rate come last. */
async function askOneOf(urls: readonly string[], body: string, signal: AbortSignal): Promise<Answer> {
  const [first = '', ...others] = urls.toSorted((a, b) => restOf(a) - restOf(b))
  await untilRested(first, signal)
  const { url, authorization } = splitCredentials(first)
  const headers = { 'content-type': 'application/json', ...(authorization && { authorization }) }
  try {
    const response = await fetch(url, { method: 'POST', headers, body, signal })
    const retryAfterMs = readRetryAfter(response.headers.get('retry-after'))
    const found = {
      status: response.status,
      body: await response.text(),
      ...(retryAfterMs && { retryAfterMs }),
    }
    return markLimit(first, found)
  } catch (error) {
    if (signal.aborted || others.length === 0) throw error
    return askOneOf(others, body, signal)
  }
}

function restOf(url: string): number {
  return Math.max(0, (restsUntil.get(url) ?? 0) - Date.now())
}

async function untilRested(url: string, signal: AbortSignal): Promise<void> {
  const ms = restOf(url)
  if (ms > 0) await delay(ms, undefined, { signal })
}

/** Replaces the status of a rate limit with 429, which Ponder understands, and pauses requests to the node for the time that the node asked for. */
function markLimit(url: string, found: Answer): Answer {
  // Errors are short. A long answer contains logs, which needn't be parsed twice.
  if (found.status === 200 && (found.body.length > 4_096 || !found.body.includes('"error"'))) return found
  const { kind, retryAfterMs } = readNodeAnswer(readRefusal(found))
  if (kind !== 'rate') return found
  if (retryAfterMs) restsUntil.set(url, Date.now() + Math.min(retryAfterMs, longestRestMs))
  return { ...found, status: 429 }
}

function readRefusal({ status, body, retryAfterMs }: Answer): NodeAnswer {
  const answer = { status, ...(retryAfterMs !== undefined && { retryAfterMs }) }
  try {
    const { error } = JSON.parse(body) as { error?: { code?: number; message?: string } | string }
    if (typeof error === 'string') return { ...answer, message: error }
    const { code, message = '' } = error ?? {}
    return { ...answer, message, ...(typeof code === 'number' && { code }) }
  } catch {
    return { ...answer, message: body.slice(0, 1_000) }
  }
}

/** Moves a URL's password to a header, because `fetch` would reject the URL and show the password in its error, which is logged. */
function splitCredentials(text: string): { url: string; authorization?: string } {
  const url = new URL(text)
  const { username, password } = url
  if (username === '' && password === '') return { url: text }
  url.username = ''
  url.password = ''
  const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`)
  return { url: url.href, authorization: `Basic ${credentials.toString('base64')}` }
}

function isBatch({ address, topics }: Log, { settlements, token }: FilteredNode): boolean {
  return (
    settlements.some((one) => isSame(address, one)) &&
    topics[0] === batchSettled &&
    isSame(topics[3], pad(token))
  )
}

function isRead(log: Log, node: FilteredNode): boolean {
  const { address, topics } = log
  const isTransfer = isSame(address, node.token) && topics[0] === transfer
  return (isTransfer && node.platforms.some((to) => isSame(topics[2], pad(to)))) || isBatch(log, node)
}

/** Returns the transactions that contain a batch. */
function batchesOf(logs: readonly Log[], node: FilteredNode): Set<string> {
  return new Set(logs.filter((log) => isBatch(log, node)).map(transactionOf))
}

function isExplained(log: Log, batches: ReadonlySet<string>): boolean {
  return log.topics[0] === transfer && batches.has(transactionOf(log))
}

function transactionOf({ blockHash, transactionHash }: Log): string {
  return `${blockHash} ${transactionHash}`
}

function isSame(a: Hex | undefined, b: Hex): boolean {
  return a?.toLowerCase() === b.toLowerCase()
}

function readLogs({ status, body }: Answer): Log[] | null {
  if (status !== 200) return null
  const { result } = JSON.parse(body) as { result?: Log[] | null }
  return result ?? null
}

function changeLogs(found: Answer, id: unknown, change: (logs: Log[]) => Log[]): Answer {
  const logs = readLogs(found)
  return logs ? { ...found, body: JSON.stringify({ jsonrpc: '2.0', id, result: change(logs) }) } : found
}
