import { type Hex, numberToHex } from 'viem'

export type Call = { jsonrpc: '2.0'; id: number | string; method: string; params?: unknown[] }
export type Reply = {
  jsonrpc: '2.0'
  id: number | string
  result?: unknown
  error?: { code: number; message: string }
}

/** Returns the answer of a node whose head is still `head`, derived from the answer of an up-to-date node. */
export async function askStaleNode(
  call: Call,
  head: bigint,
  send: (call: Call) => Promise<Reply>,
): Promise<Reply> {
  const instead = (result: unknown): Reply => ({ jsonrpc: '2.0', id: call.id, result })
  if (call.method === 'eth_blockNumber') return instead(numberToHex(head))
  if (call.method === 'eth_getLogs') {
    const { fromBlock, toBlock, blockHash, ...filter } = (call.params?.[0] ?? {}) as LogFilter
    if (blockHash !== undefined) return send(call)
    if (isLater(fromBlock, head)) return instead([])
    const end = isLater(toBlock, head) ? numberToHex(head) : toBlock
    return send({
      ...call,
      params: [{ ...filter, fromBlock: atHead(fromBlock, head), toBlock: atHead(end, head) }],
    })
  }
  // The second parameter of a state read is a block. A node can't answer for a block that it hasn't seen.
  const at = call.params?.[1]
  if (stateReads.has(call.method) && typeof at === 'string' && isLater(at, head)) {
    return { jsonrpc: '2.0', id: call.id, error: { code: -32000, message: 'header not found' } }
  }
  const params = (call.params ?? []).map((param) => (typeof param === 'string' ? atHead(param, head) : param))
  const reply = await send({ ...call, params })
  const { blockNumber, number } = (reply.result ?? {}) as { blockNumber?: Hex | null; number?: Hex }
  return isLater(blockNumber ?? number, head) ? instead(null) : reply
}

const stateReads = new Set(['eth_call', 'eth_getBalance', 'eth_getCode', 'eth_getTransactionCount'])

type LogFilter = { fromBlock?: string; toBlock?: string; blockHash?: Hex }

const tags = ['latest', 'pending', 'safe', 'finalized']

function atHead(block: string | undefined, head: bigint): string {
  return block === undefined || tags.includes(block) ? numberToHex(head) : block
}

function isLater(block: string | undefined, head: bigint): boolean {
  return block?.startsWith('0x') === true && BigInt(block) > head
}
