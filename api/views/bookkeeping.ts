import { z } from '@hono/zod-openapi'
import {
  type BookingPeriod,
  type RefundBooking,
  type RefundBookingPosition,
  readRefundBookings,
  readSaleBookings,
  type SaleBooking,
  type SaleBookingPosition,
} from '@tollkeeper/ledger/sales/bookings'
import type { Database } from '@tollkeeper/ledger/store/database'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { formatCsvLine } from '@tollkeeper/sdk/protocol/csv'
import { providerViews } from '../http/authenticate.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { streamPages, type TextPage } from '../http/streamPages.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { feeDocumentNumber, readEndpointNames } from './feeDocument.ts'
import { convert, type FiatRate, type FiatRates, openFiatRates } from './fiatRates.ts'
import { monthFilter, monthStates, readMonth, readMonthState } from './month.ts'
import { describeNetwork } from './statement.ts'

const bookkeepingQuery = z.object({
  month: monthFilter,
  format: z.enum(['json', 'csv']).default('json'),
  currency: z
    .string()
    .regex(/^[A-Z]{3}$/, 'expected a currency code like EUR')
    .optional()
    .openapi({ example: 'EUR', description: "Currency of the fiat values. Default: the operator's choice" }),
})

const kinds = ['sale', 'fee', 'refund'] as const

/** A decimal number, with a sign if it is negative. */
const decimal = z.string().openapi({ example: '-0.050000' })

const bookkeepingLine = z
  .object({
    document: z
      .string()
      .openapi({ example: '2026-11-000001', description: 'Numbered without gaps within the month' }),
    booking_date: z.iso.date().openapi({ description: 'UTC day of the block in which the money moved' }),
    booked_at: wire.isoTime,
    kind: z.enum(kinds).openapi({
      description:
        "`fee`: the platform's part that arrived without the provider's, in a separate transaction",
    }),
    payment_id: wire.paymentId,
    refund: z
      .int()
      .nullable()
      .openapi({ description: "For a refund: its number among the payment's refunds" }),
    tab_id: wire.tabId.nullable(),
    sale: z.int().nullable().openapi({
      description: 'Sequence number of this sale among the sales on the tab; null: not sold on a tab',
    }),
    requests: z.int(),
    accepted_at: wire.isoTime,
    endpoint_id: wire.endpointId.nullable(),
    endpoint: z.string().openapi({ example: 'GET /forecast' }),
    wallet: wire.addressOut,
    payer: wire.addressOut,
    network: wire.networkName,
    testnet: wire.testnet,
    asset: wire.addressOut.nullable(),
    transaction: wire.hashOut.nullable().openapi({
      description: 'Null: there is none, because a credit from an earlier tab paid for the sale',
    }),
    gross: decimal,
    fee: decimal,
    net: decimal,
    currency: z.literal('USDC'),
    fee_document: z.string().nullable(),
    fiat_gross: decimal.nullable(),
    fiat_fee: decimal.nullable(),
    fiat_net: decimal.nullable(),
    fiat_currency: z.string().nullable(),
    fiat_rate: z.string().nullable(),
    fiat_rate_date: z.iso.date().nullable(),
    fiat_source: z.string().nullable(),
  })
  .openapi('BookkeepingLine')

const bookkeepingTotal = z
  .object({
    network: wire.networkName,
    testnet: wire.testnet,
    documents: z.int(),
    requests: z.int(),
    gross: decimal,
    fee: decimal,
    net: decimal,
    refunds: decimal.openapi({ description: 'The part of `gross` and `net` that was refunded' }),
    fiat_gross: decimal.nullable().openapi({ description: 'Null: at least one line has no fiat value' }),
    fiat_fee: decimal.nullable(),
    fiat_net: decimal.nullable(),
    fiat_currency: z.string().nullable(),
  })
  .openapi('BookkeepingTotal')

const bookkeeping = z
  .object({
    month: z.string(),
    state: z.enum(monthStates).openapi({
      description: '`final`: the month has ended, and its lines and numbers no longer change',
    }),
    from: wire.isoTime,
    to: wire.isoTime,
    lines: z.array(bookkeepingLine),
    totals: z.array(bookkeepingTotal),
  })
  .openapi('Bookkeeping')

type Line = {
  [Name in keyof z.output<typeof bookkeepingLine>]: string | number | boolean | null
}

const columns = bookkeepingLine.keyof().options

/** Number of sales that a page reads. */
const pageSize = 2_000

export type BookkeepingRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'fiat'>
  now: () => number
}

export const addBookkeepingRoute = view('/providers/{id}/bookkeeping', {
  ...providerViews,
  summary: "A month's bookkeeping, line by line",
  description:
    'On a cash basis: money is booked at the time of the block in which it arrived, not when the request was bought. There is one line for each ' +
    'payment, one for the requests on a tab by endpoint and hour, and one with negative amounts for each refund. Document numbers have no gaps; ' +
    'those of a `final` month never change. Amounts are decimals. Totals by network come last; in CSV their `kind` is `total`. The answer is ' +
    'streamed: an answer without totals was cut off.',
  query: bookkeepingQuery,
  answer: ['The lines and their totals', bookkeeping],
  hasCsv: true,
  open: (options: BookkeepingRouteOptions) => {
    const { sql, networks, settings, now } = options
    const readRates = openFiatRates(settings.fiat?.ratesFile ?? null)
    return async ({ id: providerId, month, format, currency = settings.fiat?.currency ?? '' }, c) => {
      const { from, to } = readMonth(month, now())
      const period = { providerId, from, to }
      const [state, rates, names] = await Promise.all([
        readMonthState(options, providerId, period),
        readRates(),
        readEndpointNames(sql, providerId),
      ])
      const book = createBook({ month, providerId, currency, rates, names, networks })
      const writer = format === 'csv' ? csvWriter() : jsonWriter({ month, state, from, to })
      const readPage = (position: Position) => readBook(sql, period, book, writer, position)
      const { write, next } = await readPage({ sales: null })
      const head = writer.head
      return c.body(streamPages({ write: () => head + write(), next }, readPage), 200, {
        'content-type': writer.type,
        'content-disposition': `attachment; filename="bookkeeping-${month}.${format}"`,
        'bookkeeping-state': state,
      })
    }
  },
})

/** Position in the book: all sales come first, then all refunds, then the totals. */
type Position =
  | { sales: SaleBookingPosition | null }
  | { refunds: RefundBookingPosition | null }
  | { totals: true }

async function readBook(
  sql: Database,
  period: BookingPeriod,
  book: ReturnType<typeof createBook>,
  writer: BookWriter,
  position: Position,
): Promise<TextPage<Position>> {
  if ('sales' in position) {
    const { bookings, next } = await readSaleBookings(sql, period, { after: position.sales, limit: pageSize })
    const lines = bookings.map((booking) => book.addSale(booking))
    return { write: writer.lines(lines), next: next === null ? { refunds: null } : { sales: next } }
  }
  if ('refunds' in position) {
    const page = { after: position.refunds, limit: pageSize }
    const { bookings, next } = await readRefundBookings(sql, period, page)
    const lines = bookings.map((booking) => book.addRefund(booking))
    return { write: writer.lines(lines), next: next === null ? { totals: true } : { refunds: next } }
  }
  return { write: () => writer.totals(book.totals()), next: null }
}

type Total = {
  chainId: number
  documents: number
  requests: number
  gross: bigint
  fee: bigint
  refunded: bigint
  /** Null: at least one line has no fiat value. */
  fiat: { gross: bigint; fee: bigint } | null
}

type BookOptions = {
  month: string
  providerId: string
  /** Currency of the fiat values. */
  currency: string
  rates: FiatRates
  /** Names of endpoints by their ids. */
  names: ReadonlyMap<string, string>
  networks: GatewayNetworks
}

/** Numbers lines in the order in which they are added, and adds up their totals. */
function createBook({ month, providerId, currency, rates, names, networks }: BookOptions) {
  const totals = new Map<number, Total>()
  let count = 0

  function add(
    booking: Pick<
      SaleBooking | RefundBooking,
      'chainId' | 'bookedAt' | 'acceptedAt' | 'endpointId' | 'payee' | 'payer' | 'txHash' | 'paymentId'
    > & {
      gross: bigint
      fee: bigint
    },
    own: Pick<Line, 'kind' | 'refund' | 'tab_id' | 'sale' | 'fee_document'> & { requests: number },
  ): Line {
    count += 1
    const { chainId, bookedAt, gross, fee } = booking
    const { network, testnet, asset } = describeNetwork(networks, chainId)
    const date = bookedAt.toISOString().slice(0, 10)
    // Testnet funds have no fiat value.
    const rate = testnet ? null : rates.rateOn(currency, date)
    const fiat = rate && { gross: convert(gross, rate), fee: convert(fee, rate) }
    const total = totals.get(chainId) ?? noTotal(chainId)
    totals.set(chainId, total)
    total.documents += 1
    total.requests += own.requests
    total.gross += gross
    total.fee += fee
    if (own.kind === 'refund') total.refunded += gross
    total.fiat = total.fiat &&
      fiat && { gross: total.fiat.gross + fiat.gross, fee: total.fiat.fee + fiat.fee }
    return {
      document: `${month}-${String(count).padStart(6, '0')}`,
      booking_date: date,
      booked_at: bookedAt.toISOString(),
      payment_id: booking.paymentId,
      ...own,
      accepted_at: booking.acceptedAt.toISOString(),
      endpoint_id: booking.endpointId,
      endpoint: (booking.endpointId === null ? undefined : names.get(booking.endpointId)) ?? '',
      wallet: booking.payee,
      payer: booking.payer,
      network,
      testnet,
      asset,
      transaction: booking.txHash,
      gross: formatUsdc(gross),
      fee: formatUsdc(fee),
      net: formatUsdc(gross - fee),
      currency: 'USDC',
      ...toFiat(fiat, rate),
    }
  }

  return {
    addSale(booking: SaleBooking): Line {
      const { network } = describeNetwork(networks, booking.chainId)
      const { kind, tabId, number, requests, fee } = booking
      return add(booking, {
        kind,
        refund: null,
        tab_id: tabId,
        sale: tabId === null ? null : number,
        requests,
        fee_document: fee > 0n ? feeDocumentNumber(month, network, providerId) : null,
      })
    },

    addRefund(booking: RefundBooking): Line {
      const own = {
        kind: 'refund',
        refund: booking.number,
        tab_id: null,
        sale: null,
        requests: 0,
        fee_document: null,
      }
      return add({ ...booking, gross: -booking.value, fee: 0n }, own)
    },

    totals: () => {
      const rows = [...totals.values()].sort((a, b) => a.chainId - b.chainId)
      return rows.map(({ chainId, documents, requests, gross, fee, refunded, fiat }) => {
        const { network, testnet } = describeNetwork(networks, chainId)
        const { fiat_gross, fiat_fee, fiat_net } = toFiat(fiat, null)
        return {
          network,
          testnet,
          documents,
          requests,
          gross: formatUsdc(gross),
          fee: formatUsdc(fee),
          net: formatUsdc(gross - fee),
          refunds: formatUsdc(refunded),
          fiat_gross,
          fiat_fee,
          fiat_net,
          fiat_currency: fiat && currency,
        }
      })
    },
  }
}

function noTotal(chainId: number): Total {
  return {
    chainId,
    documents: 0,
    requests: 0,
    gross: 0n,
    fee: 0n,
    refunded: 0n,
    fiat: { gross: 0n, fee: 0n },
  }
}

/** Converts a line's amounts to fiat with six decimals, as USDC has. The net is gross minus fee, so that the three add up. */
function toFiat(fiat: { gross: bigint; fee: bigint } | null, rate: FiatRate | null) {
  return {
    fiat_gross: fiat && formatUsdc(fiat.gross),
    fiat_fee: fiat && formatUsdc(fiat.fee),
    fiat_net: fiat && formatUsdc(fiat.gross - fiat.fee),
    fiat_currency: rate?.currency ?? null,
    fiat_rate: rate?.rate ?? null,
    fiat_rate_date: rate?.date ?? null,
    fiat_source: rate?.source ?? null,
  }
}

type BookTotal = ReturnType<ReturnType<typeof createBook>['totals']>[number]

/** Writes a book as one document, piece by piece. */
type BookWriter = {
  type: string
  head: string
  lines: (lines: readonly Line[]) => () => string
  totals: (totals: readonly BookTotal[]) => string
}

function csvWriter(): BookWriter {
  const toCells = (cells: Partial<Line>) =>
    formatCsvLine(
      columns.map((column) => {
        const cell = cells[column]
        return typeof cell === 'boolean' ? (cell ? 'yes' : 'no') : cell
      }),
    )
  return {
    type: 'text/csv; charset=utf-8; header=present',
    head: formatCsvLine(columns),
    lines: (lines) => () => lines.map(toCells).join(''),
    totals: (totals) =>
      totals
        .map(({ documents: _documents, refunds: _refunds, ...total }) =>
          toCells({ document: 'total', kind: 'total', currency: 'USDC', ...total }),
        )
        .join(''),
  }
}

function jsonWriter(head: { month: string; state: string; from: Date; to: Date }): BookWriter {
  let isFirst = true
  return {
    type: 'application/json',
    head: `${JSON.stringify(head).slice(0, -1)},"lines":[`,
    lines: (lines) => () => {
      if (lines.length === 0) return ''
      const text = `${isFirst ? '' : ','}\n${lines.map((line) => JSON.stringify(inOrder(line))).join(',\n')}`
      isFirst = false
      return text
    },
    totals: (totals) => `\n],"totals":${JSON.stringify(totals)}}\n`,
  }
}

/** Returns a line with its keys in the order of the columns. */
function inOrder(line: Line): Partial<Line> {
  return Object.fromEntries(columns.map((column) => [column, line[column]])) as Partial<Line>
}
