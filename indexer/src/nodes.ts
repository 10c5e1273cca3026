import {
  BaseError,
  createPublicClient,
  http,
  InternalRpcError,
  LimitExceededRpcError,
  type PublicClient,
  RpcError,
  RpcRequestError,
} from 'viem'

/** Pauses in ms between attempts, about four seconds in total. A node behind a load balancer may not yet have a block that another node announced. */
const patienceMs = [125, 250, 500, 1_000, 2_000]
const unreachablePauseMs = 1_000

export type Asking<Answer> = {
  ask: (node: PublicClient) => Promise<Answer>
  /** Whether a node's answer is complete. A node that is behind answers with less data. */
  isComplete: (answer: NonNullable<Answer>) => boolean
  /** Whether to ask again if no node has the answer. Default true. */
  isPatient?: boolean
}

/**
 * Asks one node after the other until one returns a complete answer. Returns null if no node has a complete answer.
 *
 * While no node can be reached, a patient call keeps trying. The index waits for it, so that an outage causes no gaps.
 */
export async function askNodes<Answer>(
  network: string,
  { ask, isComplete, isPatient = true }: Asking<Answer>,
): Promise<NonNullable<Answer> | null> {
  const delays = isPatient ? [...patienceMs] : []
  while (true) {
    let hasAnswered = false
    const nodes = nodesOf(network)
    for (const node of [...nodes]) {
      try {
        const answer = await ask(node)
        hasAnswered = true
        if (answer && isComplete(answer)) return answer
      } catch (error) {
        if (isRefusal(error)) hasAnswered = true
        // From now on, ask this node last, because it can't be reached, or hung until the time limit.
        else nodes.push(...nodes.splice(nodes.indexOf(node), 1))
      }
    }
    const delay = hasAnswered || !isPatient ? delays.shift() : unreachablePauseMs
    if (delay === undefined) return null
    await new Promise((resolve) => setTimeout(resolve, delay))
  }
}

/** Matches the various messages with which providers report too many requests. */
const rateWords =
  /rate.?limit|too many requests|limit (reached|exceeded)|over rate|per second|capacity|quota|throttl/i

/**
 * Returns whether the error is the node's answer, for example because the node doesn't know a block. Rate limits and internal errors are temporary
 * and don't count.
 */
function isRefusal(error: unknown): boolean {
  if (error instanceof LimitExceededRpcError || error instanceof InternalRpcError) return false
  if (error instanceof BaseError && (rateWords.test(error.details) || codeOf(error) === 429)) return false
  return error instanceof RpcError || error instanceof RpcRequestError
}

function codeOf(error: BaseError): unknown {
  return (error as { code?: unknown }).code
}

const known = new Map<string, PublicClient[]>()

/** Returns clients of a network's nodes. Their URLs come from the variable that ponder.config.ts also reads. */
function nodesOf(network: string): PublicClient[] {
  let nodes = known.get(network)
  if (nodes === undefined) {
    const urls = process.env[`RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`]?.split(',') ?? []
    nodes = urls.map((url) =>
      createPublicClient({ transport: http(url.trim(), { retryCount: 1, retryDelay: 200, timeout: 5_000 }) }),
    )
    known.set(network, nodes)
  }
  return nodes
}
