import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { Database } from '#ledger/database'
import { readIndexedHead } from '#ledger/indexedHead'
import type { Network } from '#protocol/networks'
import { deliveryBacklog } from './portal/webhooks/deliveries.ts'

/** Prometheus metrics of one api process; docs/operations/alerts.yml holds the rules on them. */
export function createApiMetrics() {
  const registry = new Registry()
  const shared = { registers: [registry] }
  return {
    registry,
    requests: new Histogram({
      ...shared,
      name: 'tollkeeper_api_request_seconds',
      help: 'Time to answer a request, by route and status',
      labelNames: ['method', 'route', 'status'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    }),
    verifications: new Counter({
      ...shared,
      name: 'tollkeeper_api_verifications_total',
      help: 'Verifications, by result: ok, or the code of the refusal',
      labelNames: ['result'],
    }),
    challenges: new Counter({
      ...shared,
      name: 'tollkeeper_api_challenges_total',
      help: 'Challenges asked for, by result: ok, or the code of the refusal',
      labelNames: ['result'],
    }),
    webhookAttempts: new Counter({
      ...shared,
      name: 'tollkeeper_api_webhook_attempts_total',
      help: 'Webhook messages sent, by outcome: delivered, failed (sent again later), exhausted',
      labelNames: ['outcome'],
    }),
    mails: new Counter({
      ...shared,
      name: 'tollkeeper_api_mails_total',
      help: 'Mails to providers, by outcome: sent, failed (sent again later), exhausted',
      labelNames: ['outcome'],
    }),
    backgroundErrors: new Counter({
      ...shared,
      name: 'tollkeeper_api_background_errors_total',
      help: 'Steps of background work that failed and will be taken again',
      labelNames: ['loop'],
    }),
  }
}

export type ApiMetrics = ReturnType<typeof createApiMetrics>

/** Adds what is looked up when Prometheus asks: the process, the webhooks' backlog, the index's age. */
export function collectApiState(
  { registry }: ApiMetrics,
  { sql, networks }: { sql: Database; networks: Network[] },
): void {
  collectDefaultMetrics({ register: registry, prefix: 'tollkeeper_api_' })
  const registers = [registry]

  /** A gauge that has no value while its source is down; the scrape goes on without it. */
  const gauge = (name: string, help: string, labelNames: string[], read: (gauge: Gauge) => Promise<void>) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers,
      async collect() {
        this.reset()
        await read(this).catch(() => this.remove())
      },
    })

  gauge('tollkeeper_api_database_up', '1 while the database answers', [], async (up) => {
    up.set(
      await sql`select 1`.then(
        () => 1,
        () => 0,
      ),
    )
  })
  gauge(
    'tollkeeper_api_webhooks_pending',
    'Messages that wait to be sent, or sent again',
    [],
    async (pending) => {
      pending.set((await deliveryBacklog(sql)).pending)
    },
  )
  gauge(
    'tollkeeper_api_webhooks_overdue_seconds',
    'How long the oldest message is overdue',
    [],
    async (overdue) => {
      const { oldestDueAt } = await deliveryBacklog(sql)
      overdue.set(oldestDueAt ? Math.max(0, (Date.now() - oldestDueAt.getTime()) / 1000) : 0)
    },
  )
  gauge('tollkeeper_api_index_age_seconds', "Age of the indexed head's block", ['network'], async (age) => {
    for (const { name, chainId } of networks) {
      const head = await readIndexedHead(sql, chainId)
      if (head) age.set({ network: name }, Math.max(0, Date.now() / 1000 - Number(head.blockTime)))
    }
  })
}
