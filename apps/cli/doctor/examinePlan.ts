import { readNodeError } from '@tollkeeper/sdk/nodes/nodeErrors'
import { createRangeLength } from '@tollkeeper/sdk/nodes/rangeLength'
import { type Address, numberToHex, type PublicClient, zeroHash } from 'viem'

/** The limits of a node, as measured, regardless of how its operator describes the plan. */
export type RpcPlan = {
  /** The largest block range for which eth_getLogs succeeded, and whether the node rejected a larger range. */
  blocks: bigint
  isLimited: boolean
  /** Number of calls that the node rejected because they were too many at once, out of {@link burst} concurrent calls. */
  refusedCalls: number
  /** Time in seconds between two blocks. */
  blockSeconds: number
}

/** Block range to try, in blocks. Tollkeeper needs no larger range in one call. */
const longestRange = 10_000n
/** Number of concurrent calls to try. The indexer's calls for a block plus the keeper's calls for a batch are fewer than that. */
const burst = 25
/** Number of blocks over which the block time is measured. */
const measuredBlocks = 1_000n

/** Measures the limits of a node's plan. It requests logs that don't exist, so the responses are small. */
export async function tryPlan(
  client: PublicClient,
  head: { number: bigint; timestamp: bigint },
  address: Address,
): Promise<RpcPlan> {
  const whole = head.number + 1n < longestRange ? head.number + 1n : longestRange
  const length = createRangeLength(whole)
  while (
    !(await isAnswered(client, { address, head: head.number, blocks: length.current ?? whole }, length))
  );
  const asked = Array.from({ length: burst }, () =>
    client.request({ method: 'eth_blockNumber' }, { retryCount: 0 }),
  )
  const answers = await Promise.allSettled(asked)
  const refused = answers.filter(
    (one) => one.status === 'rejected' && readNodeError(one.reason).kind === 'rate',
  )
  const span = head.number < measuredBlocks ? head.number : measuredBlocks
  const { timestamp } = span === 0n ? head : await client.getBlock({ blockNumber: head.number - span })
  return {
    blocks: length.current ?? whole,
    isLimited: length.current !== whole,
    refusedCalls: refused.length,
    blockSeconds: span === 0n ? 0 : Number(head.timestamp - timestamp) / Number(span),
  }
}

async function isAnswered(
  client: PublicClient,
  { address, head, blocks }: { address: Address; head: bigint; blocks: bigint },
  length: ReturnType<typeof createRangeLength>,
): Promise<boolean> {
  const range = { fromBlock: numberToHex(head - blocks + 1n), toBlock: numberToHex(head) }
  try {
    await client.request(
      { method: 'eth_getLogs', params: [{ address, topics: [zeroHash], ...range }] },
      { retryCount: 0 },
    )
    return true
  } catch (error) {
    const { kind, blocks: suggested } = readNodeError(error)
    if ((kind !== 'range' && kind !== 'other') || blocks === 1n) throw error
    length.refuse(blocks, suggested)
    return false
  }
}

/** Minimum block range with which the index reads old blocks without extra calls. */
const enoughBlocks = 500n

/**
 * Describes the limits of a plan, and gives advice that names the resulting number of calls. The advice is null if the plan is
 * sufficient.
 */
export function judgePlan({ blocks, isLimited, refusedCalls, blockSeconds }: RpcPlan): {
  found: string
  advice: string | null
} {
  const logs = `eth_getLogs over ${isLimited ? '' : 'at least '}${blocks} blocks`
  const rate =
    refusedCalls > 0 ? `, ${refusedCalls} of ${burst} concurrent calls rejected by the rate limit` : ''
  if (!isLimited || blocks >= enoughBlocks) {
    const advice =
      refusedCalls > 0
        ? 'settlement waits while the node rejects calls: choose a plan with more calls per second'
        : null
    return { found: `${logs}${rate}`, advice }
  }
  const callsFor = (seconds: number) => Math.ceil(seconds / Math.max(blockSeconds, 0.1) / Number(blocks))
  const advice =
    `to read one day of the chain, the indexer needs ${callsFor(86_400)} calls; to find a payment that someone else settled an hour ago, ` +
    `the keeper needs ${callsFor(3_600)}. Choose a plan that allows ${enoughBlocks} blocks or more per call, or add a second URL`
  return { found: `${logs}${rate}`, advice }
}
