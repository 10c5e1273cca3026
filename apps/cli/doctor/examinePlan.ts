import { readNodeError } from '@tollkeeper/sdk/nodes/nodeErrors'
import { createRangeLength } from '@tollkeeper/sdk/nodes/rangeLength'
import { type Address, numberToHex, type PublicClient, zeroHash } from 'viem'

/** What a node answers, whatever its provider's plan is called. */
export type RpcPlan = {
  /** The largest range that eth_getLogs answered for, and whether the node refused a larger one. */
  blocks: bigint
  isLimited: boolean
  /** Of {@link burst} calls at once, those that the node refused for their rate. */
  refusedCalls: number
  /** Seconds between two blocks. */
  blockSeconds: number
}

/** More than any search asks for at once. */
const longestRange = 10_000n
/** Calls at once: a block of the index and a batch of the keeper together take fewer. */
const burst = 25
/** Blocks over which the time of a block is measured. */
const measuredBlocks = 1_000n

/** Tries what a node's plan allows. It asks for logs that don't exist, so answers are small. */
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

/** A range with which the index reads its past without extra calls. */
const enoughBlocks = 500n

/** What the plan allows, what that costs in calls, and what to do about it; null: nothing stands in the way. */
export function judgePlan({ blocks, isLimited, refusedCalls, blockSeconds }: RpcPlan): {
  found: string
  advice: string | null
} {
  const logs = `eth_getLogs over ${isLimited ? '' : 'at least '}${blocks} blocks`
  const rate = refusedCalls > 0 ? `, ${refusedCalls} of ${burst} calls at once refused for their rate` : ''
  if (!isLimited || blocks >= enoughBlocks) {
    const advice =
      refusedCalls > 0
        ? 'settlement waits while the node refuses: take a plan with more calls a second'
        : null
    return { found: `${logs}${rate}`, advice }
  }
  const callsFor = (seconds: number) => Math.ceil(seconds / Math.max(blockSeconds, 0.1) / Number(blocks))
  const advice =
    `the index needs ${callsFor(86_400)} calls for each day of the chain that it has to read, and a search for a payment ` +
    `that someone else settled an hour ago ${callsFor(3_600)}: take a plan with ${enoughBlocks} blocks or more, or add a second URL`
  return { found: `${logs}${rate}`, advice }
}
