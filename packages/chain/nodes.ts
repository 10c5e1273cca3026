import { fallback, type Transport } from 'viem'

/**
 * Number of blocks by which a node may be behind the most advanced node without losing its place in the order. The larger of this tolerance
 * and {@link maxBehindMs} applies.
 */
const maxBehindBlocks = 2
/** The tolerance in ms. On chains with fast blocks, it permits more blocks than {@link maxBehindBlocks}. */
const maxBehindMs = 4_000
/** Interval in ms between checks of the nodes, in the background. */
const judgeEveryMs = 2_000
/** Time in ms for which the result of a check is valid. */
const judgementEndsMs = 10_000
/**
 * To decide whether a head is too high, the check assumes at most this block time in ms, even if the network's blocks take longer: a
 * development chain that simulates the network mines on demand, so it can be faster.
 */
const slowestBlockMs = 1_000
const localChainId = 31337
/** Number of unanswered checks in a row after which a node is left out of calls that go to all nodes. */
const goneAfter = 3

/** The nodes of one network, in the order of their URLs. */
export type Nodes = {
  /** Asks the first healthy node, and then the others if it fails. */
  transport: Transport
  /** Returns the nodes for a call that must ask all of them: those that respond, or all if none does. */
  present: () => boolean[]
}

type NodeState = { head: bigint | null; misses: number; isOtherChain: boolean }

/**
 * Ranks nodes by their head: a node that doesn't respond, doesn't advance, or returns old heads comes last. viem's `fallback`
 * would keep using such a node while it responds at all, and a keeper that trusts it settles nothing.
 *
 * A head can also be too high to be true. It is compared with the last head on which two nodes agreed. It is too high if no other node
 * is near it, and if fewer blocks can have been mined since that agreement. The node that returned it then comes last, and the other
 * nodes aren't treated as behind.
 *
 * Sends checks only while calls are made, and only if there are several nodes.
 */
export function createNodes(
  transports: readonly [Transport, ...Transport[]],
  {
    chainId,
    blockTimeMs,
    probeTimeoutMs,
    now,
  }: { chainId: number; blockTimeMs: number; probeTimeoutMs: number; now: () => number },
): Nodes {
  const nodeStates = transports.map((): NodeState => ({ head: null, misses: 0, isOtherChain: false }))
  if (transports.length === 1) return { transport: transports[0], present: () => [true] }
  const probes = transports.map((transport) => transport({ retryCount: 0, timeout: probeTimeoutMs }))
  const blockMs = chainId === localChainId ? 1 : Math.min(slowestBlockMs, blockTimeMs)
  const maxBehind = BigInt(Math.max(maxBehindBlocks, Math.ceil(maxBehindMs / blockTimeMs)))
  /** The highest head on which two nodes agreed, and the time when they first did. */
  let agreed: { head: bigint; at: number } | undefined
  let judgedAt = Number.NEGATIVE_INFINITY
  let underWay: Promise<void> | undefined

  async function probe(node: number): Promise<void> {
    const state = nodeStates[node] as NodeState
    const ask = (method: string) =>
      withTimeout(probes[node]?.request({ method }) as Promise<`0x${string}`>, probeTimeoutMs)
    try {
      const [head, chain] = await Promise.all([ask('eth_blockNumber'), ask('eth_chainId')])
      Object.assign(state, { head: BigInt(head), misses: 0, isOtherChain: Number(chain) !== chainId })
    } catch {
      state.head = null
      state.misses += 1
    }
  }

  function judge(): Promise<void> {
    underWay ??= Promise.all(transports.map((_, node) => probe(node))).then(() => {
      judgedAt = now()
      const heads = readHeads().flatMap((head) => head ?? [])
      for (const head of heads) {
        const near = heads.filter((other) => other <= head + maxBehind && head <= other + maxBehind)
        if (near.length > 1 && (agreed === undefined || head > agreed.head)) agreed = { head, at: judgedAt }
      }
      underWay = undefined
    })
    return underWay
  }

  const readHeads = () => nodeStates.map(({ head, isOtherChain }) => (isOtherChain ? null : head))

  /** Returns the first healthy node; if there is none, the first of all. */
  function best(): number {
    const limit = agreed && agreed.head + maxBehind + BigInt(Math.ceil((judgedAt - agreed.at) / blockMs))
    const heads = readHeads().map((head) =>
      head !== null && limit !== undefined && head > limit ? null : head,
    )
    const furthest = heads.reduce<bigint>((most, head) => (head !== null && head > most ? head : most), -1n)
    const found = heads.findIndex((head) => head !== null && head + maxBehind >= furthest)
    return found === -1 ? 0 : found
  }

  const transport: Transport = (options) => {
    const byFirst = transports.map((first) =>
      fallback([first, ...transports.filter((other) => other !== first)])(options),
    )
    const [any] = byFirst as [(typeof byFirst)[number]]
    const request: typeof any.request = async (args, requestOptions) => {
      const age = now() - judgedAt
      if (age > judgementEndsMs) await judge()
      else if (age > judgeEveryMs) void judge()
      return (byFirst[best()] ?? any).request(args, requestOptions)
    }
    return { ...any, request }
  }

  return {
    transport,
    present() {
      const present = nodeStates.map(({ misses, isOtherChain }) => misses < goneAfter && !isOtherChain)
      return present.includes(true) ? present : present.map(() => true)
    },
  }
}

/** Adds a separate time limit, because viem's limit can be extended by the batch in which it sends a call. */
function withTimeout<T>(answer: Promise<T>, timeoutMs: number): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error('no response in time')), timeoutMs)
  return Promise.race([answer, late.promise]).finally(() => clearTimeout(timer))
}
