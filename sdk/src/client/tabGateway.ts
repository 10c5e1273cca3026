import { parseUsdc } from '../protocol/amount.ts'
import type { TabPayload } from '../protocol/tab.ts'
import { HttpError, readProblem } from './errors.ts'
import { type Answer, send, startDeadline, urlOf } from './transport.ts'

export type TabLineCharges = { split: bigint; charged: bigint }[]

/** A buyer's calls to its gateway about a tab. */
export type TabGateway = {
  /** What was charged on each line of an open tab, in base units. */
  read: (id: string) => Promise<TabLineCharges | 'closed' | 'unknown'>
  /** Closes a tab with its last state. @returns false if it is too small to settle: it stays open until it expires. */
  close: (last: TabPayload) => Promise<boolean>
}

/** How long a gateway has for an answer. */
const timeoutMs = 10_000

/** @param fetch like the global one. */
export function createTabGateway(fetch: typeof globalThis.fetch, gatewayUrl: string): TabGateway {
  const ask = (path: string, init: RequestInit = {}) =>
    send(fetch, urlOf(gatewayUrl, path), init, { ...startDeadline(timeoutMs), outcome: 'unknown' })

  return {
    async read(id) {
      const answer = await ask(`tabs/${id}`)
      if (answer.status === 404) return 'unknown'
      if (answer.status !== 200) throw refused(answer)
      const { closedAt, lines } = (answer.body ?? {}) as { closedAt?: unknown; lines?: unknown }
      if (typeof closedAt === 'string') return 'closed'
      return Array.isArray(lines) ? lines.map(readLine) : []
    },
    async close(last) {
      const init = {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ tab: last }),
      }
      const answer = await ask(`tabs/${last.tab}/close`, init)
      const { code } = readProblem(answer.status, answer.body)
      if (code === 'tab_too_small') return false
      if (answer.status < 300 || code === 'tab_closed') return true
      throw refused(answer)
    },
  }
}

function readLine(line: unknown): { split: bigint; charged: bigint } {
  const { split, chargedUsdc } = (line ?? {}) as { split?: unknown; chargedUsdc?: unknown }
  return { split: BigInt(String(split)), charged: parseUsdc(String(chargedUsdc)) }
}

function refused(answer: Answer): HttpError {
  const { code, detail } = readProblem(answer.status, answer.body)
  return new HttpError(code ?? 'http_error', `The tab was not closed: ${detail}`, {
    ...answer,
    outcome: 'unknown',
  })
}
