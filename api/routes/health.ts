import { setTimeout as sleep } from 'node:timers/promises'
import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/database'
import { readIndexedHead } from '#ledger/indexedHead'
import type { App } from '../app.ts'
import { jsonAnswer } from '../http/problems.ts'
import type { GatewayNetworks } from '../networks.ts'

const alive = z.object({ status: z.literal('ok') })

const readiness = z
  .object({
    status: z.enum(['ready', 'not_ready']),
    database: z.enum(['ok', 'down']),
    networks: z.record(
      z.string(),
      z.object({ rpc: z.enum(['ok', 'down']), head: z.int().nullable(), indexedBlock: z.int().nullable() }),
    ),
  })
  .openapi('Readiness')

const healthz = createRoute({
  method: 'get',
  path: '/healthz',
  summary: 'Whether the process answers',
  tags: ['Operations'],
  responses: { 200: jsonAnswer('It does', alive) },
})

const readyz = createRoute({
  method: 'get',
  path: '/readyz',
  summary: 'Whether it can do its work, and which dependency is down if not',
  description:
    'A missing or late index is shown and does not make it unready: payments are verified without it.',
  tags: ['Operations'],
  responses: { 200: jsonAnswer('Ready', readiness), 503: jsonAnswer('Not ready', readiness) },
})

const probeTimeoutMs = 2_000

export type HealthRouteOptions = { sql: Database; networks: GatewayNetworks }

export function addHealthRoutes(app: App, { sql, networks }: HealthRouteOptions): void {
  app.openapi(healthz, (c) => c.json({ status: 'ok' as const }, 200))

  app.openapi(readyz, async (c) => {
    const [isDatabaseUp, ...chains] = await Promise.all([
      inTime(sql`select 1`.then(() => true)),
      ...[...networks.byChainId.values()].map(async ({ served: { network, client } }) => {
        const [head, indexed] = await Promise.all([
          inTime(client.getBlockNumber()),
          inTime(readIndexedHead(sql, network.chainId)),
        ])
        const state = {
          rpc: head === undefined ? ('down' as const) : ('ok' as const),
          head: head === undefined ? null : Number(head),
          indexedBlock: indexed ? Number(indexed.blockNumber) : null,
        }
        return [network.name, state] as const
      }),
    ])
    const isReady = isDatabaseUp === true && chains.every(([, { rpc }]) => rpc === 'ok')
    const body = {
      status: isReady ? ('ready' as const) : ('not_ready' as const),
      database: isDatabaseUp ? ('ok' as const) : ('down' as const),
      networks: Object.fromEntries(chains),
    }
    return isReady ? c.json(body, 200) : c.json(body, 503)
  })
}

/** The probe's result; undefined if it fails or takes too long. */
async function inTime<T>(probe: Promise<T>): Promise<T | undefined> {
  const limit = sleep(probeTimeoutMs, undefined, { ref: false })
  return Promise.race([probe.catch(() => undefined), limit])
}
