import { type Challenge, challengeMediaType } from '../protocol/challenge.ts'
import { splitterFactory, tabSettlement } from '../protocol/deployments.ts'
import { type ErrorCode, errorCodes } from '../protocol/errors.ts'
import { type PaymentRequirementsV2, reasonOf, toPaymentRequired } from '../protocol/x402.ts'

import { encodeRequired } from './fitRequired.ts'

export type DemandOptions = {
  /** Which body a client gets that doesn't ask for one. */
  body: 'tollkeeper' | 'x402-v1'
  /** Whether a price that can be paid alone is offered on tabs, too. */
  tabs: boolean
  accept: string | null | undefined
  /** Why the presented payment was refused. */
  code: ErrorCode | undefined
  detail: string | undefined
}

/**
 * A challenge in all forms in which clients read a 402: our own body, with the header of x402 v2, or the body of
 * x402 v1.
 *
 * The splitter is computed here from who is paid by the body, and from this version's own table, so that the gateway can name no
 * other.
 *
 * @param answered the gateway's answer, from which `challenge` was read.
 */
export function demandPayment(
  answered: object,
  challenge: Challenge,
  { tabs, body, accept, code, detail }: DemandOptions,
): { headers: Record<string, string>; body: object } {
  const error = detail ?? (code ? errorCodes[code].title : 'Payment required')
  // Catalogues read the header; our own buyers don't need it.
  const { discovery: _, tab, ...said } = answered as { discovery?: unknown; tab?: unknown }
  const isOnTab = tabs || challenge.tab?.only === true
  const own = {
    ...said,
    ...(isOnTab && tab !== undefined && { tab }),
    error,
    ...(code && { code, verified: false }),
  }
  const required = toPaymentRequired(
    challenge,
    splitterFactory,
    undefined,
    isOnTab ? tabSettlement : undefined,
  )
  if (!required) return { headers: {}, body: own }
  const wordsOf = (x402Version: 1 | 2) => (code ? reasonOf(code, x402Version) : error)
  const headers = { 'PAYMENT-REQUIRED': encodeRequired({ ...required, error: wordsOf(2) }) }
  const isOwn = body === 'tollkeeper' || accept?.includes(challengeMediaType)
  const [exact] = required.accepts
  return { headers, body: isOwn || exact.scheme === 'tab' ? own : toV1(exact, challenge, wordsOf(1)) }
}

/** The same offer as the body of x402 v1. Its clients refuse an `outputSchema` of null. */
export function toV1(entry: PaymentRequirementsV2, { accepts: [provider] }: Challenge, error: string) {
  const { outputSchema: _, ...requirements } = provider
  return {
    x402Version: 1,
    error,
    accepts: [
      {
        ...requirements,
        maxAmountRequired: entry.amount,
        payTo: entry.payTo,
        maxTimeoutSeconds: entry.maxTimeoutSeconds,
        extra: { ...requirements.extra, primaryType: entry.extra.primaryType },
      },
    ],
  }
}
