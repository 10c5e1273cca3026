import { z } from '@hono/zod-openapi'
import { isPeriodClosed } from '@tollkeeper/ledger/sales/bookings'
import type { Database } from '@tollkeeper/ledger/store/database'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { Refusal } from '../http/refusal.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'

/** A month of a provider's books, such as 2026-11. */
export const monthFilter = z
  .string()
  .regex(/^(?:19[7-9]\d|2[01]\d\d)-(?:0[1-9]|1[0-2])$/, 'expected a month like 2026-11')
  .openapi({ example: '2026-11', description: 'UTC' })

/**
 * Returns the first moments of a month and of the next month.
 *
 * @throws {Refusal} `invalid_date_range` for a month that has not begun.
 */
export function readMonth(month: string, now: number): { from: Date; to: Date } {
  const from = new Date(`${month}-01T00:00:00Z`)
  const to = new Date(Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + 1))
  if (from.getTime() > now) throw new Refusal('invalid_date_range', `${month} has not begun`)
  return { from, to }
}

/** Whether the bookings of a month can still change. */
export const monthStates = ['preliminary', 'final'] as const

/**
 * Returns whether a month's books are final: the month has ended, and nothing booked in it can change on the served networks on which the
 * provider has a wallet.
 */
export async function readMonthState(
  {
    sql,
    heads,
    networks,
    now,
  }: { sql: Database; heads: RecordedHeads; networks: GatewayNetworks; now: () => number },
  providerId: string,
  period: { from: Date; to: Date },
): Promise<(typeof monthStates)[number]> {
  if (period.to.getTime() > now()) return 'preliminary'
  const own = Object.keys(await heads.ofProvider(providerId)).map((name) => networkByName(name).chainId)
  const served = own.filter((chainId) => networks.byChainId.has(chainId))
  return (await isPeriodClosed(sql, period, served)) ? 'final' : 'preliminary'
}
