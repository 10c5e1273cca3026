import { parseUsdc } from '../protocol/amount.ts'
import { wordPattern } from '../protocol/fields.ts'
import type { TabPayload } from '../protocol/tab.ts'
import { HttpError, readProblem } from './errors.ts'
import { type Answer, sendToGateway, startDeadline, urlOf } from './transport.ts'

/** Timeout in ms for the gateway's response. */
const timeoutMs = 10_000

/** Creates the functions that ask a buyer's gateway about a tab. @param fetch a function with the behavior of the global `fetch`. */
export function createTabQuestions(fetch: typeof globalThis.fetch, gatewayUrl: string) {
  const ask = (path: string, init: RequestInit = {}) => {
    const deadline = startDeadline(timeoutMs)
    return sendToGateway(fetch, urlOf(gatewayUrl, path), init, { ...deadline, outcome: 'unknown' }).finally(
      deadline.signal.end,
    )
  }

  return {
    /** Returns the amount charged on each line of an open tab, in base units. */
    async read(id: string): Promise<{ split: bigint; charged: bigint }[] | 'closed' | 'unknown'> {
      const answer = await ask(`tabs/${id}`)
      if (answer.status === 404) return 'unknown'
      if (answer.status !== 200) throw refused(answer)
      const { closedAt, lines } = (answer.body ?? {}) as { closedAt?: unknown; lines?: unknown }
      if (typeof closedAt === 'string') return 'closed'
      if (!Array.isArray(lines)) throw unreadable(answer)
      return lines.map((line) => readLine(line) ?? raise(unreadable(answer)))
    },
    /**
     * Closes a tab with its last state. @returns false if the tab is too small to settle. Such a tab stays open until it expires.
     */
    async close(last: TabPayload): Promise<boolean> {
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

/** @returns undefined if the value isn't a line. */
function readLine(line: unknown): { split: bigint; charged: bigint } | undefined {
  const { split, chargedUsdc } = (line ?? {}) as { split?: unknown; chargedUsdc?: unknown }
  if (typeof split !== 'string' || !wordPattern.test(split) || typeof chargedUsdc !== 'string')
    return undefined
  try {
    return { split: BigInt(split), charged: parseUsdc(chargedUsdc) }
  } catch {
    return undefined
  }
}

function unreadable(answer: Answer): HttpError {
  return new HttpError('http_error', 'The gateway did not report the amount charged on the tab', {
    ...answer,
    outcome: 'unknown',
  })
}

function raise(error: Error): never {
  throw error
}

function refused(answer: Answer): HttpError {
  const { code, detail } = readProblem(answer.status, answer.body)
  return new HttpError(code ?? 'http_error', `The tab was not closed: ${detail}`, {
    ...answer,
    outcome: 'unknown',
  })
}
