import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { formatCsvLine } from '@tollkeeper/sdk/protocol/csv'
import type { App } from '../http/app.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { streamPages, type TextPage } from '../http/streamPages.ts'
import * as wire from '../http/wire.ts'
import { writerOf } from '../http/writer.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { type BatchPosition, listSettlements } from './batchQueries.ts'
import { addConfirmations, addGasTokenPrices } from './blockFacts.ts'
import { settlementBatch, toSettlementBatch } from './settlementBatches.ts'
import { requireKnownWallet } from './settlementQueue.ts'

const exportQuery = z.object({
  wallet: wire.address,
  start: z.iso.date().openapi({ example: '2026-11-01' }),
  end: z.iso.date().openapi({ example: '2026-11-30' }),
  format: z.literal('csv').optional(),
  network: wire.oneNetwork,
})

const getExport = route('get', '/settlements/export', {
  summary: "A wallet's batches in a range of days as CSV, oldest first",
  description: '`start` and `end` are UTC dates, both inclusive.',
  tags: ['Settlements'],
  query: exportQuery,
  refuses: [404],
  responses: {
    200: { description: 'The CSV', content: { 'text/csv': { schema: { type: 'string' as const } } } },
  },
})

const pageSize = 2_000
const dayMs = 86_400_000

const write = writerOf(settlementBatch)
/** The columns of the CSV, in order: conformance 4.1-13. */
const columns = settlementBatch.keyof().options

export type SettlementExportRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'platformWallet' | 'gasTokenUsd'>
}

export function addSettlementExportRoute(
  app: App,
  { sql, heads, networks, settings }: SettlementExportRouteOptions,
): void {
  const { platformWallet, gasTokenUsd } = settings

  app.openapi(getExport, async (c) => {
    const { wallet, start, end, network: name } = c.req.valid('query')
    const from = new Date(start)
    const to = new Date(Date.parse(end) + dayMs)
    if (from >= to) throw new Refusal('invalid_date_range', `start ${start} is after end ${end}`)
    const { served } = networks.named(name)
    const { chainId } = served.network
    const indexedBlock = (await heads.of(chainId)) ?? 0
    if (wallet !== platformWallet) await requireKnownWallet(sql, { chainId, wallet })

    const filter = { chainId, wallet, from, to }
    const readPage = async (after: BatchPosition | null): Promise<TextPage<BatchPosition>> => {
      const rows = await listSettlements(sql, filter, { after, limit: pageSize, oldestFirst: true })
      await Promise.all([addConfirmations(served, rows, indexedBlock), addGasTokenPrices(sql, served, rows)])
      const last = rows.length === pageSize ? rows.at(-1) : undefined
      const write = () => rows.map((row) => toLine(toSettlementBatch(row, gasTokenUsd))).join('')
      return { write, next: last ?? null }
    }
    const { write, next } = await readPage(null)
    const text = formatCsvLine(columns) + write()
    return c.body(streamPages({ write: () => text, next }, readPage), 200, {
      'content-type': 'text/csv; charset=utf-8; header=present',
      'content-disposition': `attachment; filename="settlements-${start}-${end}.csv"`,
      'indexed-block': `${indexedBlock}`,
    })
  })
}

function toLine(batch: z.input<typeof settlementBatch>): string {
  const written = write(batch)
  return formatCsvLine(columns.map((column) => written[column]))
}
