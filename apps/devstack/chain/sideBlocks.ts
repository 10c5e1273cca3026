import type { Hash, Hex, RpcBlock, RpcLog } from 'viem'
import type { Answer, JsonRpcRequest } from './edr.ts'

/** Maximum number of dropped blocks to keep; the oldest are discarded. The number exceeds the depth of any network's finality. */
const limit = 256

type SideBlock = { block: RpcBlock<'latest', true>; logs: RpcLog[] }
type LogFilter = { blockHash?: Hash; address?: Hex | Hex[]; topics?: (Hex | Hex[] | null)[] }
type Ask = <Result>(method: string, ...params: unknown[]) => Promise<Result>

/**
 * Keeps blocks that `evm_revert` drops, so that clients can still read them by block hash, with their transactions and logs. Real
 * nodes keep such blocks after a reorg, but EDR doesn't, so a client that was about to read such a block (as Ponder does) wouldn't find it.
 *
 * A transaction or receipt of a dropped block can't be found by the transaction's hash. A real node behaves the same: it finds transactions and
 * receipts only in the canonical chain.
 */
export function keepSideBlocks(answer: Answer): Answer {
  const kept = new Map<Hash, SideBlock>()
  const heights = new Map<unknown, bigint>()
  const ask = asker(answer)
  // Other requests wait until a snapshot or revert has finished. Otherwise a client could ask for a dropped block that isn't
  // stored here yet.
  let busy: Promise<unknown> = Promise.resolve()

  async function takeSnapshot(request: JsonRpcRequest): Promise<string> {
    const height = await readHeight(ask)
    const text = await answer(request)
    const { result } = JSON.parse(text)
    if (result !== undefined) heights.set(result, height)
    return text
  }

  async function revert(request: JsonRpcRequest): Promise<string> {
    const head = await readHeight(ask)
    const height = heights.get((request.params as unknown[])[0]) ?? -1n
    const first = height < head - BigInt(limit) ? head - BigInt(limit) + 1n : height + 1n
    for (const side of await readBlocks(ask, first, head)) {
      kept.delete(side.block.hash)
      kept.set(side.block.hash, side)
    }
    for (const hash of [...kept.keys()].slice(0, -limit)) kept.delete(hash)
    return answer(request)
  }

  const handlers: Record<string, Answer> = { evm_snapshot: takeSnapshot, evm_revert: revert }
  return async (request) => {
    const idle = busy.catch(() => {})
    const handle = handlers[request.method]
    if (handle) {
      const done = idle.then(() => handle(request))
      busy = done
      return done
    }
    await idle
    const result = recall(kept, request)
    return result === undefined ? answer(request) : JSON.stringify({ result })
  }
}

function asker(answer: Answer): Ask {
  return async <Result>(method: string, ...params: unknown[]) => {
    const { result, error } = JSON.parse(await answer({ method, params }))
    if (error !== undefined) throw new Error(`${method}: ${error.message}`)
    return result as Result
  }
}

async function readHeight(ask: Ask): Promise<bigint> {
  return BigInt(await ask<Hex>('eth_blockNumber'))
}

async function readBlocks(ask: Ask, first: bigint, last: bigint): Promise<SideBlock[]> {
  if (first > last) return []
  const range = { fromBlock: toQuantity(first), toBlock: toQuantity(last) }
  const logs = Map.groupBy(await ask<RpcLog[]>('eth_getLogs', range), ({ blockHash }) => blockHash)
  const blocks: SideBlock[] = []
  for (let number = first; number <= last; number++) {
    const block = await ask<SideBlock['block']>('eth_getBlockByNumber', toQuantity(number), true)
    blocks.push({ block, logs: logs.get(block.hash) ?? [] })
  }
  return blocks
}

/** Don't import viem: without it, the node's process starts in a tenth of the time. */
function toQuantity(number: bigint): Hex {
  return `0x${number.toString(16)}`
}

/** Returns the block or the logs that a request asks for, if they are of a dropped block; undefined if the node must respond. */
function recall(kept: ReadonlyMap<Hash, SideBlock>, { method, params }: JsonRpcRequest): unknown {
  const [wanted, isFull] = (params ?? []) as [Hash | LogFilter, boolean | undefined]
  if (method === 'eth_getBlockByHash') {
    const block = kept.get(wanted as Hash)?.block
    return block && (isFull ? block : { ...block, transactions: block.transactions.map(({ hash }) => hash) })
  }
  if (method !== 'eth_getLogs') return undefined
  const filter = wanted as LogFilter
  return filter.blockHash && kept.get(filter.blockHash)?.logs.filter((log) => isWanted(log, filter))
}

function isWanted(log: RpcLog, { address, topics = [] }: LogFilter): boolean {
  const isOneOf = (value: Hex | undefined, wanted: Hex | Hex[] | null | undefined) =>
    wanted == null || [wanted].flat().some((one) => one.toLowerCase() === value?.toLowerCase())
  return isOneOf(log.address, address) && topics.every((topic, index) => isOneOf(log.topics[index], topic))
}
