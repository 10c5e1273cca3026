import { z } from '@hono/zod-openapi'
import { type Address, checksumAddress } from 'viem'
import { errorCodes } from '#protocol/errors'
import { networkNames } from '#protocol/networks'
import { paymentStatuses } from '#protocol/paymentStatus'
import { methods } from '../registry/endpoints.ts'

/*
 * Everything that goes over the wire, in one place: requests are checked against these schemas, and the OpenAPI
 * document is generated from them.
 */

const idPattern = (prefix: string) => new RegExp(`^${prefix}_[0-9a-f]{32}$`)
const id = (prefix: string) =>
  z
    .string()
    .openapi({ example: `${prefix}_0f8fad5bd9cb469fa16570867728950e`, pattern: idPattern(prefix).source })

/** Identifiers are looked up as they come: one of a wrong form is simply unknown. */
export const providerId = id('prov')
export const endpointId = id('ep')
export const walletId = id('wal')
export const paymentId = id('pay')
export const keyId = id('key')
const requestId = id('req')

const isoTime = z.iso.datetime().openapi({ example: '2026-11-21T13:00:00.000Z' })
const decimalUsdc = z.string().openapi({ example: '0.050000', description: 'USDC, always 6 decimals' })
const baseUnits = z.string().openapi({ example: '47500', description: 'USDC base units: 1000000 = 1 USDC' })
const hex32 = z.string().openapi({ example: `0x${'ab'.repeat(32)}`, pattern: '^0x[0-9a-f]{64}$' })

/** Lower-case, upper-case or rightly checksummed (EIP-55); comes out lower-case. */
export const address = z
  .string()
  .regex(/^0x[0-9a-fA-F]{40}$/, 'expected 0x and 40 hex digits')
  .refine((text) => {
    const digits = text.slice(2)
    if (digits === digits.toLowerCase() || digits === digits.toUpperCase()) return true
    return checksumAddress(text.toLowerCase() as Address) === text
  }, 'wrong EIP-55 checksum: a digit may be mistyped')
  .transform((text) => text.toLowerCase() as Address)
  .openapi({ type: 'string', example: '0x71c7656ec7ab88b098defb751b7401b5f6d8976f' })

export const addressOut = z.string().openapi({ example: '0x71c7656ec7ab88b098defb751b7401b5f6d8976f' })

export const networkName = z.string().openapi({ enum: [...networkNames], example: 'base' })

export const testnet = z.boolean().openapi({ description: 'Paid in test money, which is worth nothing' })

/** A decimal string, or a JSON number read by its shortest decimal form. `parseUsdc` reads it. */
const usdcPerUnit = z
  .union([z.string().max(40), z.number()])
  .openapi({ type: 'string', example: '0.05', description: 'USDC, at most 6 decimals' })

const pricing = z.object({ usdcPerUnit }).openapi('Pricing')
const pricingOut = z.object({ usdcPerUnit: z.string().openapi({ example: '0.050000' }) })

const text = (max: number) => z.string().max(max)

export const problem = z
  .object({
    type: z.string().openapi({ example: 'urn:tollkeeper:problem:unknown_endpoint' }),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    code: z.string().openapi({ enum: Object.keys(errorCodes) }),
  })
  .loose()
  .openapi('Problem')

// Providers, keys, wallets, endpoints ---------------------------------------------------------------------------------

export const newProvider = z
  .object({
    name: text(200).min(1),
    contact: text(320).optional(),
    requiresKey: z
      .boolean()
      .optional()
      .openapi({ description: "Whether /verify for this provider's endpoints takes its API key only" }),
  })
  .openapi('NewProvider')

export const provider = z
  .object({
    providerId,
    name: z.string(),
    contact: z.string().nullable(),
    requiresKey: z.boolean(),
    createdAt: isoTime,
  })
  .openapi('Provider')

const secretKey = z.string().openapi({ description: 'Shown this once; stored hashed', example: 'tk_…' })

export const providerWithKey = provider.extend({ keyId, apiKey: secretKey }).openapi('ProviderWithKey')

export const newApiKey = z.object({ label: text(200).optional() }).openapi('NewApiKey')
export const apiKey = z
  .object({ keyId, label: z.string(), createdAt: isoTime, revokedAt: isoTime.nullable() })
  .openapi('ApiKey')
export const issuedApiKey = z
  .object({ keyId, label: z.string(), createdAt: isoTime, apiKey: secretKey })
  .openapi('IssuedApiKey')

export const newWallet = z.object({ network: networkName, address }).openapi('NewWallet')
export const wallet = z
  .object({ walletId, providerId, network: networkName, testnet, address: addressOut, createdAt: isoTime })
  .openapi('Wallet')

export const newEndpoint = z
  .object({
    url: text(2048),
    method: z.enum(methods).optional().openapi({ description: 'Default: any method' }),
    pricing,
    walletId: walletId.optional().openapi({ description: "Default: the provider's wallet on `network`" }),
    network: networkName.optional(),
    walletIds: z
      .array(walletId)
      .min(1)
      .max(networkNames.length)
      .optional()
      .openapi({
        description:
          'Instead of `walletId` and `network`: the wallets that it may be paid on, one a network, the default first. ' +
          'Test and production networks are not mixed.',
      }),
    description: text(500).optional(),
    mimeType: text(200).min(1).optional(),
  })
  .openapi('NewEndpoint')
export const endpoint = z
  .object({
    endpointId,
    providerId,
    walletId,
    network: networkName,
    networks: z
      .array(z.object({ network: networkName, walletId }))
      .openapi({ description: 'All that it may be paid on, the default first' }),
    testnet,
    method: z.enum(methods),
    url: z.string(),
    path: z.string(),
    pricing: pricingOut,
    description: z.string(),
    mimeType: z.string(),
    createdAt: isoTime,
  })
  .openapi('Endpoint')

// Challenge and verification ------------------------------------------------------------------------------------------

export const challengeQuery = z.object({ providerId, endpointId })

export const challengeRequest = z
  .object({
    providerId,
    endpointId: endpointId
      .optional()
      .openapi({ description: 'Default: matched by method and the path of `resource`' }),
    pricing: pricing.optional(),
    resource: text(2048).optional(),
    method: text(16).optional(),
    network: networkName.optional(),
  })
  .openapi('ChallengeRequest')

const requirements = z
  .object({
    scheme: z.literal('exact'),
    network: z.string(),
    maxAmountRequired: baseUnits,
    resource: z.string(),
    description: z.string(),
    mimeType: z.string(),
    outputSchema: z.null(),
    payTo: addressOut,
    maxTimeoutSeconds: z.int(),
    asset: addressOut,
    extra: z.object({ name: z.string(), version: z.string() }),
  })
  .openapi('PaymentRequirements')

export const challenge = z
  .object({
    x402Version: z.literal(1),
    accepts: z
      .array(requirements)
      .length(2)
      .openapi({ description: "The provider's payment, then the platform's fee" }),
    macaroon: z.string(),
    providerId,
    endpointId,
    requestId,
    issuer: z.string(),
    error: z.string().optional(),
  })
  .openapi('Challenge')

const payload = z.string().openapi({ example: '0x…,0x…,47500,0,1795273200,0x…,0x…' })

export const verifyRequest = z
  .object({
    macaroon: z.string(),
    payloads: z.tuple([payload, payload]).openapi({ type: 'array', items: { type: 'string' } }),
    providerId,
    endpointId,
    pricing: pricing.optional(),
    network: networkName
      .optional()
      .openapi({ description: 'The only one that the caller accepts. Default: any of the endpoint' }),
  })
  .openapi('VerifyRequest')

export const verifyHeaders = z.object({
  'idempotency-key': z
    .string()
    .max(255)
    .optional()
    .openapi({ description: 'Same key and same body: same answer' }),
})

export const verification = z
  .object({ verified: z.literal(true), receipt: z.string(), paymentId, requestId })
  .openapi('Verification')

// Payments and receipts -----------------------------------------------------------------------------------------------

const half = z
  .object({
    state: z.enum(['open', 'settled', 'cancelled', 'foreign_use']),
    to: addressOut,
    value: baseUnits,
    nonce: hex32,
    transactionHash: hex32.nullable(),
    logIndex: z.int().nullable(),
    blockNumber: z.int().nullable(),
  })
  .openapi('PaymentHalf')

export const payment = z
  .object({
    paymentId,
    requestId,
    payment_status: z.enum(paymentStatuses),
    providerId,
    endpointId,
    network: networkName,
    testnet,
    asset: addressOut,
    payer: addressOut,
    resource: z.string(),
    totalUsdc: baseUnits,
    providerUsdc: baseUnits,
    platformUsdc: baseUnits,
    tier: z.string(),
    effectiveRate: z.string(),
    acceptedAt: isoTime,
    validBefore: z.int(),
    provider: half,
    platform: half,
    attempts: z.int(),
    nextAttemptAt: isoTime.nullable(),
    failureCode: z.string().nullable(),
    voidedAt: isoTime.nullable(),
    indexedBlock: z.int().nullable(),
  })
  .openapi('Payment')

export const receipt = z.object({ paymentId, receipt: z.string() }).openapi('Receipt')

export const jwks = z
  .object({
    keys: z.array(
      z.object({
        kty: z.literal('EC'),
        crv: z.literal('P-256'),
        x: z.string(),
        y: z.string(),
        kid: z.string(),
        use: z.literal('sig'),
        alg: z.literal('ES256'),
      }),
    ),
  })
  .openapi('JwkSet')

// Settlement views ----------------------------------------------------------------------------------------------------

const networkFilter = networkName
  .optional()
  .openapi({ description: 'Default: the first network that is served' })

export const settlementStatusQuery = z.object({ wallet: address, network: networkFilter })

export const settlementStatus = z
  .object({
    wallet_address: addressOut,
    accumulated_usdc: decimalUsdc,
    payment_count: z.int(),
    first_payment_at: isoTime.nullable(),
    age_seconds: z.int(),
    estimated_settlement: isoTime.nullable(),
    network: networkName,
    indexedBlock: z.int(),
  })
  .openapi('SettlementStatus')

export const batchesQuery = z.object({
  wallet: address.optional(),
  tx_hash: z
    .string()
    .regex(/^0x[0-9a-fA-F]{64}$/, 'expected 0x and 64 hex digits')
    .transform((text) => text.toLowerCase())
    .optional(),
  limit: z
    .string()
    .regex(/^-?\d{1,9}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.int().min(1).max(100))
    .optional()
    .openapi({ type: 'integer', minimum: 1, maximum: 100, default: 20 }),
  cursor: text(200).optional(),
  network: networkFilter,
})

const batch = z
  .object({
    batch_id: z.int(),
    payment_count: z.int(),
    total_usdc: decimalUsdc,
    gas_cost_usdc: decimalUsdc,
    tx_hash: hex32,
    trigger_type: z.string(),
    created_at: isoTime,
    confirmed_at: isoTime.nullable(),
  })
  .openapi('SettlementBatch')

export const batches = z
  .object({
    batches: z.array(batch),
    cursor: z.string().nullable().openapi({ description: 'Of the next page; null on the last' }),
    network: networkName,
    indexedBlock: z.int(),
  })
  .openapi('SettlementBatches')

export const exportQuery = z.object({
  wallet: address,
  start: z.iso.date().openapi({ example: '2026-11-01' }),
  end: z.iso.date().openapi({ example: '2026-11-30' }),
  format: z.literal('csv').optional(),
  network: networkFilter,
})
