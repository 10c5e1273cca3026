import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { type Address, getAbiItem, type Hex, pad, toEventSelector } from 'viem'

// Stands between Ponder and the nodes. A batch's receipt proves all that its transaction did, so Ponder doesn't need the
// transaction's other logs. Half of them match a filter of ours, as Transfers of fees; Ponder would store
// each, and call a handler for it that has nothing to do.

const batchSettled = toEventSelector(getAbiItem({ abi: batchSettlementAbi, name: 'BatchSettled' }))
const transfer = toEventSelector(getAbiItem({ abi: usdcAbi, name: 'Transfer' }))

/** A node, and what the index reads of its chain. */
export type FilteredNode = {
  url: string
  /** Other nodes of its chain, for when it can't be reached: Ponder itself would go on asking it. */
  others?: readonly string[]
  /** The contracts whose BatchSettled are batches. */
  settlements: readonly Address[]
  token: Address
  /** Recipients of the platform's parts. */
  platforms: readonly Address[]
}

type Log = { address: Hex; topics: readonly Hex[]; blockHash: Hex; transactionHash: Hex }
type Question = {
  id: unknown
  method: string
  params?: [{ fromBlock?: Hex; toBlock?: Hex; topics?: unknown[] }?, ...unknown[]]
}
type Answer = { status: number; body: string }

/** Number of filtered nodes so far. */
let filtered = 0

/**
 * Makes `fetch` leave out of each node's answers what the index doesn't need. Anything else, errors included, is passed on
 * as it came. It replaces URLs, because Ponder takes several nodes only as URLs that it fetches.
 *
 * @returns for each node a URL of a host that doesn't exist: only the `fetch` of this process knows it.
 */
export function filterNodes(nodes: readonly FilteredNode[]): string[] {
  const byUrl = new Map(nodes.map((node) => [`http://node-${++filtered}.invalid/`, node]))
  const fetchDirectly = globalThis.fetch
  globalThis.fetch = async (input, init) => {
    const node = byUrl.get(input instanceof Request ? input.url : String(input))
    if (node === undefined) return fetchDirectly(input, init)
    const request = new Request(input, init)
    const { status, body } = await answer(node, await request.text(), request.signal)
    return new Response(body, { status })
  }
  return [...byUrl.keys()]
}

async function answer(node: FilteredNode, body: string, signal: AbortSignal): Promise<Answer> {
  const { id, method, params = [] } = JSON.parse(body) as Question
  const ask = (body: string) => askOneOf([node.url, ...(node.others ?? [])], body, signal)
  if (method === 'eth_getBlockByNumber' || method === 'eth_getBlockByHash') {
    const found = await ask(body)
    return { ...found, body: found.body.replace(/"input":"0x[0-9a-fA-F]+"/g, '"input":"0x"') }
  }
  const [filter] = params
  if (method !== 'eth_getLogs' || filter === undefined) return ask(body)
  if (filter.fromBlock === undefined) {
    return changeLogs(await ask(body), id, (logs) => {
      const batches = batchesOf(logs, node)
      const kept = logs.filter((log) => isRead(log, node) && !isExplained(log, batches))
      // No log at all would contradict the block's bloom.
      return kept.length > 0 ? kept : logs.slice(0, 1)
    })
  }
  if (filter.topics?.[0] !== transfer) return ask(body)
  const { fromBlock, toBlock } = filter
  const topics = [batchSettled, null, null, pad(node.token).toLowerCase()]
  const ofBatches = { fromBlock, toBlock, address: node.settlements, topics }
  const [transfers, settled] = await Promise.all([
    ask(body),
    ask(JSON.stringify({ jsonrpc: '2.0', id, method, params: [ofBatches] })),
  ])
  const batches = batchesOf(readLogs(settled) ?? [], node)
  return changeLogs(transfers, id, (logs) => logs.filter((log) => !isExplained(log, batches)))
}

/** Asks the first of these nodes that can be reached. */
async function askOneOf(
  [first = '', ...others]: readonly string[],
  body: string,
  signal: AbortSignal,
): Promise<Answer> {
  const { url, authorization } = splitCredentials(first)
  const headers = { 'content-type': 'application/json', ...(authorization && { authorization }) }
  try {
    const response = await fetch(url, { method: 'POST', headers, body, signal })
    return { status: response.status, body: await response.text() }
  } catch (error) {
    if (signal.aborted || others.length === 0) throw error
    return askOneOf(others, body, signal)
  }
}

/** Takes the password out of a URL: `fetch` would refuse it, and show it in the error that is logged. */
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

/** The transactions with a batch. */
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
