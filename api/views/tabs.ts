import { z } from '@hono/zod-openapi'
import type { TabSale } from '@tollkeeper/ledger/acceptance/takeTabs'
import { halves } from '@tollkeeper/ledger/facts/halves'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import type { StoredTab } from '@tollkeeper/ledger/tabs/tabStore'
import type { UnpaidTab } from '@tollkeeper/ledger/tabs/unpaidTabs'
import { providerOfSplit } from '@tollkeeper/sdk/protocol/tab'
import * as wire from '../http/wire.ts'

const sale = z.object({
  sale: z.int(),
  endpointId: wire.endpointId,
  requests: z.int(),
  providerUsdc: wire.baseUnits,
  platformUsdc: wire.baseUnits,
  settledUsdc: wire.baseUnits.openapi({ description: 'The part of `providerUsdc` that has arrived' }),
  lastRequestAt: wire.isoTime,
})

const line = z.object({
  payTo: wire.addressOut,
  signedUsdc: wire.baseUnits.openapi({
    description:
      'Amount that the buyer signed for this line, fee included, in the state of the tab that settles',
  }),
  movedUsdc: wire.baseUnits.openapi({
    description:
      'The part of `signedUsdc` that has moved so far. If another state of the tab settled, only what that state covers',
  }),
  requests: z.int(),
  sales: z.array(sale),
})

/** The tab of a payment, as the views of the payment show it. */
export const tab = z
  .object({
    tabId: wire.tabId,
    isOpen: z.boolean().openapi({ description: 'False: it is closed, so no more can be bought on it' }),
    sequence: wire.integer.openapi({ description: 'Sequence number of the state that settles' }),
    requests: z.int().openapi({ description: 'Number of all requests on this tab' }),
    rewardShare: z.int().openapi({
      description: "Share of the platform's part, in basis points, that the settling keeper receives",
    }),
    closeReason: z
      .string()
      .nullable()
      .openapi({ example: 'idle', description: 'Why it was closed; null: it is open' }),
    openedAt: wire.isoTime,
    closedAt: wire.isoTime.nullable(),
    lines: z.array(line).nullable().openapi({
      description:
        "Lines on which the key's provider sold something; null: there are none, or the tab ended unpaid",
    }),
    covered: z
      .object({
        usdc: wire.baseUnits,
        transactionHash: wire.hashOut
          .nullable()
          .openapi({ description: 'Transaction in which it was paid; null: not yet' }),
      })
      .nullable()
      .openapi({
        description: "Amount that the platform owes the key's provider because the tab defaulted; null: none",
      }),
  })
  .openapi('TabOfPayment')

type Tab = z.input<typeof tab>
/** A sale on the tab's line at `position`. */
type Sale = z.input<typeof sale> & { position: number }
type Line = Omit<z.input<typeof line>, 'requests' | 'sales'> & { position: number }

/**
 * Reads the tab of a payment.
 *
 * @param providerId the provider whose lines are shown; undefined: no lines are shown.
 * @returns null if the payment isn't a tab.
 */
export async function readTab(
  sql: Database,
  paymentId: string,
  providerId: string | undefined,
): Promise<Tab | null> {
  const [found] = await sql<Omit<Tab, 'isOpen' | 'lines' | 'covered'>[]>`
    select t.tab_id as "tabId", t.sequence, t.requests, t.reward_share as "rewardShare", t.close_reason as "closeReason",
      t.opened_at as "openedAt", p.accepted_at as "closedAt"
    from tab_payment t join payment p on p.id = t.payment_id where t.payment_id = ${paymentId}`
  if (found === undefined) return null
  if (providerId === undefined) return { ...found, isOpen: false, lines: null, covered: null }
  const [lines, covered] = await Promise.all([
    readLines(sql, paymentId, providerId),
    readCovered(sql, paymentId, providerId),
  ])
  return { ...found, isOpen: false, lines, covered }
}

async function readCovered(sql: Database, paymentId: string, providerId: string): Promise<Tab['covered']> {
  const [row] = await sql<[{ usdc: bigint | null; transactionHash: string | null }]>`
    select sum(amount) as usdc, min(paid_tx) as "transactionHash" from covered_default
    where payment_id = ${paymentId} and provider_id = ${providerId}`
  return row.usdc === null ? null : { usdc: row.usdc, transactionHash: row.transactionHash }
}

/** Reads a tab that isn't in the ledger yet, in the form of the payment that it will become. */
export async function readStoredTab(
  tabReads: Pick<TabReads, 'readSales'>,
  tab: StoredTab,
  providerId: string | undefined,
): Promise<Tab> {
  const shown = toTab(tab)
  if (providerId === undefined) return shown
  const lines = tab.lines.map(({ split, signed }, position) => ({
    position,
    payTo: providerOfSplit(split),
    signedUsdc: signed,
    movedUsdc: 0n,
  }))
  const sales = await tabReads.readSales(tab)
  const own = sales.flatMap((sale, number): Sale[] =>
    sale.providerId === providerId ? [toOpenSale(sale, number)] : [],
  )
  return { ...shown, lines: addSales(lines, own) }
}

/** Converts a sale on a tab that isn't in the ledger yet: none of it has arrived. */
function toOpenSale(
  { line, endpointId, requests, providerAmount, feeAmount, acceptedAt }: TabSale,
  number: number,
): Sale {
  return {
    position: line,
    sale: number,
    endpointId,
    requests,
    providerUsdc: providerAmount,
    platformUsdc: feeAmount,
    settledUsdc: 0n,
    lastRequestAt: new Date(acceptedAt),
  }
}

/** Converts a tab in the tab store, or one that ended unpaid, without the lines, because everyone may see the result. */
export function toTab(tab: StoredTab | UnpaidTab): Tab {
  const { tabId, sequence, requests, rewardShare, closeReason, openedAt, closedAt } = tab
  return {
    tabId,
    isOpen: closedAt === null,
    sequence: BigInt(sequence),
    requests,
    rewardShare,
    closeReason,
    openedAt,
    closedAt,
    lines: null,
    covered: null,
  }
}

async function readLines(sql: Database, paymentId: string, providerId: string) {
  const [lines, sales] = await Promise.all([
    sql<Line[]>`
      select l.position, l.payee as "payTo", l.amount::numeric as "signedUsdc",
        coalesce(l.moved, case when h.state = 'settled' then l.amount else 0 end)::numeric as "movedUsdc"
      from tab_line l join ${halves(sql)} h on h.payment_id = l.payment_id and h.half = 0
      where l.payment_id = ${paymentId}
      order by l.position`,
    sql<Sale[]>`
      select s.position, s.number as sale, s.endpoint_id as "endpointId", s.requests, s.provider_amount as "providerUsdc",
        s.fee_amount as "platformUsdc", share.settled_net as "settledUsdc", s.accepted_at as "lastRequestAt"
      from sale s
      cross join lateral settled_halves(s.payment_id, s.fee_half) half
      cross join lateral sale_share(s, false, half.settled) share
      where s.payment_id = ${paymentId} and s.provider_id = ${providerId}
      order by s.number`,
  ])
  return addSales(lines, sales)
}

/** Adds sales to their lines. @returns the lines that have sales; null: none has. */
function addSales(lines: readonly Line[], sales: readonly Sale[]): Tab['lines'] {
  const salesOf = Map.groupBy(sales, ({ position }) => position)
  const sold = lines.flatMap((one) => {
    const own = salesOf.get(one.position)
    if (own === undefined) return []
    return { ...one, requests: own.reduce((sum, { requests }) => sum + requests, 0), sales: own }
  })
  return sold.length === 0 ? null : sold
}
