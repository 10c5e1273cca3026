import type { Hash } from 'viem'
import { parseUsdc } from '../protocol/amount.ts'
import { isRecord, textOf } from '../protocol/fields.ts'
import { encodePayload } from '../protocol/payload.ts'
import type { SignProposed } from './challengeSigner.ts'
import { isIssuedBy } from './checkChallenge.ts'
import { ChallengeRefusedError } from './errors.ts'
import {
  type Asset,
  type ExactOffer,
  readExactOffers,
  readHeader,
  readPaymentRequired,
} from './exactOffers.ts'
import type { Limits } from './limits.ts'
import type { Asked } from './offers.ts'
import type { Paid } from './outcome.ts'
import { requireDeployed, type Signer, signAuthorization } from './payer.ts'
import type { Attempt } from './presentation.ts'
import type { SellerReport, SignedSellerPayment } from './signedPayment.ts'
import type { Answer } from './transport.ts'

// Pays sellers that don't use Tollkeeper. It supports x402's `exact` (versions 1 and 2) and, over MCP, MPP's `charge`. It signs only EIP-3009
// transfers of Circle's USDC on the client's network, and sends them only to the requested origin. So it needs no token approval and no gas.

/** Options for paying sellers that don't use Tollkeeper. */
export type OtherSellersOptions = {
  /**
   * Maximum validity of a signature in seconds, even if the seller asks for more. During this time, the seller can settle the payment, and the client
   * signs no other payment for the same request. Default 3,600. The client's own `maxValiditySeconds` also applies.
   */
  maxValiditySeconds?: number
}

/** The parts of a client that signing needs. */
export type SellerContext = Asset & {
  gatewayUrl: string
  payer: Signer
  limits: Limits
  signProposed: SignProposed
  maxValiditySeconds: number | undefined
}

/** Signs payments for sellers that don't use Tollkeeper, and reads their responses. */
export type SellerSigner = {
  /** Whether a 402 is a request for payment in x402's form. */
  isDemand: (answer: Answer) => boolean
  /**
   * Signs one authorization for the first offer that the client can pay.
   *
   * @returns undefined for a challenge of the client's own gateway, which the client pays in another way.
   * @throws {ChallengeRefusedError} if nothing was signed.
   */
  sign: (attempt: Attempt<Answer>, answer: Answer) => Promise<SignedSellerPayment | undefined>
  /** Reads the seller's report on a payment. @returns undefined for a payment through the client's own gateway. */
  readReport: (paid: Paid<Answer>) => SellerReport | undefined
}

/** Maximum price at sellers that don't use Tollkeeper, for a client without `limits.perPayment`. x402's own client has the same default. */
const defaultPerPayment = parseUsdc('1')

/** Default of {@link OtherSellersOptions.maxValiditySeconds}. */
const defaultMaxSeconds = 3_600

/** Maximum length of the seller's reason in an error message. */
const maxReasonLength = 200

/** Returns a client's limits at sellers that don't use Tollkeeper. */
export function limitsForOthers(limits: Limits): Limits {
  return { ...limits, perPayment: limits.perPayment ?? defaultPerPayment }
}

/**
 * Returns the first offer of a 402 that the client can pay.
 *
 * @throws {ChallengeRefusedError} if the 402 comes from another origin, or contains no such offer.
 */
export function chooseOffer(
  { url }: Asked,
  answer: Answer,
  asset: Asset,
  readOffers?: Attempt<Answer>['readOffers'],
): ExactOffer {
  const { origin } = new URL(url)
  if (new URL(answer.url).origin !== origin)
    throw new ChallengeRefusedError(`${origin} redirected to ${answer.url}, which asks for the payment`)
  const required = readPaymentRequired(answer)
  const [offer] = [...(required ? readExactOffers(required, asset) : []), ...(readOffers?.(asset) ?? [])]
  if (offer) return offer
  throw new ChallengeRefusedError(
    `the seller accepts no USDC on ${asset.network.name} with one authorization (EIP-3009)`,
    { body: answer.body },
  )
}

/**
 * Creates the signer for sellers that don't use Tollkeeper.
 *
 * No gateway knows the outcome of such a payment. Once the signature has been sent, the outcome of an error is therefore always `unknown`, and a
 * repeated request presents the same signature until it expires (`settlesUntil`), regardless of the seller's response.
 */
export function createSellerSigner(
  { payer, gatewayUrl, network, usdc, limits, signProposed, ...client }: SellerContext,
  maxValiditySeconds = defaultMaxSeconds,
): SellerSigner {
  const maxSeconds = Math.min(maxValiditySeconds, client.maxValiditySeconds ?? maxValiditySeconds)
  const within = limitsForOthers(limits)

  return {
    isDemand: (answer) => readPaymentRequired(answer) !== undefined,
    readReport: ({ answer, payment }) => (payment?.header ? readReport(answer) : undefined),
    async sign(attempt, answer) {
      if (await isIssuedBy(gatewayUrl, answer)) return undefined
      const { asked, deadline, readOffers } = attempt
      const offer = chooseOffer(asked, answer, { network, usdc }, readOffers)
      const { amount, payTo, nonce, description, maxTimeoutSeconds, present } = offer
      const proposed = { amount, payTo, description, requestId: nonce }
      const sign = async () => {
        await requireDeployed(payer)
        deadline.signal.throwIfAborted()
        const now = Date.now() / 1000
        const until = Math.min(offer.validBefore ?? now + maxTimeoutSeconds, now + maxSeconds)
        const validBefore = BigInt(Math.floor(until))
        const terms = { from: payer.address, to: payTo, value: amount, validAfter: 0n, validBefore, nonce }
        const signed = { ...terms, signature: await signAuthorization(payer, network, usdc, terms) }
        const payloads: SignedSellerPayment['payloads'] = [encodePayload(signed)]
        return { requestId: nonce, network: network.name, amount, payloads, header: present(signed) }
      }
      return signProposed(attempt, proposed, sign, within)
    },
  }
}

/** Reads a seller's report from `PAYMENT-RESPONSE`, and from a 402 that refuses a payment. */
function readReport(answer: Answer): SellerReport {
  const { headers, status } = answer
  const response = readHeader(headers.get('payment-response') ?? headers.get('x-payment-response'))
  const { success, transaction, errorReason } = isRecord(response) ? response : {}
  const asksAgain = status === 402 ? readPaymentRequired(answer) : undefined
  const reason = textOf(errorReason) || textOf(asksAgain?.error)
  const hash = textOf(transaction)
  return {
    ...(typeof success === 'boolean' && { success }),
    ...(/^0x[\da-f]{64}$/i.test(hash) && { transaction: hash as Hash }),
    ...(reason !== '' && { reason: reason.slice(0, maxReasonLength) }),
  }
}
