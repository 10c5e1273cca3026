import { z } from '@hono/zod-openapi'
import { type BookedSums, sumBookings } from '@tollkeeper/ledger/sales/bookings'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { providerViews } from '../http/authenticate.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { writerOf } from '../http/writer.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { feePageHeaders, renderFeePage } from './feePage.ts'
import { monthFilter, monthStates, readMonth, readMonthState } from './month.ts'
import { describeNetwork } from './statement.ts'

const feeDocumentQuery = z.object({
  month: monthFilter,
  network: wire.networkName.optional(),
  format: z.enum(['json', 'html']).default('json').openapi({ description: '`html`: a page to print' }),
})

const rate = z
  .string()
  .openapi({ example: '0.050000', description: 'Fee as a fraction of the gross amount, rounded down' })

const amounts = {
  payments: z.int().openapi({ description: 'Number of payments and requests on tabs that arrived' }),
  gross_usdc: wire.decimalUsdc,
  fee_usdc: wire.decimalUsdc,
  net_usdc: wire.decimalUsdc,
  rate,
}

const feeDocument = z
  .object({
    number: z.string().openapi({ example: 'F-2026-11-base-1a2b3c4d' }),
    network: wire.networkName,
    testnet: wire.testnet,
    asset: wire.addressOut.nullable(),
    ...amounts,
    endpoints: z.array(
      z.object({
        endpointId: wire.endpointId.nullable().openapi({ description: 'Null: sold through the facilitator' }),
        endpoint: z.string(),
        ...amounts,
      }),
    ),
  })
  .openapi('FeeDocument')

export const feeDocuments = z
  .object({
    month: z.string(),
    state: z.enum(monthStates).openapi({ description: '`preliminary`: the amounts may still grow' }),
    from: wire.isoTime,
    to: wire.isoTime,
    issuer: z.object({
      name: z.string(),
      address: z.string().nullable(),
      taxId: z.string().nullable(),
      url: z.string(),
    }),
    recipient: z.object({ providerId: wire.providerId, name: z.string(), contact: z.string().nullable() }),
    documents: z
      .array(feeDocument)
      .openapi({ description: 'One for each network on which a fee was booked' }),
  })
  .openapi('FeeDocuments')

export type FeeDocuments = z.input<typeof feeDocuments>

export type FeeDocumentRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'issuer' | 'operator'>
  now: () => number
}

const write = writerOf(feeDocuments)

export const addFeeDocumentRoute = view('/providers/{id}/fee-document', {
  ...providerViews,
  summary: "A document for a month's fees, by network",
  description:
    'The platform fees on everything booked in the month: the sums of `bookkeeping`. `format=html` returns a printable page without scripts. ' +
    'The document is preliminary until the month has ended and its amounts can no longer change.',
  query: feeDocumentQuery,
  answer: ['The documents', feeDocuments],
  hasHtml: true,
  open: (options: FeeDocumentRouteOptions) => {
    const { sql, networks, settings, now } = options
    return async ({ id: providerId, month, network, format }, c) => {
      const chainId = networks.chainIdNamed(network)
      const period = { providerId, ...readMonth(month, now()) }
      const [state, sums, names, [provider]] = await Promise.all([
        readMonthState(options, providerId, period),
        sumBookings(sql, period),
        readEndpointNames(sql, providerId),
        sql<
          { name: string; contact: string | null }[]
        >`select name, contact from provider where id = ${providerId}`,
      ])
      const { name, address, taxId } = settings.operator
      const found: FeeDocuments = {
        month,
        state,
        from: period.from,
        to: period.to,
        issuer: { name: name ?? settings.issuer, address, taxId, url: settings.issuer },
        recipient: { providerId, name: provider?.name ?? '', contact: provider?.contact ?? null },
        documents: [...Map.groupBy(sums, (sum) => sum.chainId)]
          .filter(([id, own]) => (chainId === undefined || id === chainId) && own.some(({ fee }) => fee > 0n))
          .map(([id, own]) => {
            const described = describeNetwork(networks, id)
            return {
              number: feeDocumentNumber(month, described.network, providerId),
              ...described,
              ...toAmounts(own),
              endpoints: own.map((sum) => ({
                endpointId: sum.endpointId,
                endpoint: names.get(sum.endpointId ?? '') ?? 'x402 facilitator',
                ...toAmounts([sum]),
              })),
            }
          }),
      }
      if (format === 'json') return found
      const page = await renderFeePage(write(found) as z.output<typeof feeDocuments>)
      return c.body(page, 200, {
        ...feePageHeaders,
        'content-disposition': `inline; filename="fees-${month}.html"`,
      })
    }
  },
})

/** Returns the number of a month's fee document. It is derived from the document's facts, so anyone can compute it again. */
export function feeDocumentNumber(month: string, network: string, providerId: string): string {
  return `F-${month}-${network}-${providerId.slice('prov_'.length, 'prov_'.length + 8)}`
}

/** Reads the names of a provider's endpoints by their ids: an endpoint's description, or its method and path if it has none. */
export async function readEndpointNames(sql: Queryable, providerId: string): Promise<Map<string, string>> {
  const rows = await sql<{ id: string; name: string }[]>`
    select id, case when description = '' then method || ' ' || path else description end as name
    from endpoint where provider_id = ${providerId}`
  return new Map(rows.map(({ id, name }) => [id, name]))
}

function toAmounts(sums: readonly BookedSums[]) {
  const sum = (of: (one: BookedSums) => bigint) => sums.reduce((all, one) => all + of(one), 0n)
  const [gross, fee] = [sum((one) => one.gross), sum((one) => one.fee)]
  const millionths = gross === 0n ? 0n : (fee * 1_000_000n) / gross
  return {
    payments: sums.reduce((all, { payments }) => all + payments, 0),
    gross_usdc: gross,
    fee_usdc: fee,
    net_usdc: gross - fee,
    rate: `${millionths / 1_000_000n}.${String(millionths % 1_000_000n).padStart(6, '0')}`,
  }
}
