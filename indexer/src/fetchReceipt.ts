import type { Context } from 'ponder:registry'
import { createPublicClient, type Hex, http, numberToHex, type PublicClient, pad } from 'viem'
import { type Addresses, batchSettled, type Reading, type Receipt, readReceipt } from './receipt.ts'

type Chain = Pick<Context, 'chain'>

export type TransactionPlace = { transactionHash: Hex; blockHash: Hex }

/** A node behind a load balancer may not know yet what another one has announced: 15 seconds in all. */
const retryDelaysMs = [125, 250, 500, 1_000, 2_000, 4_000, 8_000]

/** The last one read: a transaction brings many events in a row, and they share a receipt, or that nobody has it. */
let last: { key: string; found: FoundReceipt | null } | undefined

export type FoundReceipt = { receipt: Receipt; reading: Reading }

/**
 * Fetches and reads a transaction's receipt as it stands in the given block; null if no node has it.
 *
 * Not through `context.client`: Ponder keeps a receipt by its transaction's hash alone and drops it at no reorg, so the
 * same bytes mined again would get the receipt of the block that is gone.
 *
 * A node that can't be reached throws: then Ponder stops, and starts again where it was.
 */
export async function fetchReceipt(
  { chain }: Chain,
  place: TransactionPlace,
  addresses: Addresses,
): Promise<FoundReceipt | null> {
  const key = keyOf(chain.id, place)
  if (last?.key === key) return last.found
  const early = plans.get(chain.id)?.underWay.get(key)
  plans.get(chain.id)?.underWay.delete(key)
  for (const delay of [0, ...retryDelaysMs]) {
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay))
    const receipt = (delay === 0 && (await early)) || (await request(chain.name, place))
    if (receipt) {
      last = { key, found: { receipt, reading: readReceipt(receipt.logs, addresses) } }
      return last.found
    }
  }
  last = { key, found: null }
  return null
}

/** The batches up to a block: those not asked for yet, and the receipts on their way before their turn. */
type Plan = {
  until: bigint
  next: Map<string, TransactionPlace> // by key: a transaction may hold several batches
  underWay: Map<string, Promise<Receipt | null>>
}

const plans = new Map<number, Plan>()
const depth = 16
const planBlocks = 2_000n
let lastCall = 0

/**
 * Has the receipts of the batches that follow fetched while this one is handled. Only speed hangs on it.
 *
 * Handlers run one after the other, so without it reading the past waits for one answer at a time. Near the head of the
 * chain nothing follows, and nothing is asked.
 */
export async function fetchAhead(
  { chain }: Chain,
  blockNumber: bigint,
  { settlement, token }: Addresses,
): Promise<void> {
  const isStreaming = performance.now() - lastCall < 500
  lastCall = performance.now()
  if (!isStreaming) return
  let plan = plans.get(chain.id)
  if (plan === undefined || blockNumber > plan.until) {
    const until = blockNumber + planBlocks
    const topics: (Hex | null)[] = [batchSettled, null, null, pad(token)]
    const range = { fromBlock: numberToHex(blockNumber + 1n), toBlock: numberToHex(until) }
    const [node] = nodesOf(chain.name)
    const logs = await node
      ?.request({ method: 'eth_getLogs', params: [{ address: settlement, topics, ...range }] })
      .catch(() => []) // some nodes take a smaller range only: then it goes without
    const next = new Map<string, TransactionPlace>()
    for (const { transactionHash, blockHash } of logs ?? []) {
      if (!transactionHash || !blockHash) continue
      const place = { transactionHash, blockHash }
      next.set(keyOf(chain.id, place), place)
    }
    plan = { until, next, underWay: new Map() }
    plans.set(chain.id, plan)
  }
  for (const [key, place] of plan.next) {
    if (plan.underWay.size >= depth) break
    plan.next.delete(key)
    // If it fails, it is asked for again in its turn, and fails there.
    plan.underWay.set(
      key,
      request(chain.name, place).catch(() => null),
    )
  }
}

function keyOf(chainId: number, { blockHash, transactionHash }: TransactionPlace): string {
  return `${chainId} ${blockHash} ${transactionHash}`
}

/** Asks one node after the other: the first may be behind. Throws only if none of them answers. */
async function request(network: string, place: TransactionPlace): Promise<Receipt | null> {
  const failures: unknown[] = []
  const nodes = nodesOf(network)
  for (const node of nodes) {
    try {
      const receipt = await node.request({
        method: 'eth_getTransactionReceipt',
        params: [place.transactionHash],
      })
      if (receipt?.blockHash === place.blockHash) return receipt
    } catch (error) {
      failures.push(error)
    }
  }
  if (failures.length === nodes.length) throw failures[0]
  return null
}

const known = new Map<string, PublicClient[]>()

/** Those that ponder.config.ts reads from the same variable. */
function nodesOf(network: string): PublicClient[] {
  let nodes = known.get(network)
  if (nodes === undefined) {
    const urls = process.env[`RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`]?.split(',') ?? []
    nodes = urls.map((url) =>
      createPublicClient({ transport: http(url.trim(), { retryCount: 6, retryDelay: 200 }) }),
    )
    known.set(network, nodes)
  }
  return nodes
}
