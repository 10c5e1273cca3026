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

/** A node behind a load balancer may not know yet what another one has announced: four seconds in all. */
const patienceMs = [125, 250, 500, 1_000, 2_000]
const unreachablePauseMs = 1_000

export type Asking<Answer> = {
  ask: (node: PublicClient) => Promise<Answer>
  /** Whether a node's answer is complete; a node that is behind answers with less. */
  isComplete: (answer: NonNullable<Answer>) => boolean
  /** Default true. Without patience each node is asked once. */
  isPatient?: boolean
}

/**
 * Asks one node after the other until one has it; null if all answer and none has it.
 *
 * While no node can be reached it goes on asking, and the index stands still, so an outage makes no holes.
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
        // A node that can't be reached, or hangs until its time limit, is asked last from now on.
        else nodes.push(...nodes.splice(nodes.indexOf(node), 1))
      }
    }
    const delay = hasAnswered || !isPatient ? delays.shift() : unreachablePauseMs
    if (delay === undefined) return null
    await new Promise((resolve) => setTimeout(resolve, delay))
  }
}

/** Providers have codes of their own for too many requests. */
const rateWords =
  /rate.?limit|too many requests|limit (reached|exceeded)|over rate|per second|capacity|quota|throttl/i

/** Whether the node itself refuses, as for a block that it doesn't know; a limit or a fault of its own passes. */
function isRefusal(error: unknown): boolean {
  if (error instanceof LimitExceededRpcError || error instanceof InternalRpcError) return false
  if (error instanceof BaseError && (rateWords.test(error.details) || codeOf(error) === 429)) return false
  return error instanceof RpcError || error instanceof RpcRequestError
}

function codeOf(error: BaseError): unknown {
  return (error as { code?: unknown }).code
}

const known = new Map<string, PublicClient[]>()

/** The nodes that ponder.config.ts reads from the same variable. */
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
