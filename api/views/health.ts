import { createRoute, z } from '@hono/zod-openapi'
import { probeHead } from '@tollkeeper/chain/head'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import type { SalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import { type Probe, probeLoop, readReadiness } from '@tollkeeper/runtime/health'
import type { Loop } from '@tollkeeper/runtime/repeat'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import { salesState, salesStateOf } from '../http/salesState.ts'
import { writerOf } from '../http/writer.ts'
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

const gatewayReadiness = readiness
  .extend({
    sales: salesState.nullable().openapi({ description: 'Null if the database does not answer' }),
  })
  .openapi('GatewayReadiness')
const write = writerOf(gatewayReadiness)

const healthz = createRoute({
  method: 'get',
  path: '/healthz',
  summary: 'Check whether the process is running',
  tags: ['Operations'],
  responses: { 200: jsonAnswer('It does', alive) },
})

const readyz = createRoute({
  method: 'get',
  path: '/readyz',
  summary: 'Check whether the gateway can work, and if not, what is wrong',
  description:
    'A missing or late index is shown but does not make the gateway unready, because payments are verified without it. ' +
    'If one network is down while another works, the state is `degraded`. A gateway whose operator has ' +
    'stopped sales is ready: it still answers everything except new payments.',
  tags: ['Operations'],
  responses: { 200: jsonAnswer('Ready', gatewayReadiness), 503: jsonAnswer('Not ready', gatewayReadiness) },
})

export type ReadinessOptions = {
  sql: Database
  networks: GatewayNetworks
  /** The background loops whose health `/readyz` reports. */
  loops: readonly Loop[]
}

export function addHealthRoutes(app: App, options: ReadinessOptions & { sales: SalesSwitch }): void {
  const probes = readinessProbes(options)
  app.openapi(healthz, (c) => c.json({ status: 'ok' as const }, 200))
  app.openapi(readyz, async (c) => {
    const [ready, sales] = await Promise.all([readReadiness(probes), salesStateOf(options.sales)])
    const body = write({ ...ready, sales })
    return body.status === 'unavailable' ? c.json(body, 503) : c.json(body, 200)
  })
}

/** Creates a check for each thing that the process needs. */
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
      if ((await readRecordHead(sql, network.chainId)) === null)
        throw new Error('no block has been recorded yet')
    },
  }
}
