import { ChainUnavailable } from '@tollkeeper/runtime/dependencies'

/**
 * Asks every RPC, and fails if one of them didn't respond, because only that RPC may have the result.
 *
 * @throws {ChainUnavailable} if any call failed, with the first cause.
 */
export async function askEverywhere<Client, Answer>(
  clients: readonly Client[],
  ask: (client: Client) => Promise<Answer>,
): Promise<Answer[]> {
  const settled = await Promise.allSettled(clients.map(ask))
  const failed = settled.filter((result) => result.status === 'rejected')
  if (failed[0]) {
    throw new ChainUnavailable(`${failed.length} of ${clients.length} RPCs did not respond`, {
      cause: failed[0].reason,
    })
  }
  return settled.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
}

/** Asks every RPC and returns all responses. Throws only if no RPC responded. */
export async function askAny<Client, Answer>(
  clients: readonly Client[],
  ask: (client: Client) => Promise<Answer>,
): Promise<Answer[]> {
  const settled = await Promise.allSettled(clients.map(ask))
  const answers = settled.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  if (answers.length > 0) return answers
  const first = settled.find((result) => result.status === 'rejected')
  throw new ChainUnavailable('no RPC responded', { cause: first?.reason })
}
