import type { Context } from 'ponder:registry'
import { type Hex, numberToHex, pad } from 'viem'
import { askNodes } from './nodes.ts'
import { type Addresses, batchSettled, type Reading, type Receipt, readReceipt } from './receipt.ts'

type Chain = Pick<Context, 'chain'>

export type TransactionPlace = { txHash: Hex; blockHash: Hex }

export type FoundReceipt = { receipt: Receipt; reading: Reading }

/** The last receipt that was read, or null if no node had it. It is cached, because the events of a transaction are handled one after the other. */
let last: { key: string; found: FoundReceipt | null } | undefined

/**
 * Fetches and reads a transaction's receipt in the given block. Returns null if no node has it.
 *
 * It doesn't use `context.client`, because Ponder caches receipts only by their transaction's hash and keeps them after a reorg. So if a transaction
 * is mined again after a reorg, `context.client` would return the receipt from the dropped block.
 */
export async function fetchReceipt(
  { chain }: Chain,
  place: TransactionPlace,
  addresses: Addresses,
  { isPatient = true } = {},
): Promise<FoundReceipt | null> {
  const key = keyOf(chain.id, place)
  if (last?.key === key && (isPatient || last.found)) return last.found
  const underWay = plans.get(chain.id)?.underWay
  const early = underWay?.get(key)
  underWay?.delete(key)
  const receipt = (await early) ?? (await request(chain.name, place, isPatient))
  const found = receipt && { receipt, reading: readReceipt(receipt.logs, addresses) }
  last = { key, found }
  return found
}

/** Whether a receipt is cached or being fetched, so that it costs no further call. */
export function isFetched({ chain }: Chain, place: TransactionPlace): boolean {
  const key = keyOf(chain.id, place)
  return last?.key === key || plans.get(chain.id)?.underWay.has(key) === true
}

/** The receipts of the next batches: `next` are still to be fetched, and `underWay` are being fetched. */
type Plan = {
  until: bigint
  next: Map<string, TransactionPlace> // by key, because a transaction may contain several batches
  underWay: Map<string, Promise<Receipt | null>>
}

const plans = new Map<number, Plan>()
const depth = 16
/** Number of blocks for which batches are searched ahead. It is halved when a node refuses the range. */
let planBlocks = 2_000n
let lastCall = 0

/**
 * Prefetches the receipts of the next batches while the current batch is handled. This only affects speed.
 *
 * Handlers run one after the other. Without prefetching, they would wait for each receipt in turn, which is slow while the index catches up, and
 * for a block with many batches. A batch that comes alone prefetches nothing.
 */
export async function fetchAhead(
  { chain }: Chain,
  { blockNumber, logIndex }: { blockNumber: bigint; logIndex: number },
  { settlement, tabSettlement, token }: Addresses,
): Promise<void> {
  const isStreaming = performance.now() - lastCall < 500
  lastCall = performance.now()
  if (!isStreaming) return
  let plan = plans.get(chain.id)
  if (plan === undefined || blockNumber > plan.until) {
    const topics: (Hex | null)[] = [batchSettled, null, null, pad(token)]
    const range = {
      fromBlock: numberToHex(blockNumber),
      toBlock: numberToHex(blockNumber + planBlocks),
    }
    const logs = await askNodes(chain.name, {
      ask: (node) =>
        node.request({
          method: 'eth_getLogs',
          params: [{ address: [settlement, tabSettlement], topics, ...range }],
        }),
      isComplete: () => true,
      isPatient: false,
    })
    // If the call fails, nothing is prefetched this time. The next call uses a smaller range, because some nodes don't answer for a large range.
    if (logs === null) planBlocks = planBlocks > 8n ? planBlocks / 2n : planBlocks
    plan = { until: blockNumber, next: new Map(), underWay: new Map() }
    plans.set(chain.id, plan)
    for (const log of logs ?? []) {
      if (!log.transactionHash || !log.blockHash || !log.blockNumber || !log.logIndex) continue
      const number = BigInt(log.blockNumber)
      if (number === blockNumber && Number(log.logIndex) <= logIndex) continue
      const place = { txHash: log.transactionHash, blockHash: log.blockHash }
      const key = keyOf(chain.id, place)
      if (key !== last?.key) plan.next.set(key, place)
      if (number > plan.until) plan.until = number
    }
  }
  for (const [key, place] of plan.next) {
    if (plan.underWay.size >= depth) break
    plan.next.delete(key)
    // If no node has the receipt now, it is fetched again when its event is handled.
    plan.underWay.set(key, request(chain.name, place, false))
  }
}

function keyOf(chainId: number, { blockHash, txHash }: TransactionPlace): string {
  return `${chainId} ${blockHash} ${txHash}`
}

function request(
  network: string,
  { txHash, blockHash }: TransactionPlace,
  isPatient: boolean,
): Promise<Receipt | null> {
  return askNodes<Receipt | null>(network, {
    ask: (node) => node.request({ method: 'eth_getTransactionReceipt', params: [txHash] }),
    isComplete: (receipt) => receipt.blockHash === blockHash,
    isPatient,
  })
}
