import { z } from '@hono/zod-openapi'
import { holdReasons } from '@tollkeeper/ledger/queue/stages'
import { formatUsdc, maxAmount, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { type Trigger, triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { maxResourceLength } from '@tollkeeper/sdk/protocol/challenge'
import { networkByChainId, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { maxPassRequests, passSeconds } from '@tollkeeper/sdk/protocol/passTerms'
import { type Address, checksumAddress, formatEther, type Hash } from 'viem'

/*
 * Fields that several routes use in requests and answers. A field of a single route is in that route's file. The OpenAPI document is
 * generated from the same schemas.
 */

/** Creates a field of answers: `write` converts what a query reads to the form that `schema` describes. See `writerOf`. */
function written<Read, S extends z.ZodType>(
  write: (read: Read) => z.input<S>,
  schema: S,
): z.ZodPipe<z.ZodTransform<z.input<S>, Read>, S> {
  // The generator of the OpenAPI document calls this function with null and undefined, which `write` may not accept.
  const orNothing = (read: Read) => (read == null ? read : write(read))
  return z.pipe(z.transform(orNothing), schema as never) as never
}

// Amounts -------------------------------------------------------------------------------------------------------------

/** Fields that end in `_usdc` are decimal, as in conformance 2.7 and 2.8. */
export const decimalUsdc = written(formatUsdc, z.string()).openapi({
  example: '0.050000',
  description: 'USDC, always 6 decimals',
})

export const averageUsdc = decimalUsdc.openapi({
  description: 'Gross divided by the number of payments, rounded down; 0 without payments',
})

/** A whole number of any size. */
export const integerText = written(String as (read: bigint) => string, z.string())

/** Fields that end in `Usdc` are in base units, as in conformance 2.5. */
export const baseUnits = integerText.openapi({
  example: '47500',
  description: 'USDC base units: 1000000 = 1 USDC',
})

/** Converts wei to ether. */
export const ether = written((wei: bigint) => formatEther(wei), z.string())

/** A price: a decimal string or a JSON number. The routes convert it with `parseUsdc`, which reads a number as its shortest decimal text. */
const usdcPerUnit = z
  .union([z.string().max(40), z.number()])
  .refine(fitsPayment, `expected at most ${formatUsdc(maxAmount)} USDC`)
  .openapi({ type: 'string', example: '0.05', description: 'USDC, at most 6 decimals' })

/** Returns false for an amount that is too large for a payment. Text that isn't an amount is left to `parseUsdc`. */
function fitsPayment(decimal: string | number): boolean {
  try {
    return parseUsdc(decimal) <= maxAmount
  } catch {
    return true
  }
}

export const pricing = z.object({ usdcPerUnit }).openapi('Pricing')

/** A pass that a payment buys in addition to its request. */
export const passTerms = z
  .strictObject({
    seconds: z.int().min(passSeconds.least).max(passSeconds.most),
    requests: z.int().min(1).max(maxPassRequests).optional().openapi({
      description: 'Number of requests that it buys, including the one that pays for it. Absent: any number',
    }),
    boundTo: z
      .enum(['payer', 'bearer'])
      .openapi({ description: 'Permitted users: only the wallet that paid, or anyone who has the pass' }),
  })
  .openapi('PassTerms')

/** A sale: the price, and what it buys. */
export const sale = z
  .object({
    usdcPerUnit,
    pass: passTerms.optional().openapi({
      description: "The pass that the payment buys. Selling a pass requires the provider's API key",
    }),
  })
  .openapi('SalePricing')

// Times ---------------------------------------------------------------------------------------------------------------

const shownTime = z.iso.datetime().openapi({ example: '2026-11-21T13:00:00.000Z' })
export const isoTime = written((time: Date) => isoOf(time.getTime()), shownTime)
/** Converts Unix seconds, as in blocks. */
export const isoSeconds = written(isoOfSeconds, shownTime)

/** A point in time. A date stands for the first moment of that day in UTC. */
export const timeFilter = z
  .union(
    [z.iso.datetime({ offset: true }), z.iso.date()],
    'expected a time like 2026-11-21T13:00:00Z or a date',
  )
  .transform((text) => new Date(text))
  // Outside this range, Postgres and ISO 8601 write years differently.
  .refine((date) => date.getTime() >= 0 && date.getUTCFullYear() < 2200, 'expected a year from 1970 to 2199')
  .optional()
  .openapi({ type: 'string', format: 'date-time', example: '2026-11-01T00:00:00Z' })

/** @param seconds Unix time, as in blocks. */
export function isoOfSeconds(seconds: bigint): string {
  return isoOf(Number(seconds) * 1000)
}

const dayMs = 86_400_000
const digits = Array.from({ length: 60 }, (_, number) => String(number).padStart(2, '0'))
let known = { day: Number.NaN, date: '' }

/** Formats like `Date.toISOString`, in a sixth of the time, because the times of a list are on few days. */
function isoOf(ms: number): string {
  const day = Math.floor(ms / dayMs)
  if (day !== known.day) known = { day, date: new Date(day * dayMs).toISOString().slice(0, -13) }
  const rest = ms - day * dayMs
  const hours = digits[Math.floor(rest / 3_600_000)]
  const minutes = digits[Math.floor(rest / 60_000) % 60]
  const seconds = digits[Math.floor(rest / 1_000) % 60]
  return `${known.date}${hours}:${minutes}:${seconds}.${String(rest % 1_000).padStart(3, '0')}Z`
}

// Identifiers ---------------------------------------------------------------------------------------------------------

const idPattern = (prefix: string) => new RegExp(`^${prefix}_[0-9a-f]{32}$`)
const idExample = (prefix: string) => `${prefix}_0f8fad5bd9cb469fa16570867728950e`

/** An id by which something is looked up. Its form isn't checked, because a lookup of a malformed id finds nothing anyway. */
const id = (prefix: string) =>
  z.string().openapi({ example: idExample(prefix), pattern: idPattern(prefix).source })

/** An id that filters a list. It is checked, because a mistyped id would look like an empty list. */
export const idFilter = (prefix: string) =>
  z
    .string()
    .regex(idPattern(prefix), `expected ${prefix}_ and 32 hex digits`)
    .openapi({ example: idExample(prefix) })

export const providerId = id('prov')
export const endpointId = id('ep')
export const walletId = id('wal')
export const paymentId = id('pay')
export const tabId = id('tab')
export const requestId = id('req')
export const keyId = id('key')
export const webhookId = id('wh')
export const deliveryId = id('whd')

/** @param what the clause that follows "Why" in the field's description. */
export const heldBy = (what: string) =>
  z
    .enum(['gas_price', ...holdReasons])
    .nullable()
    .openapi({
      description: `Why ${what}: gas is too expensive for all payments (gas_price), for the payment’s fee (gas_cost), for the operator’s budget beyond fees (gas_budget), or for the allowance of payments without a fee (gas_allowance). Null: it does not wait for gas`,
    })

// The chain -----------------------------------------------------------------------------------------------------------

// Uses the list itself, not a copy: the networks of NETWORKS_FILE are added to the list later, but before the OpenAPI document is written.
export const networkName = z.string().openapi({ enum: networkNames as string[], example: 'base' })
/** Converts a chain id to the network's name. */
export const networkOfChain = written((chainId: number) => networkByChainId(chainId).name, networkName)

/** Converts a block number or Unix seconds to a JSON number. */
export const integer = written(Number as (read: bigint) => number, z.int())

export const testnet = z.boolean().openapi({ description: 'Paid in test money, which has no value' })

/** Test money has no value, so no sum mixes it with real money. */
export const testnetFilter = z
  .enum(['true', 'false'])
  .transform((text) => text === 'true')
  .optional()
  .openapi({
    type: 'string',
    enum: ['true', 'false'],
    description: 'Test money or real money; default: real money, unless every wallet is on a test network',
  })

export const oneNetwork = networkName.optional().openapi({ description: 'Default: the first served network' })

/** An address in lower case, upper case or with a valid checksum (EIP-55); the parsed value is lower-case. */
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

export const txHash = z
  .string()
  .regex(/^0x[0-9a-fA-F]{64}$/, 'expected 0x and 64 hex digits')
  .transform((text) => text.toLowerCase() as Hash)
  .openapi({ type: 'string' })

/** 32 bytes. */
export const hashOut = z.string().openapi({ example: `0x${'ab'.repeat(32)}`, pattern: '^0x[0-9a-f]{64}$' })

export const triggerName = z.enum(Object.keys(triggerCodes) as Trigger[])

/** Every answer whose data comes from the record has this field. */
export const indexedBlock = z
  .int()
  .nullable()
  .openapi({ description: 'Newest block that was read from the chain; null: none yet' })

/** Newest indexed blocks by network name. */
export const indexedBlocks = z.record(z.string(), indexedBlock).openapi({
  example: { base: 38_000_000 },
  description: "Newest block that was read from the chain, for each network of the provider's wallets",
})

// Lists ---------------------------------------------------------------------------------------------------------------

export function wholeNumber(maximum: number, usual: number) {
  return z
    .string()
    .regex(/^-?\d{1,9}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.int().min(1).max(maximum))
    .optional()
    .transform((given) => given ?? usual)
    .openapi({ type: 'integer', minimum: 1, maximum, default: usual })
}

export const limit = wholeNumber(100, 20)
export const cursor = z.string().max(500).optional()
export const cursorOut = z
  .string()
  .nullable()
  .openapi({ description: 'Cursor of the next page; null on the last page' })

// Text and URLs -------------------------------------------------------------------------------------------------------

export const text = (max: number) => z.string().max(max)

/** The requested resource of an endpoint: a full URL, a path and query on the endpoint's own origin, or an MCP tool. */
export const resource = text(maxResourceLength)
  .refine(
    (given) => isToolUrl(given) || isResourceUrl(given.startsWith('/') ? `http://localhost${given}` : given),
    'expected a full http(s) URL, a path, or mcp://tool/<name>, without credentials and dot segments',
  )
  .openapi({
    example: '/forecast?city=7',
    description: 'A path without an origin has the origin of the endpoint’s URL',
  })

/**
 * Returns the URL of a `resource`.
 *
 * It doesn't use `new URL(given, base)`, which would read `//other/path` as another host.
 */
export function urlOfResource(given: string, base = 'http://localhost'): URL {
  return new URL(given.startsWith('/') ? base + given : given)
}

/** A full URL, kept as given. */
export const fullUrl = text(2048).refine(
  isResourceUrl,
  'expected a full http(s) URL without credentials and dot segments',
)

/** The full URL of a protected resource. */
export const resourceUrl = fullUrl
  .transform((url) => new URL(url))
  .openapi({ type: 'string', example: 'https://weather.example/forecast' })

/** Parts of a path that a URL parser removes but that some servers use for routing: dot segments, backslashes, tabs. */
const unplainPath = /[\\\t\n\r]|\/(?:\.|%2e){1,2}(?:\/|$)/i

/**
 * Returns whether a URL is x402's name of an MCP tool, `mcp://tool/<name>`. A name that a URL parser would change is rejected, because otherwise one
 * tool could have several names.
 */
function isToolUrl(url: string): boolean {
  return /^mcp:\/\/tool\/[^?#]+$/.test(url) && !unplainPath.test(url) && URL.parse(url)?.href === url
}

function isResourceUrl(url: string): boolean {
  const [path = ''] = url.split(/[?#]/, 1)
  if (unplainPath.test(path)) return false
  const parsed = URL.parse(url)
  return parsed !== null && /^https?:$/.test(parsed.protocol) && parsed.username + parsed.password === ''
}
