import { isIssuedBy } from '@tollkeeper/sdk/client/checkChallenge'
import { toError } from '@tollkeeper/sdk/client/createClient'
import type { Asked } from '@tollkeeper/sdk/client/offers'
import { isUnclear } from '@tollkeeper/sdk/client/outcome'
import { createPaymentFlow, type PaymentOptions } from '@tollkeeper/sdk/client/paymentFlow'
import { sendUntilAnswered } from '@tollkeeper/sdk/client/presentation'
import { fetchPaid } from '@tollkeeper/sdk/client/redirects'
import { createOpenPayments } from '@tollkeeper/sdk/client/repeats'
import type { SignedPayment } from '@tollkeeper/sdk/client/signedPayment'
import {
  type Answer,
  type Deadline,
  readAnswer,
  startDeadline,
  toNetworkError,
} from '@tollkeeper/sdk/client/transport'
import { openAnswer, watchBody } from '@tollkeeper/sdk/client/wrapFetch'
import { chooseOffer, isRequired } from '@tollkeeper/sdk/mcp/demands'
import { paymentKeys } from '@tollkeeper/sdk/mcp/metaKeys'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'

type Fetch = typeof globalThis.fetch

/** A payment for a seller of another gateway, and the header that presents it. */
type Foreign = { payment: SignedPayment; header: readonly [name: string, value: string] }

/** How long a payment is presented again while it is being served. */
const pendingTimeoutMs = 60_000

/**
 * Wraps a `fetch` of URLs so that it pays other people's sellers by x402's `exact` in USDC, versions 2 and 1. A 402 for our own
 * gateway is passed on to the client that pays it.
 *
 * If a seller's answer was lost, or it refuses a payment, it is shown no other for the same request until that one has expired:
 * it may still settle it, and nobody else could say.
 *
 * @returns a function that throws what `fetch` throws, and `ClientError` if it may not pay, or is asked to pay again.
 */
export function payOthers(fetch: Fetch, options: PaymentOptions): Fetch {
  const flow = createPaymentFlow({ ...options, tabs: false }, fetch)
  const open = createOpenPayments(({ payment }: Foreign) => payment)

  /** Signs what a 402 asks for. @returns undefined if it is nothing that we pay here. */
  async function sign(asked: Asked, answer: Answer, deadline: Deadline): Promise<Foreign | undefined> {
    const { network, usdc } = flow
    const required = requiredOf(answer)
    // Only the origin that was asked may ask for money.
    const isTheirs = new URL(answer.url).origin === new URL(asked.url).origin
    if (!required || !usdc || !isTheirs || isIssuedBy(options.gatewayUrl, answer.body)) return undefined
    const offer = chooseOffer({ required, isBase64: true, mpp: [] }, { network, usdc })
    if (!offer) return undefined
    const signed = await flow.signOffer(asked.url, offer, deadline)
    const presented = offer.present(signed)
    const v2 = presented[paymentKeys.x402]
    return {
      payment: {
        requestId: offer.nonce,
        network: network.name,
        macaroon: '',
        amount: offer.amount,
        payloads: [encodePayload(signed)],
      },
      header: v2 ? ['payment-signature', String(v2)] : ['x-payment', String(presented[paymentKeys.x402V1])],
    }
  }

  async function present(asked: Asked, foreign: Foreign, init: RequestInit, deadline: Deadline) {
    const { payment, header } = foreign
    const headers = new Headers(init.headers)
    headers.set(...header)
    const send = async (within: Deadline) => {
      try {
        const paid = { url: asked.url, init: { ...init, headers } }
        return await openAnswer(await fetchPaid(fetch, paid), asked.url, within)
      } catch (error) {
        throw toNetworkError(error, asked.url, within)
      }
    }
    const remember = () => open.add(asked, foreign)
    const paying = { ...deadline, payment }
    const answer = await sendUntilAnswered(send, paying, { pendingTimeoutMs, log: () => {} }).catch(
      async (error: unknown) => {
        await remember()
        throw error
      },
    )
    if (isUnclear(answer)) await remember()
    // Passed on as an answer, it would look like a first request for payment.
    if (answer.status === 402) throw toError({ answer, payment, word: 'unknown' })
    return answer.status < 400 ? watchBody(answer.response, remember) : answer.response
  }

  return async (input, init = {}) => {
    const headers = new Headers(init.headers)
    const isPaid = /^x402 /i.test(headers.get('authorization') ?? '') || headers.has('payment-signature')
    // A caller that follows redirects by itself has paid: where they lead, it buys nothing more.
    if (isPaid || headers.has('x-payment') || init.redirect === 'manual') return fetch(input, init)
    const asked = { method: init.method ?? 'GET', url: String(input), body: init.body }
    const deadline = startDeadline(undefined, init.signal)
    const before = await open.take(asked, Date.now() / 1000)
    if (before) return present(asked, before, init, deadline)
    const response = await fetch(input, init)
    if (response.status !== 402) return response
    const answer = await readAnswer(response.clone(), asked.url, deadline).catch(() => undefined)
    const foreign = answer && (await sign(asked, answer, deadline))
    return foreign ? present(asked, foreign, init, deadline) : response
  }
}

/** x402's PaymentRequired: in version 2 a header, in version 1 the body. */
function requiredOf({ headers, body }: Answer): Record<string, unknown> | undefined {
  const header = headers.get('payment-required')
  try {
    const required = header === null ? body : decodePaymentHeader(header)
    return isRequired(required) ? required : undefined
  } catch {
    return undefined
  }
}
