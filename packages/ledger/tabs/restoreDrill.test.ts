import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { noBadRows } from '../../../test/support/badRows.ts'
import { runCliHere } from '../../../test/support/cli.ts'
import { killAll, runCommand } from '../../../test/support/processes.ts'
import { documented, openRestoreDrill, type RestoreDrill } from '../../../test/support/restoreDrill.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { findTakenTab } from '../../../test/support/takenTab.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { type Database, openDatabase } from '../store/database.ts'
import { migrateAt } from '../store/migrate.ts'
import { acceptLoss, findLostTabs, raiseMark, requireTabStore, TabStoreBehind } from './storeMark.ts'
import { onOnePostgres } from './tabDatabase.ts'
import { closingTimes, createTabUpkeep } from './upkeep.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const opened: Database[] = []
let drill: RestoreDrill
beforeAll(() => {
  drill = openRestoreDrill()
})
afterAll(async () => {
  await Promise.all(opened.map((sql) => sql.end({ timeout: 1 })))
  drill.close()
})

function open(url: string): Database {
  const sql = openDatabase({ url, applicationName: 'test' })
  opened.push(sql)
  return sql
}

const stores = (sql: Database) => ({ sql, tabs: onOnePostgres(sql) })

/** Buys twice on a new tab, for 0.05 USDC each. */
async function buyTwice() {
  const tab = openTab(gateway, await gateway.buyer(1_000_000n))
  for (let n = 0; n < 2; n++) expect((await tab.buy(shop)).status).toBe(200)
  return tab
}

const withoutTabs = (command: string) => command.replace(' --schema tabs', '')

describe('the drill of docs/deployment.md', () => {
  test('default: after the restore, imports everything that was bought on a tab before the backup', async () => {
    await requireTabStore(stores(gateway.database))
    const tab = await buyTwice()
    await drill.backUp(gateway.databaseUrl)
    const { url, env } = await drill.restore()
    const sql = open(url)
    const { MACAROON_NOT_BEFORE = '' } = env
    expect(Date.now() - Date.parse(MACAROON_NOT_BEFORE)).toBeLessThan(60_000)
    await requireTabStore(stores(sql))
    const upkeep = createTabUpkeep({
      ...stores(sql),
      networks: [gateway.served],
      minimumPrices: {},
      rules: { ...closingTimes, amount: 10_000_000n },
      onBadRow: noBadRows,
      now: () => new Date(Date.now() + 3_700_000),
    })
    await upkeep.closeAndTake()
    const [row] = await sql<
      { id: string }[]
    >`select payment_id as id from tab_payment where tab_id = ${tab.tabId}`
    expect(await findTakenTab(sql, row?.id ?? '')).toMatchObject({ value: 100_000n, requests: 2 })
  })

  test('error: after a restore without the tab store, api and keeper refuse to start until the loss is accepted', async () => {
    const tab = await buyTwice()
    await raiseMark(stores(gateway.database))
    await drill.backUp(gateway.databaseUrl, withoutTabs(documented('backup')))
    const { folder } = drill
    const { url } = await drill.restore()
    await migrateAt(url)
    const sql = open(url)
    const lost = await findLostTabs(stores(sql))
    expect(lost).toContainEqual(expect.objectContaining({ tabId: tab.tabId, payer: tab.payer }))
    const refusal = new TabStoreBehind(lost).message
    expect(refusal).toMatch(
      /^the ledger has reserved [\d.]+ USDC for \d+ tabs? that are missing in the tab store \(tab_store_behind\)\. Restore the schema `tabs`/,
    )

    writeFileSync(join(folder, 'deployments.json'), JSON.stringify(gateway.chain.deployments))
    const env = {
      DATABASE_URL: url,
      DEPLOYMENTS_FILE: join(folder, 'deployments.json'),
      NETWORKS: 'localhost',
      RPC_URL_LOCALHOST: gateway.chain.url,
      PLATFORM_WALLET: gateway.settings.platformWallet,
      MACAROON_SECRETS: `k1:${'ab'.repeat(32)}`,
      RECEIPT_KEY_FILE: join(folder, 'receipt-keys.json'),
      KEEPER_PRIVATE_KEYS: `0x${'11'.repeat(32)}`,
      API_PORT: '0',
      KEEPER_PORT: '0',
    }
    await Promise.all(
      ['api', 'keeper'].map(async (process) => {
        const started = runCommand(['node', `${process}/main.ts`], env)
        expect([await started.exited, started.output()]).toEqual([1, `${process}: ${refusal}`])
        await killAll(started)
      }),
    )
    const cli = (...args: string[]) => runCliHere(args, { cwd: folder, env })
    const { checks } = JSON.parse((await cli('doctor', '--json')).stdout) as { checks: { name: string }[] }
    expect(checks.find(({ name }) => name === 'tab store')).toMatchObject({ status: 'fail' })
    expect((await cli('tabs')).stdout).toContain(tab.tabId)
    await expect(requireTabStore(stores(sql))).rejects.toThrow(refusal)
    expect((await cli('tabs', '--accept-loss')).stdout).toContain('api and keeper start without these tabs')
    await requireTabStore(stores(sql))
    expect((await cli('tabs')).stdout).toContain('no tab is lost')
  })
})

test('behavior: starts even if credit of any age is reserved for a tab that was never opened', async () => {
  const sql = gateway.database
  await requireTabStore(stores(sql))
  await sql`
    insert into tab_reservation (tab_id, chain_id, token, payer, reserved, reserved_at)
    values (${`tab_${'0'.repeat(31)}1`}, ${gateway.served.network.chainId}, ${gateway.served.token}, ${`0x${'1'.repeat(40)}`}, 1, now() - interval '1 day')`
  await requireTabStore(stores(sql))
})

test('error: rejects a tab store from an earlier time than the ledger, and accepts a tab store from a later time', async () => {
  const sql = gateway.database
  const tab = await buyTwice()
  await requireTabStore(stores(sql))
  await sql`delete from tabs.tab where id = ${Buffer.from(tab.tabId.slice(4), 'hex')}`
  await sql`update tabs.mark set number = number + 1`
  expect(await findLostTabs(stores(sql))).toEqual([])
  await sql`update tabs.mark set number = number - 2`
  expect(await findLostTabs(stores(sql))).toContainEqual(expect.objectContaining({ tabId: tab.tabId }))
  await acceptLoss(stores(sql))
  expect(await findLostTabs(stores(sql))).toEqual([])
})

test('error: detects a tab store that goes back in time while processes run, and releases no credit until the loss is accepted', async () => {
  const sql = gateway.database
  const tab = await buyTwice()
  const upkeep = createTabUpkeep({
    ...stores(sql),
    networks: [gateway.served],
    minimumPrices: {},
    rules: { ...closingTimes, amount: 10_000_000n },
    onBadRow: noBadRows,
    now: () => new Date(Date.now() + 3_700_000),
  })
  const reserved = () => sql`select from tab_reservation where tab_id = ${tab.tabId}`
  await acceptLoss(stores(sql))
  for (let n = 0; n < 3; n++) await raiseMark(stores(sql))
  // As after a failover to a replica that lacks the tab and the last two increases of the mark.
  await sql`delete from tabs.tab where id = ${Buffer.from(tab.tabId.slice(4), 'hex')}`
  await sql`update tabs.mark set number = number - 2`
  for (let n = 0; n < 4; n++) {
    await expect(upkeep.releaseUnopened()).rejects.toThrow(TabStoreBehind)
    await expect(upkeep.closeAndTake()).rejects.toThrow(/tab_store_behind/)
  }
  expect(await reserved()).toHaveLength(1)
  await acceptLoss(stores(sql))
  await upkeep.releaseUnopened()
  expect(await reserved()).toEqual([])
})

test('behavior: continues if the tab store went back in time but lost no tab', async () => {
  const sql = gateway.database
  for (let n = 0; n < 3; n++) await raiseMark(stores(sql))
  await sql`delete from tab_reservation`
  await sql`update tabs.mark set number = number - 2`
  await raiseMark(stores(sql))
  const [row] = await sql`select m.number = l.number as same from tabs.mark m, tab_store_mark l`
  expect(row).toEqual({ same: true })
})
