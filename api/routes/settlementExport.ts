import { createRoute, z } from '@hono/zod-openapi'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '#ledger/store/database'
import { formatCsvLine } from '#protocol/csv'
import type { App } from '../http/app.ts'
import { problems } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { streamPages, type TextPage } from '../http/streamPages.ts'
import { address, oneNetwork } from '../http/wire.ts'
import { type BatchRow, listBatchesOfPeriod, type StoredBatchRow } from '../portal/queries/batches.ts'
import { readBlockFacts } from '../portal/queries/blockFacts.ts'
import { fromIndex, type IndexedHeads } from '../portal/queries/indexedHead.ts'
import { requireKnownWallet } from '../portal/queries/settlementQueue.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { toSettlementBatch } from './settlementBatches.ts'

const exportQuery = z.object({
  wallet: address,
  start: z.iso.date().openapi({ example: '2026-11-01' }),
  end: z.iso.date().openapi({ example: '2026-11-30' }),
  format: z.literal('csv').optional(),
  network: oneNetwork,
})

const getExport = createRoute({
  method: 'get',
  path: '/settlements/export',
  summary: "A wallet's batches of some days as CSV, the oldest first",
  description: '`start` and `end` are UTC dates, both inclusive.',
  tags: ['Settlements'],
  request: { query: exportQuery },
  responses: {
    200: { description: 'The CSV', content: { 'text/csv': { schema: { type: 'string' as const } } } },
    ...problems(400, 404, 422, 429, 503),
  },
})

const pageSize = 2_000
const daySeconds = 86_400

/** SPEC 4.1. */
const columns = [
  'batch_id',
  'payment_count',
  'total_usdc',
  'gas_cost_usdc',
  'tx_hash',
  'trigger_type',
  'created_at',
  'confirmed_at',
] as const

export type SettlementExportRouteOptions = {
  sql: Database
  heads: IndexedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'platformWallet' | 'gasTokenUsd'>
}

export function addSettlementExportRoute(app: App, options: SettlementExportRouteOptions): void {
  const { sql, heads, networks, settings } = options
  const { platformWallet, gasTokenUsd } = settings

  app.openapi(getExport, async (c) => {
    const { wallet, start, end, network: name } = c.req.valid('query')
    const from = Date.parse(`${start}T00:00:00Z`) / 1000
    const to = Date.parse(`${end}T00:00:00Z`) / 1000 + daySeconds
    if (from >= to) throw new Refusal('invalid_date_range', `start ${start} is after end ${end}`)
    const { served } = networks.named(name)
    const { chainId } = served.network
    const { blockNumber: indexedBlock } = await heads.require(chainId)
    if (wallet !== platformWallet) await requireKnownWallet(sql, { chainId, wallet })

    const filter = { chainId, wallet, from, to }
    const readPage = async (after: StoredBatchRow | null): Promise<TextPage<StoredBatchRow>> => {
      const rows = await fromIndex(listBatchesOfPeriod(sql, filter, { after, limit: pageSize }))
      await addBlockFacts(sql, served, { rows, indexedBlock, gasTokenUsd })
      const text = rows.map((row) => toLine(row, gasTokenUsd)).join('')
      return { text, next: (rows.length === pageSize && rows.at(-1)) || null }
    }
    const { text, next } = await readPage(null)
    return c.body(streamPages({ text: formatCsvLine(columns) + text, next }, readPage), 200, {
      'content-type': 'text/csv; charset=utf-8; header=present',
      'content-disposition': `attachment; filename="settlements-${start}-${end}.csv"`,
      'indexed-block': indexedBlock.toString(),
    })
  })
}

type FactOptions = { rows: StoredBatchRow[]; indexedBlock: bigint; gasTokenUsd: bigint }

/** Adds to the rows what is known of their blocks. The chain is asked only about blocks of which nothing is stored. */
async function addBlockFacts(
  sql: Database,
  served: ServedNetwork,
  { rows, indexedBlock, gasTokenUsd }: FactOptions,
): Promise<void> {
  const { confirmations, ethUsdFeed } = served.network
  const isDeep = ({ blockNumber }: BatchRow) => blockNumber + BigInt(confirmations) <= indexedBlock
  const unknown = rows.filter(
    (row) =>
      (row.confirmedAt === null && isDeep(row)) || (row.gasTokenUsd === null && ethUsdFeed !== undefined),
  )
  const facts = await readBlockFacts(sql, served, { blocks: unknown, indexedBlock, gasTokenUsd })
  for (const row of rows) {
    const fact = facts.get(row.blockHash)
    row.confirmedAt = isDeep(row) ? (row.confirmedAt ?? fact?.confirmedAt ?? null) : null
    row.gasTokenUsd ??= fact?.gasTokenUsd ?? null
  }
}

function toLine(row: StoredBatchRow, gasTokenUsd: bigint): string {
  const batch = toSettlementBatch(row, row.confirmedAt, row.gasTokenUsd ?? gasTokenUsd)
  return formatCsvLine(columns.map((column) => batch[column]))
}
