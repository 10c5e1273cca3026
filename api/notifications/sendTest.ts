import { randomUUID } from 'node:crypto'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { send } from '@tollkeeper/runtime/send'
import { failureOf, signMessage } from './message.ts'

/** Same timeout as for a real message. */
const timeoutMs = 10_000

export type TestReceiver = { webhookId: string; url: string; secrets: string[] }

export type TestResult = {
  delivered: boolean
  /** HTTP status of the answer; null if there was none. */
  status: number | null
  durationMs: number
  /** Why the test doesn't count as received. */
  error?: string
}

/**
 * Sends a test event to a receiver, signed like any message, and waits for the answer.
 *
 * Nothing is stored: a failed test doesn't pause or disable the receiver, and isn't in its log.
 */
export async function sendTest(
  { webhookId, url, secrets }: TestReceiver,
  { guard, now }: { guard: AddressGuard; now: () => number },
): Promise<TestResult> {
  const at = new Date(now())
  const messageId = `msg_${randomUUID().replaceAll('-', '')}`
  const { headers, body } = signMessage(
    {
      messageId,
      event: 'webhook.test',
      createdAt: at,
      paymentId: null,
      txHash: null,
      data: { webhookId },
      secrets,
    },
    at,
  )
  const began = performance.now()
  const result = await send({ url, headers, body, guard, timeoutMs })
  const durationMs = Math.round(performance.now() - began)
  const failure = failureOf(result)
  const detail = result.status === 'unanswered' ? `: ${result.detail}` : ''
  return {
    delivered: failure === null,
    status: result.status === 'answered' ? result.httpStatus : null,
    durationMs,
    ...(failure !== null && { error: failure + detail }),
  }
}
