import type { Queryable } from '@tollkeeper/ledger/store/database'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { type Check, ok, warn } from './check.ts'

/**
 * Maximum price in USDC base units that x402's clients pay by default, by x402 version. Cloudflare's agents have the limit of `v1`.
 */
const caps = { v2: 1_000_000n, v1: 100_000n }

export const pricesCheck = 'prices'

/** Reports registered prices that clients of plain x402 reject until their buyers raise a limit. */
export async function examinePrices(database: Queryable): Promise<Check> {
  const rows = await database<{ url: string; method: string; price: bigint }[]>`
    select e.url, e.method, e.price from endpoint e join provider p on p.id = e.provider_id
    where e.disabled_at is null and p.disabled_at is null
    order by e.price desc, e.url`
  const [dearest] = rows
  if (dearest === undefined) return ok(pricesCheck, 'no endpoint is sold')
  const over = (cap: bigint) => rows.filter(({ price }) => price > cap).length
  const [all, v2, v1] = [rows.length, over(caps.v2), over(caps.v1)]
  const at = `${dearest.method} ${dearest.url} at ${formatUsdc(dearest.price)} USDC`
  if (v1 === 0) return ok(pricesCheck, `endpoints on sale: ${all}, each at 0.10 USDC or less`)
  return warn(
    pricesCheck,
    `endpoints on sale: ${all}; ${v1} cost over 0.10 USDC, ${v2} over 1.00 USDC; the most expensive is ${at}`,
    "by default, x402's v2 clients pay up to 1.00 USD (setSpendControls); v1 clients (maxValue) and Cloudflare's agents pay " +
      'up to 0.10 USD. Ask buyers to raise their limit, or sell smaller parts',
  )
}
