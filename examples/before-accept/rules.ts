import type { AcceptDecision, AcceptRequest } from '@tollkeeper/sdk/fetch'

/** The parts of a question about a payment that these rules read. Both the middleware and the gateway ask such questions. */
export type Asked = Pick<AcceptRequest, 'payer' | 'request'>

/** A rule decides, or returns undefined to leave the decision to the next rule. */
export type Rule = (asked: Asked) => AcceptDecision | undefined | Promise<AcceptDecision | undefined>

/** Returns the decision of the first rule that decides, and accepts a request if none does. */
export function decideBy(...rules: Rule[]) {
  return async (asked: Asked): Promise<AcceptDecision> => {
    for (const rule of rules) {
      const decision = await rule(asked)
      if (decision) return decision
    }
    return { accept: true }
  }
}

/** Refuses payers on a list of addresses. */
export function refuseListed(addresses: Iterable<string>): Rule {
  const listed = new Set([...addresses].map((address) => address.toLowerCase()))
  return ({ payer }) =>
    payer !== undefined && listed.has(payer.toLowerCase())
      ? { refuse: 'This address is on a sanctions list', code: 'sanctioned' }
      : undefined
}

/**
 * Serves the first calls of each API key free, each day (UTC).
 *
 * This example counts in memory. If your program has several processes, count in its database, in one statement that also checks the limit.
 */
export function freeCallsADay(limit: number, keys: ReadonlySet<string>, now = () => new Date()): Rule {
  let day = ''
  let counts = new Map<string, number>()
  return ({ payer, request }) => {
    const key = request.headers.get('x-api-key')
    // A caller who presents a payment wants to pay, so the call isn't free.
    if (payer !== undefined || key === null || !keys.has(key)) return undefined
    const today = now().toISOString().slice(0, 10)
    if (today !== day) counts = new Map()
    day = today
    const count = counts.get(key) ?? 0
    if (count >= limit) return undefined
    counts.set(key, count + 1)
    return { free: true }
  }
}

/** Charges the price of the API key's tier. The tier comes from the seller's list, never from the request. */
export function priceByTier(
  tierOf: ReadonlyMap<string, string>,
  prices: Readonly<Record<string, string>>,
): Rule {
  return ({ request }) => {
    const tier = tierOf.get(request.headers.get('x-api-key') ?? '')
    const price = tier === undefined ? undefined : prices[tier]
    return price === undefined ? undefined : { price }
  }
}
