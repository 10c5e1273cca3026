import { findCoveredDefaults } from '@tollkeeper/ledger/acceptance/coveredDefaults'
import { countFailedRefunds } from '@tollkeeper/ledger/acceptance/refunds'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import { readSalesStop } from '@tollkeeper/ledger/registry/salesStop'
import { sumDay } from '@tollkeeper/ledger/sales/dayTotals'
import { readBackupTime } from '@tollkeeper/ledger/store/backups'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import {
  countFailedTabs,
  countOpenTabs,
  readOldestClosed,
  readTabBudgets,
} from '@tollkeeper/ledger/tabs/tabState'
import { readVersion } from '@tollkeeper/runtime/version'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { collectDefaultMetrics, Gauge } from 'prom-client'
import type { ApiMetrics } from './http/metrics.ts'
import { deliveryBacklog } from './notifications/deliveries.ts'

type StateOptions = {
  sql: Database
  tabDatabase: TabDatabase
  networks: Network[]
  /** USDC base units; null: tabs are disabled. */
  tabBudget: bigint | null
  /** The gateway's public URL. */
  issuer: string
}

/** Adds a gauge that is read when Prometheus scrapes. */
type AddGauge = (
  name: string,
  help: string,
  labelNames: string[],
  read: (gauge: Gauge) => Promise<void>,
) => void

/**
 * Adds metrics that are read when Prometheus scrapes: the process, the webhooks' backlog, tabs and their credit, refunds, the day's sums,
 * the newest backup, and the index's age.
 */
export function collectApiState({ registry }: ApiMetrics, options: StateOptions): void {
  const { sql, networks, issuer } = options
  collectDefaultMetrics({ register: registry, prefix: 'tollkeeper_api_' })
  const registers = [registry]

  /** Adds a gauge that has no value while its source is down; the scrape still returns the other metrics. */
  const gauge: AddGauge = (name, help, labelNames, read) => {
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
  }

  gauge('tollkeeper_api_database_up', '1 while the database answers', [], async (up) => {
    up.set(
      await sql`select 1`.then(
        () => 1,
        () => 0,
      ),
    )
  })
  gauge('tollkeeper_sales_stopped', '1 while the operator has stopped sales', [], async (stopped) => {
    stopped.set((await readSalesStop(sql)) === null ? 0 : 1)
  })
  gauge(
    'tollkeeper_api_webhooks_pending',
    'Number of messages waiting to be sent or retried',
    [],
    async (pending) => {
      pending.set((await deliveryBacklog(sql)).pending)
    },
  )
  gauge(
    'tollkeeper_api_webhooks_overdue_seconds',
    'Seconds for which the oldest message is overdue',
    [],
    async (overdue) => {
      const { oldestDueAt } = await deliveryBacklog(sql)
      overdue.set(oldestDueAt ? Math.max(0, (Date.now() - oldestDueAt.getTime()) / 1000) : 0)
    },
  )
  gauge(
    'tollkeeper_api_info',
    'Always 1; the labels have the `version` of Tollkeeper and the `url` of the gateway',
    ['version', 'url'],
    async (info) => {
      info.set({ version: readVersion(), url: issuer }, 1)
    },
  )
  collectTabs(gauge, options)
  collectMoney(gauge, options)
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

/** Adds the metrics that an operator needs to monitor tabs. */
function collectTabs(gauge: AddGauge, { sql, tabDatabase, networks, tabBudget }: StateOptions): void {
  const nameOf = new Map(networks.map(({ name, chainId }) => [chainId, name]))
  /** Sets a value for each served network, 0 for a network without tabs. */
  const onEach = (
    tabs: readonly { chainId: number; value: number }[],
    set: (network: string, value: number) => void,
  ) => {
    const values = new Map(tabs.map(({ chainId, value }) => [chainId, value]))
    for (const [chainId, name] of nameOf) set(name, values.get(chainId) ?? 0)
  }
  gauge('tollkeeper_api_open_tabs', 'Number of open tabs', ['network'], async (open) => {
    onEach(await countOpenTabs(tabDatabase), (network, value) => open.set({ network }, value))
  })
  gauge(
    'tollkeeper_api_closed_tabs_oldest_seconds',
    'Age of the oldest closed tab that is not in the ledger yet',
    ['network'],
    async (oldest) => {
      onEach(await readOldestClosed(tabDatabase), (network, value) => oldest.set({ network }, value))
    },
  )
  gauge(
    'tollkeeper_api_failed_tabs',
    'Closed tabs that could not be imported into the ledger yet and are retried',
    ['network'],
    async (failed) => {
      onEach(await countFailedTabs(tabDatabase), (network, value) => failed.set({ network }, value))
    },
  )
  gauge(
    'tollkeeper_api_tab_credit_usdc',
    'Credit of tabs that counts against today’s budget: outstanding or lost. `money` is real or test',
    ['money'],
    async (lent) => {
      for (const one of await readTabBudgets(sql, new Date()))
        lent.set({ money: one.money }, Number(one.lent) / 1e6)
    },
  )
  gauge(
    'tollkeeper_api_tab_budget_usdc',
    'Daily budget for the credit of all tabs together. `money` is real or test',
    ['money'],
    async (budget) => {
      if (tabBudget === null) return
      for (const { money } of await readTabBudgets(sql, new Date()))
        budget.set({ money }, Number(tabBudget) / 1e6)
    },
  )
}

/** Adds the gateway's debts, revenue and possible losses. */
function collectMoney(gauge: AddGauge, { sql, networks }: StateOptions): void {
  const nameOf = new Map(networks.map(({ name, chainId }) => [chainId, name]))
  gauge(
    'tollkeeper_api_covered_defaults_usdc',
    'The platform’s debt to providers for defaults on tabs',
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
    'tollkeeper_api_failed_refunds',
    'Refunds that failed within the last day and were not retried, by failure code',
    ['network', 'code'],
    async (failed) => {
      for (const { chainId, code, count } of await countFailedRefunds(sql, new Date())) {
        const network = nameOf.get(chainId)
        if (network !== undefined) failed.set({ network, code }, count)
      }
    },
  )
  gauge(
    'tollkeeper_api_today_usdc',
    'Sums since midnight UTC by part: provider and fee of the day’s sales whose settlement is final, and gas for settling. `money` is real or test',
    ['network', 'money', 'part'],
    async (today) => {
      const totals = new Map((await sumDay(sql, new Date())).map((one) => [one.chainId, one]))
      for (const { name, chainId, testnet } of networks) {
        const labels = { network: name, money: testnet ? 'test' : 'real' }
        for (const part of ['provider', 'fee', 'gas'] as const)
          today.set({ ...labels, part }, Number(totals.get(chainId)?.[part] ?? 0n) / 1e6)
      }
    },
  )
  gauge(
    'tollkeeper_api_backup_timestamp_seconds',
    'Unix time up to which a restore has all data; without a recorded backup, when the database was created. Only on real networks',
    [],
    async (backup) => {
      if (networks.every(({ testnet }) => testnet)) backup.remove()
      else backup.set((await readBackupTime(sql)).getTime() / 1000)
    },
  )
}
