import { type Challenge, challengeMediaType } from '../protocol/challenge.ts'
import { splitterFactory, tabSettlement } from '../protocol/deployments.ts'
import { type ErrorCode, errorCodes } from '../protocol/errors.ts'
import { type PaymentRequirementsV2, reasonOf, toPaymentRequired } from '../protocol/x402.ts'

import { encodeRequired } from './fitRequired.ts'

export type DemandOptions = {
  /** Whether a client gets the body of x402 v1. A client that requests our own body gets our own body in any case. */
  acceptX402V1: boolean
  /** Whether a price that can be paid as a single payment is also offered on a tab. */
  tabs: boolean
  accept: string | null | undefined
  /** Why the presented payment was refused. */
  code: ErrorCode | undefined
  detail: string | undefined
  /** Maximum length of `PAYMENT-REQUIRED`. */
  maxHeaderLength?: number | undefined
}

/**
 * Returns a challenge in the forms that clients of a 402 read: our own body with the header of x402 v2, or the body of x402 v1.
 *
 * The middleware computes the splitter's address itself, from the payees in the body and the contract addresses in this version of the SDK.
 * So the gateway can't name another splitter.
 *
 * @param answered the gateway's response that contains `challenge`.
 */
export function demandPayment(
  answered: object,
  challenge: Challenge,
  { tabs, acceptX402V1, accept, code, detail, maxHeaderLength }: DemandOptions,
): { headers: Record<string, string>; body: object } {
  const error = detail ?? (code ? errorCodes[code].title : 'Payment required')
  // Omit these fields from our own body: catalogs read them from the header, and people read them on the page.
  const { discovery: _, seller: __, tab, ...said } = answered as Record<string, unknown>
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
  const headers = { 'PAYMENT-REQUIRED': encodeRequired({ ...required, error: wordsOf(2) }, maxHeaderLength) }
  const isOwn = !acceptX402V1 || accept?.includes(challengeMediaType)
  const [exact] = required.accepts
  return { headers, body: isOwn || exact.scheme === 'tab' ? own : toV1(exact, challenge, wordsOf(1)) }
}

/** Converts an offer to the body of x402 v1. Omits `outputSchema`, because clients of v1 reject null there. */
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
