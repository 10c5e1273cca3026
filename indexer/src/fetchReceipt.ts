import type { Context } from 'ponder:registry'
import { type Hex, numberToHex, pad } from 'viem'
import { askNodes } from './nodes.ts'
import { type Addresses, batchSettled, type Reading, type Receipt, readReceipt } from './receipt.ts'

type Chain = Pick<Context, 'chain'>

export type TransactionPlace = { txHash: Hex; blockHash: Hex }

export type FoundReceipt = { receipt: Receipt; reading: Reading }

/** The last receipt read, or that no node has it: a transaction's many events come in a row and share it. */
let last: { key: string; found: FoundReceipt | null } | undefined

/**
 * Fetches and reads a transaction's receipt as it stands in the given block; null if no node has it.
 *
 * It doesn't use `context.client`: Ponder stores a receipt by its transaction's hash alone and keeps it in a reorg, so
 * the same bytes mined again would get the receipt of the lost block.
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

/** Whether a receipt is here or on its way, so that it costs no further call. */
export function isFetched({ chain }: Chain, place: TransactionPlace): boolean {
  const key = keyOf(chain.id, place)
  return last?.key === key || plans.get(chain.id)?.underWay.has(key) === true
}

/** The next batches: those not fetched yet, and the receipts on their way. */
type Plan = {
  until: bigint
  next: Map<string, TransactionPlace> // by key: a transaction may hold several batches
  underWay: Map<string, Promise<Receipt | null>>
}

const plans = new Map<number, Plan>()
const depth = 16
/** Blocks of one look ahead; fewer after a node refused them. */
let planBlocks = 2_000n
let lastCall = 0

/**
 * Fetches the receipts of the next batches while this one is handled. Only speed depends on it.
 *
 * Handlers run one after the other, so otherwise the past, and a block with many batches, would wait for one answer
 * at a time. A batch that comes alone fetches nothing ahead.
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
    // Nothing is fetched ahead this time. Some nodes answer only for a smaller range.
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
    // If no node has it now, it is fetched again in its turn.
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
