import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { collectDefaultMetrics, Gauge } from 'prom-client'
import type { ApiMetrics } from './http/metrics.ts'
import { deliveryBacklog } from './telling/deliveries.ts'

/** Adds metrics that are read when Prometheus asks: the process, the webhooks' backlog, the index's age. */
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
  gauge(
    'tollkeeper_api_index_age_seconds',
    'Age of the last block that was read from the index',
    ['network'],
    async (age) => {
      for (const { name, chainId } of networks) {
        const head = await readRecordHead(sql, chainId)
        if (head) age.set({ network: name }, Math.max(0, Date.now() / 1000 - Number(head.blockTime)))
      }
    },
  )
}
