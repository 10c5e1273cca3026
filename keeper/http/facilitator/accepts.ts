import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { ProtocolError } from '@tollkeeper/sdk/protocol/errors'
import { z } from 'zod'
import { malformed } from './reasons.ts'
import { findServed, parse } from './request.ts'

// `POST /accepts` isn't in the standard. Some servers ask their facilitator to complete their requirements, each in a different format.

/** Time in seconds for which a payment is valid if its seller doesn't set `maxTimeoutSeconds`. The standard's own servers use the same default. */
const defaultTimeoutSeconds = 300

const seconds = z
  .number()
  .int()
  .max(2 ** 31)
const amount = z.string().regex(/^[1-9]\d{0,77}$/)
const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/)

/** Requirements of version 2 without the fields that only the facilitator knows, as faremeter's servers send them. */
const incomplete = z.object({
  x402Version: z.literal(2),
  resource: z.looseObject({ url: z.string() }).optional(),
  accepts: z
    .array(
      z.object({
        scheme: z.string().default('exact'),
        network: z.string(),
        amount,
        asset: address.optional(),
        payTo: address,
        maxTimeoutSeconds: seconds.optional(),
        extra: z.record(z.string(), z.unknown()).optional(),
      }),
    )
    .min(1)
    .max(20),
})

/** A price for a resource, as thirdweb's servers send it. */
const priced = z.object({
  resourceUrl: z.string(),
  network: z.string(),
  scheme: z.string().default('exact'),
  price: z.union([z.string(), z.number(), z.object({ amount, asset: z.object({ address }) })]),
  recipientAddress: address.nullish(),
  serverWalletAddress: address,
  routeConfig: z
    .object({
      description: z.string().optional(),
      mimeType: z.string().optional(),
      maxTimeoutSeconds: seconds.optional(),
      outputSchema: z.unknown().optional(),
    })
    .nullish(),
  extraMetadata: z.record(z.string(), z.unknown()).nullish(),
})

/** Completes a seller's requirements, and answers in the seller's format. @throws {Refused} */
export function completeRequirements(
  networks: readonly ServedNetwork[],
  body: unknown,
): { status: 200 | 402; body: object } {
  const isPriced = typeof body === 'object' && body !== null && 'resourceUrl' in body
  if (isPriced) return { status: 402, body: fromPrice(networks, parse(priced, body)) }
  const { resource, accepts } = parse(incomplete, body)
  const completed = accepts.flatMap((one) => complete(networks, one) ?? [])
  if (completed.length === 0)
    throw malformed(
      'accepts: expected an entry for USDC with scheme exact, on a network that GET /supported lists',
    )
  return { status: 200, body: { x402Version: 2, resource: resource ?? { url: '' }, accepts: completed } }
}

function fromPrice(
  networks: readonly ServedNetwork[],
  { resourceUrl: resource, price, routeConfig, ...asked }: z.infer<typeof priced>,
) {
  const {
    description = '',
    mimeType = 'application/json',
    maxTimeoutSeconds,
    outputSchema,
  } = routeConfig ?? {}
  const requirements = complete(networks, {
    scheme: asked.scheme,
    network: asked.network,
    amount: typeof price === 'object' ? price.amount : toBaseUnits(price),
    asset: typeof price === 'object' ? price.asset.address : undefined,
    payTo: asked.recipientAddress ?? asked.serverWalletAddress,
    maxTimeoutSeconds,
    extra: asked.extraMetadata ?? {},
  })
  if (requirements === null)
    throw malformed(
      `scheme ${asked.scheme.slice(0, 40)} on ${asked.network.slice(0, 80)} is not served: see GET /supported for what is served`,
    )
  // Has the fields of both x402 versions. thirdweb's server puts the requirements into a version 2 header, but its older buyers read the
  // fields of version 1.
  const accepted = {
    ...requirements,
    maxAmountRequired: requirements.amount,
    resource,
    description,
    mimeType,
    ...(outputSchema !== undefined && { outputSchema }),
  }
  return { x402Version: 1, error: 'Payment required', accepts: [accepted] }
}

type Asked = Omit<z.infer<typeof incomplete>['accepts'][number], 'asset'> & { asset?: string | undefined }

/** Completes one entry. Returns null if it asks for a scheme, network or asset that isn't served here. */
function complete(networks: readonly ServedNetwork[], { asset, extra, ...asked }: Asked) {
  const served = findServed(networks, asked)
  if (!served || (asset !== undefined && asset.toLowerCase() !== served.token)) return null
  const { maxTimeoutSeconds: timeout = 0 } = asked
  return {
    ...asked,
    network: served.network.caip2,
    asset: asset ?? served.token,
    maxTimeoutSeconds: timeout > 0 ? timeout : defaultTimeoutSeconds,
    extra: { ...extra, ...extraOf(served) },
  }
}

/**
 * Returns the fields that a buyer needs to sign a transfer, under the names that common servers use. Both `/supported` and completed
 * requirements contain these fields.
 */
export function extraOf({ network: { eip712 } }: ServedNetwork) {
  return { ...eip712, decimals: 6, primaryType: 'TransferWithAuthorization' as const }
}

/** Converts a price in USD to base units. A seller writes the price as `$0.10`, as `0.10` or as a JSON number. */
function toBaseUnits(price: string | number): string {
  try {
    const value = parseUsdc(`${price}`.replace(/^\$/, ''))
    if (value > 0n) return `${value}`
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
  }
  throw malformed('price: expected USD above 0 with up to 6 decimals')
}
