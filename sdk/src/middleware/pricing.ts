import { formatShortUsdc, maxAmount, parseUsdc } from '../protocol/amount.ts'
import { ProtocolError } from '../protocol/errors.ts'
import type { PassTerms } from '../protocol/passTerms.ts'
import { type PassOption, readPassOption } from './passOption.ts'

/**
 * A request in the form that the seller's functions receive. Its contents are unverified: a buyer can write anything into any header, including
 * `Host`.
 */
export type BuyerRequest = {
  method: string
  url: string
  headers: { get(name: string): string | null }
  /** The arguments of an MCP tool's call. */
  arguments?: unknown
}

/** A fixed price of one request in decimal USDC: `'$0.05'` or `{ usdcPerUnit: '0.05' }`. */
export type Price = string | { usdcPerUnit: string | number }

/** The fixed price of a pass, which pays for further requests. The middleware requires `apiKey` to sell it. */
export type PassPrice = { usdcPerUnit: string | number; pass: PassOption }

/**
 * The price of a request: a fixed price, the price of a pass for further requests (docs/passes.md), or a function of the request.
 *
 * The function is called once for each request: for the request that gets the 402, and again for the request that pays. A payment is accepted if it
 * covers the price of the request that contains it. If that price is higher than in the 402, nothing is charged and the buyer gets a new 402. If it
 * is lower, the buyer pays the signed amount. If the function throws or doesn't return a price, nothing is sold and the response is 503.
 */
export type Pricing = Price | PassPrice | ((request: BuyerRequest) => Price | Promise<Price>)

/** Thrown if the price of a request couldn't be determined. */
export class PricingError extends Error {
  override readonly name = 'PricingError'
}

export type Prices = {
  /** The price of every request in USDC base units. Undefined if a function or the gateway determines the price. */
  fixed: bigint | undefined
  /**
   * Returns the price of a request in USDC base units. Returns undefined for the registered price.
   *
   * @throws {PricingError} if the seller's function returns no price in time.
   */
  of(request: BuyerRequest): Promise<bigint | undefined>
}

/**
 * Reads the option `pricing`.
 *
 * @param timeoutMs timeout in ms of the seller's function.
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum` for 0.
 */
export function createPrices(pricing: Pricing | undefined, timeoutMs: number): Prices {
  if (typeof pricing !== 'function') {
    const fixed = pricing === undefined ? undefined : parsePrice(pricing)
    return { fixed, of: async () => fixed }
  }
  return {
    fixed: undefined,
    async of(request) {
      try {
        return parsePrice(await within(timeoutMs, async () => pricing(request)))
      } catch (error) {
        throw new PricingError(error instanceof Error ? error.message : String(error), { cause: error })
      }
    },
  }
}

/**
 * Converts a price in any form to USDC base units.
 *
 * @throws {ProtocolError} `invalid_field`, `price_below_minimum`, `amount_too_high`
 */
export function parsePrice(price: unknown): bigint {
  const given =
    typeof price === 'object' && price !== null ? (price as { usdcPerUnit?: unknown }).usdcPerUnit : price
  const amount = parseUsdc((typeof given === 'string' ? given.replace(/^\$/, '') : given) as string)
  if (amount === 0n) throw new ProtocolError('price_below_minimum', 'A price must be greater than 0')
  if (amount > maxAmount) throw new ProtocolError('amount_too_high', 'The price is too high to be paid')
  return amount
}

/**
 * Reads which pass a price buys.
 *
 * @returns undefined if the price buys one request.
 * @throws {TypeError} for an invalid pass.
 */
export function readPass(pricing: Pricing | undefined): PassTerms | undefined {
  return typeof pricing === 'object' && 'pass' in pricing && pricing.pass !== undefined
    ? readPassOption(pricing.pass)
    : undefined
}

/** Returns a price in the form that the gateway's API uses. */
export function toWirePrice(
  amount: bigint | undefined,
  pass: PassTerms | undefined,
): { usdcPerUnit: string; pass?: PassTerms } | undefined {
  return amount === undefined ? undefined : { usdcPerUnit: formatShortUsdc(amount), ...(pass && { pass }) }
}

/**
 * Calls the seller's function and returns its result.
 *
 * @throws {Error} the function's own error, or an error if it takes longer than `timeoutMs`.
 */
export async function within<Result>(timeoutMs: number, run: () => Promise<Result>): Promise<Result> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no result within ${timeoutMs} ms`)), timeoutMs)
  })
  try {
    return await Promise.race([run(), late])
  } finally {
    clearTimeout(timer)
  }
}
