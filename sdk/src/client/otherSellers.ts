import type { Hash } from 'viem'
import { parseUsdc } from '../protocol/amount.ts'
import { isRecord, textOf } from '../protocol/fields.ts'
import { encodePayload } from '../protocol/payload.ts'
import type { SignProposed } from './challengeSigner.ts'
import { isIssuedBy } from './checkChallenge.ts'
import { ChallengeRefusedError } from './errors.ts'
import { type Asset, readExactOffers, readHeader, readPaymentRequired } from './exactOffers.ts'
import type { Limits } from './limits.ts'
import type { Paid } from './outcome.ts'
import { requireDeployed, type Signer, signAuthorization } from './payer.ts'
import type { Attempt } from './presentation.ts'
import type { SellerReport, SignedSellerPayment } from './signedPayment.ts'
import type { Answer } from './transport.ts'

/** Options of {@link payOtherSellers}. */
export type OtherSellersOptions = {
  /**
   * The maximum validity of a signature in seconds, whatever the seller asks for. Until it ends, the seller can settle the payment, and
   * the client signs no other one for the same request. Default 3,600. The client's own `maxValiditySeconds` holds, too.
   */
  maxValiditySeconds?: number
}

/** Pays sellers that aren't Tollkeeper's: what {@link payOtherSellers} returns, for the option `otherSellers`. */
export type OtherSellers = { open: (context: SellerContext) => SellerSigner }

/** What signing needs of a client. */
export type SellerContext = Asset & {
  gatewayUrl: string
  payer: Signer
  limits: Limits
  signProposed: SignProposed
  maxValiditySeconds: number | undefined
}

/** Signs for sellers that aren't Tollkeeper's, and reads what they answer. */
export type SellerSigner = {
  /** Whether a 402 is a request for payment as x402 has it. */
  isDemand: (answer: Answer) => boolean
  /**
   * Signs one authorization for the first offer that the client can pay.
   *
   * @returns undefined for a challenge of the client's own gateway, which is paid otherwise.
   * @throws {ChallengeRefusedError} with nothing signed.
   */
  sign: (attempt: Attempt<Answer>, answer: Answer) => Promise<SignedSellerPayment | undefined>
  /** @returns undefined for a payment through the client's own gateway. */
  readReport: (paid: Paid<Answer>) => SellerReport | undefined
}

/** The maximum price of a client without `maxPaymentUsdc`, which is also that of x402's own client. */
const defaultMaxPayment = parseUsdc('1')

/** The maximum length of a seller's reason, which goes into an error's message. */
const maxReasonLength = 200

/**
 * Has a client also pay sellers that aren't Tollkeeper's: x402's scheme `exact`, versions 2 and 1, and over MCP also MPP's `charge`.
 * Pass it to `createClient`, `wrapFetch` or `payingMcpClient` as the option `otherSellers`. Sellers of the client's own gateway are paid
 * as before.
 *
 * The client's limits, `allowedHosts` and `onPayment` hold for these payments, too. Without `maxPaymentUsdc`, a payment is at most
 * 1 USDC. Only USDC of Circle's contract on the client's network is paid, only to the origin that was requested, and by one EIP-3009
 * authorization, so nothing is approved and no gas is needed.
 *
 * No gateway can be asked what became of such a payment. So an error is always `unknown` once the signature was sent, and a repeated
 * request presents the same signature until it has expired (`settlesUntil`), whatever the seller answers.
 *
 * @throws {TypeError} for a `maxValiditySeconds` below 1.
 * @example
 * import { createClient } from '@tollkeeper/sdk'
 * import { payOtherSellers } from '@tollkeeper/sdk/other-sellers'
 *
 * export async function readTides() {
 *   const client = createClient({
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     maxPaymentUsdc: '0.10',
 *     maxDailyUsdc: '5',
 *     otherSellers: payOtherSellers(),
 *   })
 *   const { data, sellerReport } = await client.request('https://tides.example/today')
 *   return { data, transaction: sellerReport?.transaction }
 * }
 */
export function payOtherSellers({ maxValiditySeconds = 3_600 }: OtherSellersOptions = {}): OtherSellers {
  if (!(maxValiditySeconds >= 1))
    throw new TypeError(`maxValiditySeconds must be 1 or more, got ${maxValiditySeconds}`)
  return {
    open: (context) => createSellerSigner(context, maxValiditySeconds),
  }
}

function createSellerSigner(
  { payer, gatewayUrl, network, usdc, limits, signProposed, ...client }: SellerContext,
  maxValiditySeconds: number,
): SellerSigner {
  const maxSeconds = Math.min(maxValiditySeconds, client.maxValiditySeconds ?? maxValiditySeconds)
  const within = { ...limits, maxPayment: limits.maxPayment ?? defaultMaxPayment }

  return {
    isDemand: (answer) => readPaymentRequired(answer) !== undefined,
    readReport: ({ answer, payment }) => (payment?.header ? readReport(answer) : undefined),
    async sign({ asked, deadline, readOffers }, answer) {
      if (isIssuedBy(gatewayUrl, answer)) return undefined
      const { origin } = new URL(asked.url)
      if (new URL(answer.url).origin !== origin)
        throw new ChallengeRefusedError(`${origin} redirected to ${answer.url}, which asks for it`)
      const required = readPaymentRequired(answer)
      const asset = { network, usdc }
      const [offer] = [...(required ? readExactOffers(required, asset) : []), ...(readOffers?.(asset) ?? [])]
      if (!offer) {
        throw new ChallengeRefusedError(
          `nothing that it takes is USDC on ${network.name} by one authorization (EIP-3009)`,
          { body: answer.body },
        )
      }
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
      return signProposed(asked.seller ?? asked.url, proposed, deadline, sign, within)
    },
  }
}

/** Reads what a seller reports in `PAYMENT-RESPONSE`, and in the 402 with which it refuses a payment. */
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
