import { createRoute } from '@hono/zod-openapi'
import type { Address } from 'viem'
import { weiToUsd } from '#chain/settlementCost'
import type { IndexedHead } from '#ledger/indexedHead'
import { estimatedSettlement, firedTrigger, type TriggerSettings, type WalletQueue } from '#ledger/triggers'
import { formatUsdc } from '#protocol/amount'
import { formatCsvLine } from '#protocol/csv'
import { triggerOfCode } from '#protocol/settlement'
import type { App } from '../app.ts'
import { createCursor, cutPage, integerField } from '../http/cursor.ts'
import { type Gateway, type GatewayNetwork, networkOf } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import * as schemas from '../http/schemas.ts'
import {
  type BatchRow,
  listBatches,
  listBatchesOfPeriod,
  type PeriodFilter,
  type StoredBatchRow,
} from '../portal/queries/batches.ts'
import { readBlockFacts } from '../portal/queries/blockFacts.ts'
import { fromIndex, requireIndexedHead } from '../portal/queries/indexedHead.ts'
import { isKnownWallet, readWalletQueue } from '../portal/queries/settlementQueue.ts'
import { Refusal } from '../refusal.ts'

const getStatus = createRoute({
  method: 'get',
  path: '/settlements/status',
  summary: 'What a wallet waits for',
  tags: ['Settlements'],
  request: { query: schemas.settlementStatusQuery },
  responses: { 200: jsonAnswer('The queue', schemas.settlementStatus), ...problems(400, 404, 422, 429, 503) },
})

const getBatches = createRoute({
  method: 'get',
  path: '/settlements/batches',
  summary: 'Settled batches, the newest first',
  description:
    "With `wallet`, counts and sums are that wallet's own; with `tx_hash` alone, all provider wallets'.",
  tags: ['Settlements'],
  request: { query: schemas.batchesQuery },
  responses: { 200: jsonAnswer('The batches', schemas.batches), ...problems(400, 404, 422, 429, 503) },
})

const getExport = createRoute({
  method: 'get',
  path: '/settlements/export',
  summary: "A wallet's batches of some days as CSV, the oldest first",
  description: '`start` and `end` are UTC dates, both inclusive.',
  tags: ['Settlements'],
  request: { query: schemas.exportQuery },
  responses: {
    200: { description: 'The CSV', content: { 'text/csv': { schema: { type: 'string' as const } } } },
    ...problems(400, 404, 422, 429, 503),
  },
})

const defaultLimit = 20
const exportPage = 5_000
const positions = createCursor({ sequence: integerField })
const daySeconds = 86_400

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

export function addSettlementRoutes(app: App, gateway: Gateway): void {
  const { database, settings } = gateway

  async function requireWallet(network: GatewayNetwork, wallet: Address): Promise<void> {
    const { chainId } = network.served.network
    if (wallet === settings.platformWallet) return
    if (await fromIndex(isKnownWallet(database, { chainId, wallet }))) return
    throw new Refusal('unknown_wallet', `Nothing is registered for or was paid to ${wallet} here`)
  }

  function describe(network: GatewayNetwork, head: IndexedHead, rows: BatchRow[]) {
    return readBlockFacts(database, network.served, {
      blocks: rows,
      indexedBlock: head.blockNumber,
      gasTokenUsd: settings.gasTokenUsd,
    })
  }

  /** A page of an export: the chain is asked only for what is stored of no block of it. */
  async function readExport(
    network: GatewayNetwork,
    head: IndexedHead,
    filter: PeriodFilter,
    after: StoredBatchRow | null,
  ): Promise<StoredBatchRow[]> {
    const rows = await fromIndex(listBatchesOfPeriod(database, filter, { after, limit: exportPage }))
    const { confirmations, ethUsdFeed } = network.served.network
    const isDeep = ({ blockNumber }: BatchRow) => blockNumber + BigInt(confirmations) <= head.blockNumber
    const unknown = rows.filter(
      (row) =>
        (row.confirmedAt === null && isDeep(row)) || (row.gasTokenUsd === null && ethUsdFeed !== undefined),
    )
    const facts = await describe(network, head, unknown)
    return rows.map((row) => ({
      ...row,
      confirmedAt: isDeep(row) ? (row.confirmedAt ?? facts.get(row.blockHash)?.confirmedAt ?? null) : null,
      gasTokenUsd: row.gasTokenUsd ?? facts.get(row.blockHash)?.gasTokenUsd ?? null,
    }))
  }

  app.openapi(getStatus, async (c) => {
    const { wallet, network: name } = c.req.valid('query')
    const network = networkOf(gateway, name)
    const { chainId } = network.served.network
    const now = new Date(gateway.now())
    const [head] = await Promise.all([requireIndexedHead(database, chainId), requireWallet(network, wallet)])
    const queue = await fromIndex(
      readWalletQueue(database, {
        chainId,
        token: network.served.token,
        wallet,
        half: wallet === settings.platformWallet ? 1 : 0,
        now,
      }),
    )
    return c.json(
      {
        wallet_address: wallet,
        ...describeQueue(queue, settings.triggers, now),
        network: network.served.network.name,
        indexedBlock: Number(head.blockNumber),
      },
      200,
    )
  })

  app.openapi(getBatches, async (c) => {
    const { wallet, tx_hash: txHash, limit = defaultLimit, cursor, network: name } = c.req.valid('query')
    if (wallet === undefined && txHash === undefined) {
      throw new Refusal('invalid_request', 'query: wallet or tx_hash is needed')
    }
    const network = networkOf(gateway, name)
    const { chainId } = network.served.network
    const list = `batches ${chainId}`
    const after = positions.read(list, cursor)
    const head = await requireIndexedHead(database, chainId)
    if (wallet !== undefined) await requireWallet(network, wallet)

    const filter = {
      chainId,
      ...(wallet !== undefined && { wallet }),
      ...(txHash !== undefined && { txHash }),
    }
    const found = await fromIndex(listBatches(database, filter, { after, limit: limit + 1 }))
    const { page, last } = cutPage(found, limit)
    const facts = await describe(network, head, page)
    return c.json(
      {
        batches: page.map((row) => {
          const fact = facts.get(row.blockHash)
          return toBatch(row, fact?.confirmedAt ?? null, fact?.gasTokenUsd ?? settings.gasTokenUsd)
        }),
        cursor: last && positions.write(list, { sequence: last.sequence }),
        network: network.served.network.name,
        indexedBlock: Number(head.blockNumber),
      },
      200,
    )
  })

  app.openapi(getExport, async (c) => {
    const { wallet, start, end, network: name } = c.req.valid('query')
    const from = Date.parse(`${start}T00:00:00Z`) / 1000
    const to = Date.parse(`${end}T00:00:00Z`) / 1000 + daySeconds
    if (from >= to) throw new Refusal('invalid_date_range', `start ${start} is after end ${end}`)
    const network = networkOf(gateway, name)
    const { chainId } = network.served.network
    const head = await requireIndexedHead(database, chainId)
    await requireWallet(network, wallet)

    const filter = { chainId, wallet, from, to }
    const read = (after: StoredBatchRow | null) => readExport(network, head, filter, after)
    // The first page before the headers: what fails here still gets an honest status.
    const first = await read(null)
    return c.body(streamCsv(first, read, settings.gasTokenUsd), 200, {
      'content-type': 'text/csv; charset=utf-8; header=present',
      'content-disposition': `attachment; filename="settlements-${start}-${end}.csv"`,
      'indexed-block': head.blockNumber.toString(),
    })
  })
}

function describeQueue(queue: WalletQueue | null, triggers: TriggerSettings, now: Date) {
  if (queue === null) {
    return {
      accumulated_usdc: formatUsdc(0n),
      payment_count: 0,
      first_payment_at: null,
      age_seconds: 0,
      estimated_settlement: null,
    }
  }
  // Whether gas is dear just now is the keeper's to find out; the plain thresholds make the better estimate.
  const hasFired = firedTrigger(queue, triggers, 0n, now) !== null
  return {
    accumulated_usdc: formatUsdc(queue.amount),
    payment_count: queue.paymentCount,
    first_payment_at: queue.firstQueuedAt.toISOString(),
    age_seconds: Math.max(0, Math.floor((now.getTime() - queue.firstQueuedAt.getTime()) / 1000)),
    estimated_settlement: (hasFired ? now : estimatedSettlement(queue, triggers)).toISOString(),
  }
}

function toBatch(row: BatchRow, confirmedAt: Date | null, gasTokenUsd: bigint) {
  return {
    batch_id: row.sequence,
    payment_count: row.paymentCount,
    total_usdc: formatUsdc(row.total),
    gas_cost_usdc: formatUsdc(weiToUsd(row.gasCost, gasTokenUsd)),
    tx_hash: row.txHash,
    trigger_type: triggerOfCode(row.triggerCode) ?? 'unknown',
    created_at: new Date(Number(row.blockTime) * 1000).toISOString(),
    confirmed_at: confirmedAt?.toISOString() ?? null,
  }
}

/**
 * Writes pages as they are read by the client: a slow one holds two pages in memory, not the whole export. While one is
 * written, Postgres reads the next.
 */
function streamCsv(
  first: StoredBatchRow[],
  next: (after: StoredBatchRow) => Promise<StoredBatchRow[]>,
  gasTokenUsd: bigint,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder()
  let coming = Promise.resolve(first)
  return new ReadableStream({
    start(controller) {
      controller.enqueue(encoder.encode(formatCsvLine(columns)))
    },
    async pull(controller) {
      const page = await coming
      const last = page.at(-1)
      if (last === undefined) return controller.close()
      coming = page.length === exportPage ? next(last) : Promise.resolve([])
      // It is waited for only after the client has taken this page; until then, a failure isn't unhandled.
      coming.catch(() => {})
      controller.enqueue(encoder.encode(page.map((row) => toLine(row, gasTokenUsd)).join('')))
    },
  })
}

function toLine(row: StoredBatchRow, gasTokenUsd: bigint): string {
  const batch = toBatch(row, row.confirmedAt, row.gasTokenUsd ?? gasTokenUsd)
  return formatCsvLine(columns.map((column) => batch[column]))
}
