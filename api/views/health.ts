import { createRoute, z } from '@hono/zod-openapi'
import { probeHead } from '@tollkeeper/chain/head'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import { type Probe, probeLoop, readReadiness } from '@tollkeeper/runtime/health'
import type { Loop } from '@tollkeeper/runtime/repeat'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import type { GatewayNetworks } from '../registry/networks.ts'

const alive = z.object({ status: z.literal('ok') })

export const readiness = z
  .object({
    status: z.enum(['ok', 'degraded', 'unavailable']),
    checks: z.array(
      z.object({
        name: z.string(),
        network: z.string().optional(),
        ok: z.boolean(),
        detail: z.string().optional(),
        optional: z.literal(true).optional(),
      }),
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
  summary: 'Whether it can do its work, and what is wrong if not',
  description:
    'A missing or late index is shown and does not make it unready: payments are verified without it. ' +
    'Networks fail apart: one that is down, while another works, makes it `degraded`.',
  tags: ['Operations'],
  responses: { 200: jsonAnswer('Ready', readiness), 503: jsonAnswer('Not ready', readiness) },
})

export type ReadinessOptions = {
  sql: Database
  networks: GatewayNetworks
  /** The background loops whose health `/readyz` reports. */
  loops: readonly Loop[]
}

export function addHealthRoutes(app: App, options: ReadinessOptions): void {
  const probes = readinessProbes(options)
  app.openapi(healthz, (c) => c.json({ status: 'ok' as const }, 200))
  app.openapi(readyz, async (c) => {
    const body = await readReadiness(probes)
    return body.status === 'unavailable' ? c.json(body, 503) : c.json(body, 200)
  })
}

/** Checks for all that the process needs. */
export function readinessProbes({ sql, networks, loops }: ReadinessOptions): Probe[] {
  return [
    { name: 'database', ask: () => sql`select 1` },
    ...loops.map((loop) => probeLoop(loop)),
    ...[...networks.byChainId.values()].flatMap(({ served }) => [probeHead(served), probeIndex(sql, served)]),
  ]
}

function probeIndex(sql: Database, { network }: ServedNetwork): Probe {
  return {
    name: `index ${network.name}`,
    network: network.name,
    optional: true,
    async ask() {
      if ((await readRecordHead(sql, network.chainId)) === null) throw new Error('there is none')
    },
  }
}
