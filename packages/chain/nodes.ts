import { fallback, type Transport } from 'viem'

/** How many blocks a node may be behind the furthest one and still be asked first. */
const maxBehind = 2n
/** How often nodes are judged, in the background. */
const judgeEveryMs = 2_000
/** How long a judgement holds. */
const judgementEndsMs = 10_000
/** Shortest time between two blocks of our networks; only a development chain mines faster, on demand. */
const fastestBlockMs = 1_000
const localChainId = 31337
/** After how many unanswered looks we stop waiting for a node when all nodes are asked. */
const goneAfter = 3

/** The nodes of one network, by the order of their URLs. */
export type Nodes = {
  /** Asks the first node in good standing, and the others if it fails. */
  transport: Transport
  /** Which nodes to ask when all are to be asked: those that answer, or all if none does. */
  present: () => boolean[]
}

type Standing = { head: bigint | null; misses: number; isOtherChain: boolean }

/**
 * Judges nodes by their head: one that doesn't answer, stands still or answers old heads comes last.
 * viem's `fallback` would stay with a node that merely answers, and a keeper that trusts it settles nothing.
 *
 * If no two nodes agree on a head, and it is further on than blocks could have come since two last did, it isn't believed:
 * its node comes last, and no other node counts as behind it.
 *
 * It asks nothing while nobody reads, and nothing at all if there is a single node.
 */
export function createNodes(
  transports: readonly [Transport, ...Transport[]],
  { chainId, probeTimeoutMs, now }: { chainId: number; probeTimeoutMs: number; now: () => number },
): Nodes {
  const standings = transports.map((): Standing => ({ head: null, misses: 0, isOtherChain: false }))
  if (transports.length === 1) return { transport: transports[0], present: () => [true] }
  const probes = transports.map((transport) => transport({ retryCount: 0, timeout: probeTimeoutMs }))
  const blockMs = chainId === localChainId ? 1 : fastestBlockMs
  /** The highest head on which two nodes agreed, and since when. */
  let agreed: { head: bigint; at: number } | undefined
  let judgedAt = Number.NEGATIVE_INFINITY
  let underWay: Promise<void> | undefined

  async function probe(node: number): Promise<void> {
    const standing = standings[node] as Standing
    const ask = (method: string) =>
      withTimeout(probes[node]?.request({ method }) as Promise<`0x${string}`>, probeTimeoutMs)
    try {
      const [head, chain] = await Promise.all([ask('eth_blockNumber'), ask('eth_chainId')])
      Object.assign(standing, { head: BigInt(head), misses: 0, isOtherChain: Number(chain) !== chainId })
    } catch {
      standing.head = null
      standing.misses += 1
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

  const readHeads = () => standings.map(({ head, isOtherChain }) => (isOtherChain ? null : head))

  /** The first node in good standing; if there is none, the first of all. */
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
      const present = standings.map(({ misses, isOtherChain }) => misses < goneAfter && !isOtherChain)
      return present.includes(true) ? present : present.map(() => true)
    },
  }
}

/** viem's own limit could be stretched by the batch in which the call travels. */
function withTimeout<T>(answer: Promise<T>, timeoutMs: number): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error('no answer in time')), timeoutMs)
  return Promise.race([answer, late.promise]).finally(() => clearTimeout(timer))
}
