import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { readDeclaration } from '@tollkeeper/ledger/discovery/declarations'
import type { Finding, Said, Unproven } from '@tollkeeper/ledger/discovery/originProofs'
import { parseJson, textOf } from '@tollkeeper/sdk/protocol/fields'

/** What a seller's server answered to a request without a payment. */
export type OriginAnswer = {
  httpStatus: number
  /** The header `PAYMENT-REQUIRED`. */
  paymentRequired: unknown
  body: string
}

/** Reads whom a stranger's server wants paid. Never throws, whatever it answers. */
export function readOriginAnswer(
  { httpStatus, paymentRequired, body }: OriginAnswer,
  one: Unproven,
  networks: readonly ServedNetwork[],
): Finding {
  const away = (why: string): Finding => ({ kind: 'unproven', isAway: true, why })
  if (httpStatus >= 400 && httpStatus < 500 && httpStatus !== 402)
    return away(
      `it answered ${httpStatus} to a request without a payment, expected 402: ask for payment before you check the input, or register ` +
        'an input that passes as the example, which is sent once another URL of this server is proven',
    )
  if (httpStatus !== 402)
    return away(`it answered ${httpStatus} to a request without a payment, expected 402`)
  const required = [Buffer.from(textOf(paymentRequired), 'base64').toString(), body].map(parseJson)
  const payees = required.flatMap(readPayees)
  if (payees.length === 0) return away('its 402 is none of x402')
  if (!payees.includes(one.payTo))
    return { kind: 'unproven', isAway: false, why: 'its 402 asks for payments to others' }
  const served = networks.find(({ network }) => network.chainId === one.chainId)
  if (one.declaredId === null || served === undefined) return { kind: 'proven', said: null, amount: null }
  for (const each of required) {
    const offer = findOffer(each, one, served)
    if (offer) return { kind: 'proven', said: readSaid(each, one, offer), amount: offer.amount }
  }
  return { kind: 'proven', said: null, amount: null }
}

/** The payees that an answer names: each `payTo`, and behind a splitter its wallet. */
function readPayees(answer: unknown): string[] {
  return offersOf(answer)
    .slice(0, maxOffers)
    .flatMap((entry) => {
      const { payTo, extra } = record(entry)
      const { provider } = record(record(extra).splitter)
      return [payTo, provider].flatMap((address) => textOf(address).toLowerCase() || [])
    })
}

const maxOffers = 20

function offersOf(answer: unknown): unknown[] {
  const { accepts } = record(answer)
  return Array.isArray(accepts) ? accepts : []
}

type Offer = { amount: bigint; maxTimeoutSeconds: number }

/** The offer in USDC on the network of the resource's payments: a wallet may be paid elsewhere and in other tokens, too. */
function findOffer(
  required: unknown,
  { payTo }: Unproven,
  { network, token }: ServedNetwork,
): Offer | undefined {
  for (const entry of offersOf(required).slice(0, maxOffers)) {
    const { scheme, network: name, asset, payTo: payee, maxTimeoutSeconds, ...offer } = record(entry)
    const isThere = scheme === 'exact' && (name === network.caip2 || name === network.name)
    if (!isThere || textOf(asset).toLowerCase() !== token || textOf(payee).toLowerCase() !== payTo) continue
    const amount = textOf(offer.amount ?? offer.maxAmountRequired)
    if (!/^\d{1,19}$/.test(amount)) continue
    const seconds = typeof maxTimeoutSeconds === 'number' ? Math.floor(maxTimeoutSeconds) : 60
    return { amount: BigInt(amount), maxTimeoutSeconds: seconds }
  }
  return undefined
}

/** A declared resource's own description; null if it has nothing to show. */
function readSaid(
  required: unknown,
  { url, payTo, chainId }: Unproven,
  { amount, maxTimeoutSeconds }: Offer,
): Said | null {
  const { resource, extensions } = record(required)
  const { bazaar } = record(extensions)
  if (bazaar === undefined) return null
  const { description, mimeType, serviceName, tags, iconUrl } = record(resource)
  const declared = {
    resource: url,
    x402Version: 2 as const,
    serviceName,
    tags,
    iconUrl,
    bazaar,
    description: textOf(description),
    mimeType: textOf(mimeType),
    maxTimeoutSeconds,
  }
  const read = readDeclaration(declared, { chainId, payTo, amount, providerId: null })
  return typeof read === 'string' ? null : read
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
