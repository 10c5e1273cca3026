import { findCoveredDefaults } from '@tollkeeper/ledger/acceptance/coveredDefaults'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import {
  countFailedTabs,
  countOpenTabs,
  readOldestClosed,
  readTabBudgets,
} from '@tollkeeper/ledger/tabs/tabState'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { collectDefaultMetrics, Gauge } from 'prom-client'
import type { ApiMetrics } from './http/metrics.ts'
import { deliveryBacklog } from './telling/deliveries.ts'

/** Adds metrics that are read when Prometheus asks: the process, the webhooks' backlog, tabs and their credit, the index's age. */
export function collectApiState(
  { registry }: ApiMetrics,
  {
    sql,
    tabDatabase,
    networks,
    tabBudget,
  }: {
    sql: Database
    tabDatabase: TabDatabase
    networks: Network[]
    /** USDC base units; null: there are no tabs. */
    tabBudget: bigint | null
  },
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
  const nameOf = new Map(networks.map(({ name, chainId }) => [chainId, name]))
  /** Sets a value for each served network, 0 for one without tabs. */
  const onEach = (
    tabs: readonly { chainId: number; value: number }[],
    set: (network: string, value: number) => void,
  ) => {
    const values = new Map(tabs.map(({ chainId, value }) => [chainId, value]))
    for (const [chainId, name] of nameOf) set(name, values.get(chainId) ?? 0)
  }
  gauge('tollkeeper_api_open_tabs', 'Tabs that take requests', ['network'], async (open) => {
    onEach(await countOpenTabs(tabDatabase), (network, value) => open.set({ network }, value))
  })
  gauge(
    'tollkeeper_api_closed_tabs_oldest_seconds',
    'How long ago the oldest closed tab was closed that the ledger has not taken in',
    ['network'],
    async (oldest) => {
      onEach(await readOldestClosed(tabDatabase), (network, value) => oldest.set({ network }, value))
    },
  )
  gauge(
    'tollkeeper_api_failed_tabs',
    'Closed tabs that could not be taken in so far and are tried again',
    ['network'],
    async (failed) => {
      onEach(await countFailedTabs(tabDatabase), (network, value) => failed.set({ network }, value))
    },
  )
  gauge(
    'tollkeeper_api_tab_credit_usdc',
    'What tabs owe of today’s budget: outstanding, or lost. `money` is real or test',
    ['money'],
    async (lent) => {
      for (const one of await readTabBudgets(sql, new Date()))
        lent.set({ money: one.money }, Number(one.lent) / 1e6)
    },
  )
  gauge(
    'tollkeeper_api_tab_budget_usdc',
    'What all tabs together may owe of one day’s budget. `money` is real or test',
    ['money'],
    async (budget) => {
      if (tabBudget === null) return
      for (const { money } of await readTabBudgets(sql, new Date()))
        budget.set({ money }, Number(tabBudget) / 1e6)
    },
  )
  gauge(
    'tollkeeper_api_covered_defaults_usdc',
    'What the platform owes to providers for defaults on tabs',
    ['network'],
    async (owed) => {
      const covers = await findCoveredDefaults(sql, {}, 10_000)
      for (const [chainId, name] of nameOf) {
        const own = covers
          .filter((one) => one.chainId === chainId)
          .reduce((sum, { amount }) => sum + amount, 0n)
        owed.set({ network: name }, Number(own) / 1e6)
      }
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
