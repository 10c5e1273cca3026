import type { Context } from 'ponder:registry'
import { createPublicClient, fallback, type Hex, http, numberToHex, type PublicClient, pad } from 'viem'
import { type Addresses, batchSettled, type Receipt } from './receipt.ts'

type Chain = Pick<Context, 'chain'>

export type TransactionPlace = { transactionHash: Hex; blockHash: Hex }

/** A node behind a load balancer may not know yet what another one has announced: 15 seconds in all. */
const retryDelaysMs = [125, 250, 500, 1_000, 2_000, 4_000, 8_000]

/** The last one read: a wrapper's transaction brings many events in a row, and they share a receipt. */
let last: { key: string; receipt: Receipt } | undefined

/**
 * Fetches a transaction's receipt as it stands in the given block; null if no node has it.
 *
 * Not through `context.client`: Ponder keeps a receipt by its transaction's hash alone and drops it at no reorg, so the
 * same bytes mined again would get the receipt of the block that is gone.
 *
 * A node that can't be reached throws: then Ponder stops, and starts again where it was.
 */
export async function fetchReceipt({ chain }: Chain, place: TransactionPlace): Promise<Receipt | null> {
  const key = keyOf(chain.id, place)
  if (last?.key === key) return last.receipt
  const early = plans.get(chain.id)?.underWay.get(key)
  plans.get(chain.id)?.underWay.delete(key)
  for (const delay of [0, ...retryDelaysMs]) {
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay))
    const receipt = (delay === 0 && (await early)) || (await request(chain.name, place.transactionHash))
    if (receipt?.blockHash === place.blockHash) {
      last = { key, receipt }
      return receipt
    }
  }
  return null
}

/** The batches up to a block: those not asked for yet, and the receipts on their way before their turn. */
type Plan = { until: bigint; next: TransactionPlace[]; underWay: Map<string, Promise<Receipt | null>> }

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
    const logs = await clientOf(chain.name)
      .request({ method: 'eth_getLogs', params: [{ address: settlement, topics, ...range }] })
      .catch(() => []) // some nodes take a smaller range only: then it goes without
    const next = logs.flatMap(({ transactionHash, blockHash }) =>
      transactionHash && blockHash ? [{ transactionHash, blockHash }] : [],
    )
    plan = { until, next, underWay: new Map() }
    plans.set(chain.id, plan)
  }
  while (plan.underWay.size < depth) {
    const place = plan.next.shift()
    if (place === undefined) break
    // If it fails, it is asked for again in its turn, and fails there.
    plan.underWay.set(
      keyOf(chain.id, place),
      request(chain.name, place.transactionHash).catch(() => null),
    )
  }
}

function keyOf(chainId: number, { blockHash, transactionHash }: TransactionPlace): string {
  return `${chainId} ${blockHash} ${transactionHash}`
}

function request(network: string, transactionHash: Hex): Promise<Receipt | null> {
  return clientOf(network).request({ method: 'eth_getTransactionReceipt', params: [transactionHash] })
}

const clients = new Map<string, PublicClient>()

/** Of the nodes that ponder.config.ts reads from the same variable. */
function clientOf(network: string): PublicClient {
  const known = clients.get(network)
  if (known) return known
  const urls = process.env[`RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`]?.split(',') ?? []
  const transports = urls.map((url) => http(url.trim(), { retryCount: 6, retryDelay: 200 }))
  const client = createPublicClient({ transport: fallback(transports) })
  clients.set(network, client)
  return client
}
