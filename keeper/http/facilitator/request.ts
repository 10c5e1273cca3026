import { hash } from 'node:crypto'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Declared } from '@tollkeeper/ledger/discovery/declarations'
import { declaredInV1, declaredInV2 } from '@tollkeeper/ledger/discovery/declared'
import { ProtocolError } from '@tollkeeper/sdk/protocol/errors'
import {
  encodePayload,
  parsePayload,
  type SignedAuthorization,
  toDecimal,
} from '@tollkeeper/sdk/protocol/payload'
import { decodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { z } from 'zod'
import { malformed, notServed } from './reasons.ts'

// The body of x402's /verify and /settle: specs/x402-specification-v1.md and -v2.md, scheme `exact` by EIP-3009.

/** The fields of a standard request on which a verdict depends. */
export type FacilitatorRequest = {
  version: 1 | 2
  served: ServedNetwork
  /** The network's name as in the request. The answer repeats it. */
  network: string
  authorization: SignedAuthorization
  /** The seller's requirements, as written in the request. */
  asked: { asset: string; payTo: string; amount: string }
  /** Scheme and network that the buyer accepted. */
  accepted: { scheme: string; network: string }
  resource: string
  paymentIdentifier: string | null
  /** The payment's description of its resource for discovery; null if it has none. */
  declared: Declared | null
  /**
   * SHA-256 in hex that identifies the request. The hash is the same for /verify and /settle, and it changes with the payment, the
   * requirements and the resource.
   */
  hash: string
}

const noInteger = 'expected an integer as decimal text, or a number below 2^53'

/** An integer. The standard uses decimal text, but sellers also send JSON numbers and hex. */
const integer = z.union([z.string(), z.number()], noInteger).transform((given, { addIssue }) => {
  const decimal = toDecimal(given)
  if (decimal === undefined) addIssue(noInteger)
  return decimal ?? ''
})

/** An authorization in JSON. */
export const authorization = z.object({
  from: z.string(),
  to: z.string(),
  value: integer,
  validAfter: integer,
  validBefore: integer,
  nonce: z.string(),
})
const payload = z.object({ signature: z.string(), authorization })
const kind = z.object({ scheme: z.string(), network: z.string() })
const requirements = kind.extend({ asset: z.string(), payTo: z.string() })
const identifierPattern = /^[A-Za-z0-9_-]{16,128}$/

/** Schemas of the body, by x402 version. */
export const bodies = {
  1: z.object({
    paymentPayload: kind.extend({ payload }),
    paymentRequirements: requirements.extend({
      maxAmountRequired: integer,
      resource: z.string().nullish(),
      // Only discovery uses these fields, so a wrong value must not cause a refusal.
      description: z.unknown().optional(),
      mimeType: z.unknown().optional(),
      maxTimeoutSeconds: z.unknown().optional(),
      outputSchema: z.unknown().optional(),
    }),
  }),
  2: z.object({
    paymentPayload: z.object({
      accepted: kind,
      payload,
      resource: z.looseObject({ url: z.string() }).nullish(),
      extensions: z
        .object({
          bazaar: z.unknown().optional(),
          'payment-identifier': z
            .object({ info: z.object({ id: z.string().regex(identifierPattern).optional() }) })
            .optional(),
        })
        .nullish(),
    }),
    paymentRequirements: requirements.extend({
      amount: integer,
      maxTimeoutSeconds: z.unknown().optional(),
    }),
  }),
}
const versionSchema = z.object({
  x402Version: z.number().optional(),
  paymentPayload: z.object({ x402Version: z.number().optional() }),
})

/**
 * Parses a request in any of the formats that sellers send.
 *
 * @throws {Refused}
 */
export function parseRequest(networks: readonly ServedNetwork[], given: unknown): FacilitatorRequest {
  const body = withPayload(given)
  const { x402Version, paymentPayload } = parse(versionSchema, body)
  const version = paymentPayload.x402Version ?? x402Version
  if (version === undefined) throw malformed('x402Version: expected 1 or 2')
  if (version === 1) return fromV1(networks, parse(bodies[1], body))
  if (version === 2) return fromV2(networks, parse(bodies[2], body))
  throw notServed('invalid_x402_version', `x402 version ${version} is not served: use 1 or 2`)
}

/**
 * Decodes `paymentHeader`. Sellers of x402's first versions send it instead of `paymentPayload`; it contains the buyer's payment header,
 * unchanged.
 */
function withPayload(body: unknown): unknown {
  const { paymentHeader, ...rest } = (typeof body === 'object' && body !== null ? body : {}) as Record<
    string,
    unknown
  >
  if (paymentHeader === undefined || rest.paymentPayload !== undefined) return body
  if (typeof paymentHeader !== 'string') throw malformed("paymentHeader: expected the request header's text")
  try {
    return { ...rest, paymentPayload: decodePaymentHeader(paymentHeader) }
  } catch (error) {
    throw malformed('paymentHeader: expected JSON in base64', error)
  }
}

function fromV1(networks: readonly ServedNetwork[], body: z.infer<(typeof bodies)[1]>): FacilitatorRequest {
  const { paymentPayload, paymentRequirements } = body
  const { maxAmountRequired: amount, asset, payTo, network } = paymentRequirements
  const served = requireServed(networks, paymentRequirements, ({ name }) => name)
  const { scheme, network: acceptedNetwork } = paymentPayload
  return complete({
    version: 1,
    served,
    network,
    authorization: parseAuthorization(paymentPayload.payload),
    asked: { asset, payTo, amount },
    accepted: { scheme, network: acceptedNetwork },
    resource: paymentRequirements.resource ?? '',
    paymentIdentifier: null,
    declared: declaredInV1(paymentRequirements),
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
    declared: declaredInV2(paymentPayload, paymentRequirements.maxTimeoutSeconds),
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

/** Finds the served network with this name, which may be the name in x402 version 1 or in version 2. */
export function findServed(
  networks: readonly ServedNetwork[],
  { scheme, network }: { scheme: string; network: string },
): ServedNetwork | undefined {
  if (scheme !== 'exact') return undefined
  return networks.find(({ network: { name, caip2 } }) => name === network || caip2 === network)
}

function requireServed(
  networks: readonly ServedNetwork[],
  { scheme, network }: { scheme: string; network: string },
  nameOf: (network: ServedNetwork['network']) => string,
): ServedNetwork {
  const served = findServed(networks, { scheme, network })
  if (served && nameOf(served.network) === network) return served
  throw notServed(
    scheme === 'exact' ? 'invalid_network' : 'invalid_scheme',
    `scheme ${scheme.slice(0, 40)} on network ${network.slice(0, 80)} is not served: see GET /supported for what is served`,
  )
}

/** Converts an authorization in JSON to a signed one. @throws {ProtocolError} */
export function toSigned(
  { from, to, value, validAfter, validBefore, nonce }: z.infer<typeof authorization>,
  signature: string,
): SignedAuthorization {
  return parsePayload([from, to, value, validAfter, validBefore, nonce, signature].join(','))
}

function parseAuthorization({ signature, authorization }: z.infer<typeof payload>): SignedAuthorization {
  try {
    return toSigned(authorization, signature)
  } catch (error) {
    if (error instanceof ProtocolError) throw malformed(error.message, error)
    throw error
  }
}

export function parse<T>(
  schema: z.ZodType<T>,
  body: unknown,
  refuse: (fault: string) => Error = malformed,
): T {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw refuse(`${issue?.path.join('.') || 'body'}: ${issue?.message}`)
}
