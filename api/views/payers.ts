import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, integerField, textField, timeField, wholeField } from '../http/cursor.ts'
import { Refusal } from '../http/refusal.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { isTestMoneyOnly, type RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import {
  countPayers,
  findPayers,
  type PayerRow,
  type PayersOptions,
  payerSorts,
  payerStates,
} from './payerQueries.ts'
import { choosePeriod } from './period.ts'
import { averageOf, revenueSums, toRevenueSums } from './revenue.ts'
import { findRevenue } from './revenueQueries.ts'

const periodFilters = {
  network: wire.networkName.optional(),
  testnet: wire.testnetFilter,
  from: wire.timeFilter,
  to: wire.timeFilter,
}

const payersQuery = z.object({
  ...periodFilters,
  endpointId: wire.idFilter('ep').optional(),
  state: z
    .enum(payerStates)
    .optional()
    .openapi({
      description:
        '`new`, `returning`: whether the first payment ever was in the period or before it; both need `from` or `to`. ' +
        '`owing`: owes the provider something now. `failing`: has payments that failed or are retried after a failure',
    }),
  sort: z.enum(payerSorts).default('gross'),
  limit: wire.limit,
  cursor: wire.cursor,
})

/** Figures of a payer, in the list and in its own view. */
const payerFigures = {
  ...revenueSums.omit({ paid_out_usdc: true }).shape,
  retryingPayments: z
    .int()
    .openapi({ description: 'Number of outstanding payments that are retried after a failure' }),
  average_usdc: wire.averageUsdc,
  refunded_usdc: wire.decimalUsdc.openapi({
    description: 'Sum of the refunds that were requested in the period and have arrived',
  }),
  owed_usdc: wire.decimalUsdc.openapi({
    description:
      'The payer’s current debt to this provider, not only for the period: the part of net that did not arrive because of the payer',
  }),
  firstPaymentAt: wire.isoTime.openapi({ description: 'First payment ever, not only within the period' }),
  lastPaymentAt: wire.isoTime.openapi({ description: 'Last payment within the period' }),
  isNew: z.boolean().nullable().openapi({
    description: 'Whether the first payment ever was within the period; null: the list covers all time',
  }),
}

export const payers = z
  .object({
    testnet: wire.testnet,
    from: wire.isoTime.nullable().openapi({ description: 'Null: all time' }),
    to: wire.isoTime.nullable(),
    payers: z.array(
      z.object({ payer: wire.addressOut, network: wire.networkOfChain, ...payerFigures }).openapi('Payer'),
    ),
    cursor: wire.cursorOut,
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('Payers')

const positions = createCursor({ position: wholeField, chainId: integerField, payer: textField })

export type PayersRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

const addListRoute = view('/providers/{id}/payers', {
  ...providerViews,
  summary: 'Payers: their payments, debts and failures',
  description:
    'Covers all time, or the UTC days that `from` and `to` touch. A payment counts on the day on which it was accepted. ' +
    'A payer on two networks has two rows. ' +
    'The sums over all rows equal those of `revenue` for the same period. While payments come in, a payer may move between pages.',
  query: payersQuery,
  answer: ['The payers, greatest first', payers],
  open:
    ({ sql, heads, networks, now }: PayersRouteOptions) =>
    async ({ id: providerId, network, testnet: asked, from, to, limit, cursor, ...filters }) => {
      const { state, sort } = filters
      const chainId = networks.chainIdNamed(network)
      const period = periodOf({ from, to }, now())
      if ((state === 'new' || state === 'returning') && period === undefined)
        throw new Refusal('invalid_request', `state=${state} needs a period: send from or to`)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const testnet = asked ?? isTestMoneyOnly(indexedBlocks, networks)
      const query = { ...filters, providerId, chainId, testnet, period, now: new Date(now()) }
      const found = await positions.page(`payers ${sort}`, { cursor, limit }, (page) =>
        findPayers(sql, { ...query, ...page }),
      )
      return {
        testnet,
        from: period?.from ?? null,
        to: period?.to ?? null,
        payers: found.rows.map((row) => ({
          payer: row.payer,
          network: row.chainId,
          ...toFigures(row, period),
        })),
        cursor: found.cursor,
        indexedBlocks,
      }
    },
})

export const payer = z
  .object({
    payer: wire.addressOut,
    testnet: wire.testnet,
    networks: z.array(wire.networkName).openapi({ description: 'Networks on which it paid in the period' }),
    from: wire.isoTime.nullable().openapi({ description: 'Null: all time' }),
    to: wire.isoTime.nullable(),
    ...payerFigures,
    lastPaymentAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Last payment within the period; null: none' }),
    endpoints: z
      .array(
        z.object({
          endpointId: wire.endpointId
            .nullable()
            .openapi({ description: 'Null: sold through the facilitator' }),
          ...revenueSums.shape,
          average_usdc: wire.averageUsdc,
        }),
      )
      .openapi({ description: 'Purchases of the payer by endpoint, greatest first' }),
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('PayerDetail')

const addDetailRoute = view('/providers/{id}/payers/{payer}', {
  ...providerViews,
  summary: 'Totals of one payer, and its purchases by endpoint',
  description:
    'The payer’s sums over all networks. `revenue?payer=` returns these sums over time, and `payments?payer=` lists the payer’s payments. ' +
    '`testnet` defaults to real money if the payer has paid any.',
  query: z.object(periodFilters),
  answer: ['The payer', payer],
  open:
    ({ sql, heads, networks, now }: PayersRouteOptions) =>
    async ({ id: providerId, payer, network, testnet: asked, from, to }) => {
      const chainId = networks.chainIdNamed(network)
      const period = periodOf({ from, to }, now())
      const at = new Date(now())
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const find = (query: Pick<PayersOptions, 'testnet' | 'period'>) =>
        findPayers(sql, {
          ...query,
          providerId,
          chainId,
          payer,
          sort: 'gross',
          after: null,
          limit: 100,
          now: at,
        })
      let testnet = asked ?? false
      let ever = await find({ testnet })
      if (ever.length === 0 && asked === undefined) {
        testnet = true
        ever = await find({ testnet })
      }
      if (ever.length === 0) throw new Refusal('unknown_payer')
      const rows = period ? await find({ testnet, period }) : ever
      const bought = await findRevenue(sql, {
        providerId,
        chainId,
        testnet,
        payer,
        interval: 'total',
        groupBy: 'endpoint',
        ...choosePeriod('total', { from, to }, at),
        after: null,
        limit: 2_000,
        now: at,
      })
      const endpoints = bought.filter(({ payments }) => payments > 0)
      return {
        payer,
        testnet,
        networks: rows.map((row) => networkByChainId(row.chainId).name),
        from: period?.from ?? null,
        to: period?.to ?? null,
        ...toFigures(addUp(ever, rows), period),
        lastPaymentAt: latest(rows),
        endpoints: endpoints
          .sort((a, b) => Number(b.gross - a.gross))
          .map((row) => ({
            endpointId: row.endpointId,
            ...toRevenueSums(row),
            average_usdc: averageOf(row),
          })),
        indexedBlocks,
      }
    },
})

const payerActivityQuery = z.object({
  ...periodFilters,
  endpointId: wire.idFilter('ep').optional(),
  interval: z.enum(['day', 'month', 'total']).default('day'),
  limit: wire.wholeNumber(1_000, 100),
  cursor: wire.cursor,
})

export const payerActivity = z
  .object({
    interval: z.enum(['day', 'month', 'total']),
    testnet: wire.testnet,
    from: wire.isoTime,
    to: wire.isoTime,
    activity: z.array(
      z.object({
        startsAt: wire.isoTime
          .nullable()
          .openapi({ description: 'Start of the interval, UTC; null with `total`' }),
        payers: z.int().openapi({ description: 'Number of payers within the interval' }),
        newPayers: z
          .int()
          .openapi({ description: 'Number of these payers that had never paid this provider before' }),
        returningPayers: z.int(),
      }),
    ),
    cursor: wire.cursorOut,
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('PayerActivity')

const moments = createCursor({ startsAt: timeField.nullable() })

const addActivityRoute = view('/providers/{id}/payer-activity', {
  ...providerViews,
  summary: 'Number of new and returning payers by time',
  description:
    'A payer is new in the interval of its first payment to this provider, even if that was for another endpoint. ' +
    'An address on two networks counts twice. By day, a query covers at most 366 days.',
  query: payerActivityQuery,
  answer: ['The counts, newest first; an interval without payments has no row', payerActivity],
  open:
    ({ sql, heads, networks, now }: PayersRouteOptions) =>
    async ({ id: providerId, network, testnet: asked, interval, endpointId, limit, cursor, ...query }) => {
      const chainId = networks.chainIdNamed(network)
      const at = new Date(now())
      const period = choosePeriod(interval, query, at)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const testnet = asked ?? isTestMoneyOnly(indexedBlocks, networks)
      const scope = { providerId, chainId, testnet, endpointId, interval, groupBy: 'none', now: at } as const
      const found = await moments.page(`payer-activity ${interval}`, { cursor, limit }, ({ after, limit }) =>
        countPayers(sql, { ...scope, ...period, before: after?.startsAt ?? null, limit }),
      )
      return {
        interval,
        testnet,
        ...period,
        activity: found.rows.map(({ startsAt, payers, newPayers }) => ({
          startsAt,
          payers,
          newPayers,
          returningPayers: payers - newPayers,
        })),
        cursor: found.cursor,
        indexedBlocks,
      }
    },
})

export function addPayersRoutes(app: Parameters<typeof addListRoute>[0], options: PayersRouteOptions): void {
  addListRoute(app, options)
  addDetailRoute(app, options)
  addActivityRoute(app, options)
}

type Period = { from: Date; to: Date }

function periodOf(
  asked: { from?: Date | undefined; to?: Date | undefined },
  now: number,
): Period | undefined {
  return asked.from || asked.to ? choosePeriod('total', asked, new Date(now)) : undefined
}

function toFigures(row: Omit<PayerRow, 'chainId' | 'payer' | 'position'>, period: Period | undefined) {
  const { retryingPayments, firstPaymentAt, lastPaymentAt, refunded, owed, ...sums } = row
  const { paid_out_usdc: _, ...shown } = toRevenueSums({ ...sums, waitingNet: 0n })
  return {
    ...shown,
    retryingPayments,
    average_usdc: averageOf(row),
    refunded_usdc: refunded,
    owed_usdc: owed,
    firstPaymentAt,
    lastPaymentAt,
    isNew: period === undefined ? null : firstPaymentAt >= period.from && firstPaymentAt < period.to,
  }
}

/** Adds up a payer's rows of the period. `ever` has the payer's rows of all time, and is never empty. */
function addUp(ever: PayerRow[], rows: PayerRow[]): PayerRow {
  const [first] = ever.toSorted((a, b) => a.firstPaymentAt.getTime() - b.firstPaymentAt.getTime())
  if (first === undefined) throw new Error('a payer has a row')
  const count = (of: (row: PayerRow) => number) => rows.reduce((total, row) => total + of(row), 0)
  const amount = (of: (row: PayerRow) => bigint, among = rows) =>
    among.reduce((total, row) => total + of(row), 0n)
  return {
    ...first,
    payments: count((row) => row.payments),
    voidedPayments: count((row) => row.voidedPayments),
    settledPayments: count((row) => row.settledPayments),
    failedPayments: count((row) => row.failedPayments),
    tabPayments: count((row) => row.tabPayments),
    retryingPayments: count((row) => row.retryingPayments),
    gross: amount((row) => row.gross),
    fee: amount((row) => row.fee),
    settledNet: amount((row) => row.settledNet),
    settledFee: amount((row) => row.settledFee),
    failedNet: amount((row) => row.failedNet),
    refunded: amount((row) => row.refunded),
    owed: amount((row) => row.owed, ever),
  }
}

function latest(rows: PayerRow[]): Date | null {
  return rows.reduce<Date | null>(
    (last, { lastPaymentAt }) => (last === null || lastPaymentAt > last ? lastPaymentAt : last),
    null,
  )
}
