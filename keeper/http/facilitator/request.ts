import { hash } from 'node:crypto'
import { z } from 'zod'
import type { ServedNetwork } from '#chain/servedNetworks'
import { ProtocolError } from '#protocol/errors'
import { encodePayload, parsePayload, type SignedAuthorization } from '#protocol/payload'

// The body of x402's /verify and /settle: specs/x402-specification-v1.md and -v2.md, scheme `exact` by EIP-3009.

/** A request in the standard's form, as far as a verdict depends on it. */
export type FacilitatorRequest = {
  version: 1 | 2
  served: ServedNetwork
  /** As the request names it: an answer names it the same. */
  network: string
  authorization: SignedAuthorization
  /** What the seller asks for, as it was written. */
  asked: { asset: string; payTo: string; amount: string }
  /** Scheme and network that the buyer accepted. */
  accepted: { scheme: string; network: string }
  resource: string
  paymentIdentifier: string | null
  /** SHA-256 in hex: the same for the same payment of the same request, to whichever route it comes. */
  hash: string
}

/** The body isn't in the standard's form: HTTP 400. */
export class MalformedRequest extends Error {
  override name = 'MalformedRequest'
}

/** A version, scheme or network that /supported doesn't name: HTTP 500, as by the reference. */
export class KindNotServed extends Error {
  override name = 'KindNotServed'
}

const authorization = z.object({
  from: z.string(),
  to: z.string(),
  value: z.string(),
  validAfter: z.string(),
  validBefore: z.string(),
  nonce: z.string(),
})
const payload = z.object({ signature: z.string(), authorization })
const kind = z.object({ scheme: z.string(), network: z.string() })
const requirements = kind.extend({ asset: z.string(), payTo: z.string() })
const identifierPattern = /^[A-Za-z0-9_-]{16,128}$/

const bodies = {
  1: z.object({
    paymentPayload: kind.extend({ payload }),
    paymentRequirements: requirements.extend({ maxAmountRequired: z.string(), resource: z.string() }),
  }),
  2: z.object({
    paymentPayload: z.object({
      accepted: kind,
      payload,
      resource: z.object({ url: z.string() }).nullish(),
      extensions: z
        .object({
          'payment-identifier': z
            .object({ info: z.object({ id: z.string().regex(identifierPattern).optional() }) })
            .optional(),
        })
        .nullish(),
    }),
    paymentRequirements: requirements.extend({ amount: z.string() }),
  }),
}
const versionSchema = z.object({
  x402Version: z.number().optional(),
  paymentPayload: z.object({ x402Version: z.number().optional() }),
})

/** @throws {MalformedRequest|KindNotServed} */
export function parseRequest(networks: readonly ServedNetwork[], body: unknown): FacilitatorRequest {
  const { x402Version, paymentPayload } = parse(versionSchema, body)
  const version = paymentPayload.x402Version ?? x402Version
  if (version === 1) return fromV1(networks, parse(bodies[1], body))
  if (version === 2) return fromV2(networks, parse(bodies[2], body))
  throw new KindNotServed(`x402 version ${version} is not served`)
}

function fromV1(networks: readonly ServedNetwork[], body: z.infer<(typeof bodies)[1]>): FacilitatorRequest {
  const { paymentPayload, paymentRequirements } = body
  const { maxAmountRequired: amount, resource, asset, payTo, network } = paymentRequirements
  const served = requireServed(networks, paymentRequirements, ({ name }) => name)
  const { scheme, network: acceptedNetwork } = paymentPayload
  return complete({
    version: 1,
    served,
    network,
    authorization: parseAuthorization(paymentPayload.payload),
    asked: { asset, payTo, amount },
    accepted: { scheme, network: acceptedNetwork },
    resource,
    paymentIdentifier: null,
  })
}

function fromV2(networks: readonly ServedNetwork[], body: z.infer<(typeof bodies)[2]>): FacilitatorRequest {
  const { paymentPayload, paymentRequirements } = body
  const { amount, asset, payTo, network } = paymentRequirements
  return complete({
    version: 2,
    served: requireServed(networks, paymentRequirements, ({ caip2 }) => caip2),
    network,
    authorization: parseAuthorization(paymentPayload.payload),
    asked: { asset, payTo, amount },
    accepted: paymentPayload.accepted,
    resource: paymentPayload.resource?.url ?? '',
    paymentIdentifier: paymentPayload.extensions?.['payment-identifier']?.info.id ?? null,
  })
}

function complete(request: Omit<FacilitatorRequest, 'hash'>): FacilitatorRequest {
  const { version, served, asked, accepted, resource, paymentIdentifier } = request
  const parts = [
    ...[version, served.network.chainId, accepted.scheme, accepted.network],
    ...[asked.asset, asked.payTo, asked.amount, resource, paymentIdentifier],
    encodePayload(request.authorization),
  ]
  return { ...request, hash: hash('sha256', JSON.stringify(parts)) }
}

function requireServed(
  networks: readonly ServedNetwork[],
  { scheme, network }: { scheme: string; network: string },
  nameOf: (network: ServedNetwork['network']) => string,
): ServedNetwork {
  const served = networks.find((one) => nameOf(one.network) === network)
  if (served && scheme === 'exact') return served
  throw new KindNotServed(`scheme ${scheme.slice(0, 40)} on network ${network.slice(0, 80)} is not served`)
}

function parseAuthorization({ signature, authorization }: z.infer<typeof payload>): SignedAuthorization {
  const { from, to, value, validAfter, validBefore, nonce } = authorization
  try {
    return parsePayload([from, to, value, validAfter, validBefore, nonce, signature].join(','))
  } catch (error) {
    if (error instanceof ProtocolError) throw new MalformedRequest(error.message, { cause: error })
    throw error
  }
}

function parse<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new MalformedRequest(`${issue?.path.join('.') || 'body'}: ${issue?.message}`)
}
