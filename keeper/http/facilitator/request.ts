import { hash } from 'node:crypto'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { hasBody } from '@tollkeeper/ledger/discovery/bazaar'
import type { Declared } from '@tollkeeper/ledger/discovery/declarations'
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

/** A request in the standard's form: the fields that a verdict depends on. */
export type FacilitatorRequest = {
  version: 1 | 2
  served: ServedNetwork
  /** The network's name in the request, which the answer repeats. */
  network: string
  authorization: SignedAuthorization
  /** What the seller asks for, as it was written. */
  asked: { asset: string; payTo: string; amount: string }
  /** Scheme and network that the buyer accepted. */
  accepted: { scheme: string; network: string }
  resource: string
  paymentIdentifier: string | null
  /** How the payment describes its resource for discovery; null: not at all. */
  declared: Declared | null
  /** SHA-256 in hex: equal for the same payment of the same request, on any route. */
  hash: string
}

const noInteger = 'expected an integer as decimal text, or a number below 2^53'

/** The standard has decimal text; sellers also send JSON's numbers, and hex. */
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

/** By version. */
export const bodies = {
  1: z.object({
    paymentPayload: kind.extend({ payload }),
    paymentRequirements: requirements.extend({
      maxAmountRequired: integer,
      resource: z.string().nullish(),
      // Only discovery shows these, so a wrong one refuses no payment.
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
 * Reads a request in the forms in which sellers send it.
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

/** Sellers of x402's first versions send the payment's header as it came, by the name `paymentHeader`. */
function withPayload(body: unknown): unknown {
  const { paymentHeader, ...rest } = (typeof body === 'object' && body !== null ? body : {}) as Record<
    string,
    unknown
  >
  if (paymentHeader === undefined || rest.paymentPayload !== undefined) return body
  if (typeof paymentHeader !== 'string') throw malformed('paymentHeader: expected the header as it came')
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
    declared: declaredInV2(paymentPayload, paymentRequirements),
  })
}

type Body<V extends 1 | 2> = z.infer<(typeof bodies)[V]>

function declaredInV2(
  { resource, extensions }: Body<2>['paymentPayload'],
  { maxTimeoutSeconds }: Body<2>['paymentRequirements'],
): Declared | null {
  if (!resource || extensions?.bazaar === undefined) return null
  const { url, serviceName, tags, iconUrl } = resource
  return {
    resource: url,
    x402Version: 2,
    serviceName,
    tags,
    iconUrl,
    bazaar: extensions.bazaar,
    ...words({ description: resource.description, mimeType: resource.mimeType }, maxTimeoutSeconds),
  }
}

/** Version 1 has it in `outputSchema`, if a seller declared itself `discoverable`. */
function declaredInV1(requirements: Body<1>['paymentRequirements']): Declared | null {
  const { resource } = requirements
  const { input, output } = (requirements.outputSchema ?? {}) as Record<string, unknown>
  // A listing needs a URL.
  if (!resource) return null
  if (typeof input !== 'object' || input === null) return null
  const { discoverable, type, method, ...parts } = input as Record<string, unknown>
  if (type !== 'http' || discoverable === false) return null
  const shown = typeof method === 'string' ? method.toUpperCase() : 'GET'
  // Version 1 shows the input by an example of no particular shape.
  const given = hasBody(shown)
    ? { bodyType: 'json', body: parts.bodyFields ?? parts.body ?? {} }
    : { ...(parts.queryParams !== undefined && { queryParams: parts.queryParams }) }
  const info = {
    input: { type, method: shown, ...given },
    ...(output !== undefined && { output: { example: output } }),
  }
  return {
    resource,
    x402Version: 1,
    bazaar: { info, schema: { type: 'object' } },
    ...words(requirements, requirements.maxTimeoutSeconds),
  }
}

function words(
  { description, mimeType }: { description?: unknown; mimeType?: unknown },
  maxTimeoutSeconds: unknown,
) {
  return {
    description: typeof description === 'string' ? description : '',
    mimeType: typeof mimeType === 'string' ? mimeType : '',
    maxTimeoutSeconds: typeof maxTimeoutSeconds === 'number' ? Math.floor(maxTimeoutSeconds) : 60,
  }
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

/** The served network with this name in either version. */
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
    `scheme ${scheme.slice(0, 40)} on network ${network.slice(0, 80)} is not served: GET /supported names what is`,
  )
}

/** @throws {ProtocolError} */
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
