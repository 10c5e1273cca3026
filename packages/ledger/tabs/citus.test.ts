import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { App } from '@tollkeeper/api/http/app'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { noBadRows } from '../../../test/support/badRows.ts'
import { type Citus, hasCitus, startCitus } from '../../../test/support/citus.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { findTakenTab } from '../../../test/support/takenTab.ts'
import { until } from '../../../test/support/until.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { endPayments } from '../queue/stages.ts'
import { openDatabase } from '../store/database.ts'
import { migrate, tabSchema, tabStoreFolder } from '../store/migrate.ts'
import { openTabDatabase, type TabDatabase, toBytes } from './tabDatabase.ts'
import { closingTimes, createTabUpkeep } from './upkeep.ts'

// The tab store on a cluster, with the same SQL; a payer's statements go to the worker with its shard. These tests are skipped if no
// cluster can be started; see `test/support/citus.ts` for their requirements.

describe.skipIf(!hasCitus)('tabs on Citus', () => {
  const gateway = useGateway()
  const shop = useShop(gateway)
  let citus: Citus
  let tabs: TabDatabase
  let app: App

  beforeAll(async () => {
    citus = await startCitus()
    const open = () => openTabDatabase({ url: citus.url, ledger: gateway.database, applicationName: 'test' })
    // Two processes start at the same time, and each waits for the objects that the other one creates.
    const [first, second] = await Promise.all([open(), open()])
    await second.end({ timeout: 1 })
    tabs = first
    app = gateway.withOptions({ tabDatabase: tabs })
  }, 180_000)
  afterAll(async () => {
    await tabs?.end({ timeout: 1 })
    await citus?.close()
  })

  type Tab = ReturnType<typeof openTab>
  const openedTabs = async (count: number): Promise<Tab[]> =>
    Promise.all(
      Array.from({ length: count }, async () =>
        openTab({ ...gateway, app }, await gateway.buyer(5_000_000n)),
      ),
    )

  async function portOf({ payer }: Tab): Promise<number> {
    const [{ port }] = await tabs.all<[{ port: number }]>`
      select nodeport as port from citus_shards where table_name = 'tabs.tab'::regclass
        and shardid = get_shard_id_for_distribution_column('tabs.tab', ${toBytes(payer)}::bytea)`
    return port
  }

  /** Reads the number of requests on each tab from the cluster. */
  const countsOf = (own: readonly Tab[]) =>
    Promise.all(own.map(async (tab) => ((await tab.read()).body.requests as number | undefined) ?? 0))

  test('default: purchases on tabs, lower charges, closing, the import into the ledger and credits work', async () => {
    const own = await openedTabs(8)
    for (let n = 0; n < 3; n++) {
      const answers = await Promise.all(own.map((tab) => tab.buy(shop)))
      expect(answers.map(({ status }) => status)).toEqual(own.map(() => 200))
    }
    // The tabs are on more than one worker.
    expect(new Set(await Promise.all(own.map(portOf))).size).toBe(2)
    const [first] = own as [Tab]
    expect((await first.charge(shop, 3, '0.01')).status).toBe(200)
    const upkeep = createTabUpkeep({
      sql: gateway.database,
      tabs,
      networks: [gateway.served],
      minimumPrices: {},
      onBadRow: noBadRows,
      rules: { ...closingTimes, amount: 10_000_000n },
      now: () => new Date(Date.now() + 360_000),
    })
    await upkeep.watch(gateway.served)
    await upkeep.releaseUnopened()
    await upkeep.closeAndTake()
    for (const tab of own) {
      const { body } = await tab.read()
      expect(body).toMatchObject({ closeReason: 'idle', isTaken: true })
      expect(await findTakenTab(gateway.database, body.paymentId as string)).toMatchObject({
        value: 150_000n,
      })
    }
    const { body } = await first.read()
    const end = { paymentId: body.paymentId as string, kind: 'settled', code: null, isFinal: true } as const
    await endPayments(gateway.database, [end], new Date())
    await upkeep.closeAndTake()
    expect([...(await tabs.all`select payer, amount from tabs.credit`)]).toEqual([
      { payer: toBytes(first.payer), amount: 40_000n },
    ])
  }, 60_000)

  test('behavior: a killed worker delays only its payers, and no request is lost or stored twice', async () => {
    const own = await openedTabs(10)
    for (const tab of own) expect((await tab.buy(shop)).status).toBe(200)
    const ports = await Promise.all(own.map(portOf))
    const dead = ports[0] as number
    await citus.kill(dead)
    const signed = await Promise.all(own.map((tab) => tab.sign(shop)))
    const answers = await Promise.all(own.map((tab, index) => tab.present(signed[index] as never)))
    expect(answers.map(({ status }) => status)).toEqual(ports.map((port) => (port === dead ? 503 : 200)))
    await citus.start(dead)
    for (const [index, tab] of own.entries()) {
      if (ports[index] !== dead) continue
      // Presents the same state again, like a client that got no answer.
      await until('it is served', async () => (await tab.present(signed[index] as never)).status === 200)
      expect((await tab.present(signed[index] as never)).body.code).toBe('payment_replayed')
    }
    expect(await countsOf(own)).toEqual(own.map(() => 2))
  }, 90_000)

  test('behavior: a new worker takes over shards while tabs are in use', async () => {
    const own = await openedTabs(6)
    let isMoving = true
    let served = 0
    const buying = own.map(async (tab) => {
      let bought = 0
      while (isMoving || bought < 3) {
        const body = await tab.sign(shop)
        await until('its worker answers', async () => (await tab.present(body)).status !== 503)
        bought += 1
        served += 1
        // The credit allows no more purchases.
        if (bought === 19) break
      }
      return bought
    })
    await until('each bought once', () => served >= own.length)
    const added = await citus.addWorker()
    await citus.rebalance()
    isMoving = false
    const bought = await Promise.all(buying)
    expect(await countsOf(own)).toEqual(bought)
    const shards = await tabs.all`
      select from citus_shards where table_name = 'tabs.tab'::regclass and nodeport = ${added}`
    expect(shards.length).toBeGreaterThan(5)
  }, 120_000)

  test('behavior: functions are replaced, added and dropped on every worker', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-functions-'))
    const coordinator = openDatabase({ url: citus.url, max: 1, applicationName: 'test', limited: false })
    const onWorkers = async () => {
      const rows = await coordinator<{ result: string }[]>`
        select result from run_command_on_workers($$
          select string_agg(proname || ': ' || md5(prosrc), ', ' order by proname) from pg_proc
          where pronamespace = 'tabs'::regnamespace$$)`
      return rows.map(({ result }) => result)
    }
    try {
      const before = await onWorkers()
      expect(new Set(before).size).toBe(1)
      expect(before[0]).toMatch(/^accept: .*, buy: .*, charge: .*, judge_amounts: .*, judge_terms: /)
      for (const name of ['migrations', 'functions'])
        await cp(new URL(`${name}/`, tabStoreFolder), join(folder, name), { recursive: true })
      const [judging, added] = ['judge_terms.sql', 'shade.sql']
      await writeFile(
        join(folder, 'functions', judging),
        `create or replace function tabs.judge_terms(c tabs.candidate) returns text language sql as $$ select 'mismatch' $$;`,
      )
      await writeFile(
        join(folder, 'functions', added),
        `create or replace function tabs.shade() returns text language sql as $$ select 'dark' $$;`,
      )
      expect(await migrate(coordinator, pathToFileURL(`${folder}/`), tabSchema)).toEqual([judging, added])
      const changed = await onWorkers()
      expect(changed).toHaveLength(before.length)
      expect(new Set(changed).size).toBe(1)
      expect(changed[0]).not.toContain(before[0]?.match(/judge_terms: \w+/)?.[0])
      expect(changed[0]).toMatch(/judge_terms: .*, shade: /)
      expect(await migrate(coordinator, tabStoreFolder, tabSchema)).toEqual([judging])
      expect(await onWorkers()).toEqual(before)
    } finally {
      await coordinator.end({ timeout: 1 })
      await rm(folder, { recursive: true })
    }
  })
})
