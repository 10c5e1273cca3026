import { beforeAll, expect, test } from 'vitest'
import { collectBadRows, refuseWrites } from '../../../test/support/badRows.ts'
import { openShop, type Shop } from '../../../test/support/gateway.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { endPayments } from '../queue/stages.ts'
import type { TabUpkeepOptions } from './upkeep.ts'

// Puts 200 permanently failing tabs before a good one in each loop that processes tabs.

const gateway = useGateway()
const shop = useShop(gateway)
let dear: Shop

beforeAll(async () => {
  dear = await openShop(gateway.app, '0.3')
})

type Tab = ReturnType<typeof openTab>
const openedTab = async (usdc = 5_000_000n) => openTab(gateway, await gateway.buyer(usdc))
const bytesOf = (hex: string) => Buffer.from(hex.slice(2), 'hex')
const idOf = ({ tabId }: Tab) => Buffer.from(tabId.slice('tab_'.length), 'hex')

const upkeepAt = (now: number, more: Partial<TabUpkeepOptions> = {}) => openTabUpkeep(gateway, now, more)

async function settle(tab: Tab): Promise<void> {
  const { paymentId } = (await tab.read()).body as { paymentId: string }
  await endPayments(gateway.database, [{ paymentId, kind: 'settled', code: null, isFinal: true }], new Date())
}

async function creditOf({ payer }: Tab): Promise<bigint[]> {
  const rows = await gateway.database<{ amount: bigint }[]>`
    select amount from tabs.credit where payer = ${bytesOf(payer)}`
  return rows.map(({ amount }) => amount)
}

test('behavior: 200 closed tabs that always fail don’t delay others', async () => {
  const [bad, good] = [await openedTab(), await openedTab()]
  for (const tab of [bad, good]) await tab.buy(shop)
  await gateway.database`update tabs.tab set closed_at = now() - interval '1 hour', close_reason = 'idle' where id = ${idOf(bad)}`
  await gateway.database`delete from tabs.request where tab_id = ${idOf(bad)}`
  await gateway.database`
    insert into tabs.tab select (jsonb_populate_record(t, jsonb_build_object('id', '\\x' || md5('bad' || n)))).*
    from tabs.tab t, generate_series(1, 199) n where t.id = ${idOf(bad)}`
  await good.close()
  const reports = collectBadRows()
  for (const now of [Date.now(), Date.now() + 6_000]) await upkeepAt(now, reports).closeAndTake()
  expect((await good.read()).body.isTaken).toBe(true)
  expect(reports.bad).toHaveLength(400)
  await gateway.database`delete from tabs.tab where payer = ${bytesOf(bad.payer)}`
})

test('behavior: a closed tab whose writes all time out, even the write that postpones it, doesn’t delay others', async () => {
  const [bad, good] = [await openedTab(), await openedTab()]
  for (const tab of [bad, good]) {
    await tab.buy(shop)
    await tab.close()
  }
  const { database } = gateway
  await database`update tabs.tab set closed_at = now() - interval '1 hour' where id = ${idOf(bad)}`
  const ofBad = `new.payer = '\\x${bad.payer.slice(2)}'`
  const allow = await refuseWrites(database, 'tabs.tab', 'update', ofBad, 'lock_not_available')
  const reports = collectBadRows()
  await upkeepAt(Date.now(), reports).closeAndTake()
  expect((await good.read()).body.isTaken).toBe(true)
  expect(reports.bad).toContainEqual({ step: 'take', row: expect.objectContaining({ payer: bad.payer }) })
  await allow()
  await upkeepAt(Date.now()).closeAndTake()
  expect((await bad.read()).body.isTaken).toBe(true)
})

test('behavior: 200 credits that can’t be given don’t delay others', async () => {
  const [bad, good] = [await openedTab(), await openedTab()]
  for (const tab of [bad, good]) {
    await tab.buy(shop)
    await tab.charge(shop, 1, '0.02')
  }
  await upkeepAt(Date.now() + 360_000).closeAndTake()
  for (const tab of [bad, good]) await settle(tab)
  await gateway.database`
    with copies as (
      insert into tabs.tab select (jsonb_populate_record(t, jsonb_build_object('id', '\\x' || md5('credit' || n)))).*
      from tabs.tab t, generate_series(1, 199) n where t.id = ${idOf(bad)} returning payer, id
    )
    insert into tabs.line (payer, tab_id, position, split)
    select c.payer, c.id, l.position, l.split from copies c join tabs.line l on l.payer = c.payer and l.tab_id = ${idOf(bad)}`
  const allow = await refuseWrites(
    gateway.database,
    'tabs.credit',
    'insert',
    `new.payer = '\\x${bad.payer.slice(2)}'`,
  )
  const reports = collectBadRows()
  await upkeepAt(Date.now(), reports).closeAndTake()
  expect(await creditOf(good)).toEqual([30_000n])
  expect(reports.bad.filter(({ step }) => step === 'credit')).toHaveLength(200)
  await allow()
  await gateway.database`delete from tabs.tab where payer = ${bytesOf(bad.payer)}`
})

test('behavior: a payer whose state can’t be read doesn’t keep other payers’ tabs open', async () => {
  const [bad, poor] = [await openedTab(), await openedTab(370_000n)]
  for (const tab of [bad, poor]) await tab.buy(dear)
  const { client } = gateway.served
  const readContract = async (question: { args: [unknown, { account: string }[]] }) => {
    if (question.args[1].some(({ account }) => account === bad.payer)) throw new Error('unreadable')
    return client.readContract(question as never)
  }
  const served = {
    ...gateway.served,
    client: { ...client, readContract },
  } as unknown as typeof gateway.served
  const reports = collectBadRows()
  await upkeepAt(Date.now(), { ...reports, networks: [served] }).watch(served)
  expect((await poor.read()).body.closeReason).toBe('balance')
  expect(reports.bad).toEqual([{ step: 'watch', row: { payer: bad.payer } }])
})

test('behavior: 200 old tabs that can’t be deleted don’t delay others', async () => {
  const [bad, good] = [await openedTab(), await openedTab()]
  for (const tab of [bad, good]) await tab.buy(shop)
  await gateway.database`
    insert into tabs.tab select (jsonb_populate_record(t, jsonb_build_object('id', '\\x' || md5('old' || n)))).*
    from tabs.tab t, generate_series(1, 199) n where t.id = ${idOf(bad)}`
  await gateway.database`
    update tabs.tab set closed_at = now(), close_reason = 'idle', taken_at = case id when ${idOf(good)} then now() else now() - interval '1 day' end
    where payer in (${bytesOf(bad.payer)}, ${bytesOf(good.payer)})`
  const allow = await refuseWrites(
    gateway.database,
    'tabs.tab',
    'delete',
    `old.payer = '\\x${bad.payer.slice(2)}'`,
  )
  const reports = collectBadRows()
  const upkeep = upkeepAt(Date.now(), reports)
  while (await upkeep.forget(new Date(Date.now() + 60_000)));
  expect((await good.read()).status).toBe(404)
  expect(reports.bad).toHaveLength(200)
  await allow()
  await gateway.database`delete from tabs.tab where payer = ${bytesOf(bad.payer)}`
})
