import { beforeEach, expect, test } from 'vitest'
import { refuseWrites } from '../../../test/support/badRows.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { closedAtOnce } from './closeTabs.ts'

// If no process ran for a night, upkeep catches up in bounded steps. A part that fails doesn't prevent the others.

const gateway = useGateway()
const shop = useShop(gateway)
const count = 2 * closedAtOnce + 500
const afterHours = () => openTabUpkeep(gateway, Date.now() + 4_000_000, { partMs: 0 })
let tab: ReturnType<typeof openTab>

beforeEach(async () => {
  await gateway.database`delete from tabs.tab`
  tab = openTab(gateway, await gateway.buyer(5_000_000n))
  await tab.buy(shop)
})

/** Copies the open tab for other payers. Nothing was bought on the copies, so each one ends unpaid. */
async function copyTab(copies: number): Promise<void> {
  await gateway.database`
    insert into tabs.tab select (jsonb_populate_record(t, jsonb_build_object(
      'payer', '\\x' || left(md5(n::text) || md5(n::text), 40), 'id', '\\x' || md5(n::text), 'charged', '{}'::bigint[]))).*
    from tabs.tab t, generate_series(1, ${copies}::integer) n`
}

async function countTabs(): Promise<{ open: number; untaken: number }> {
  const [row] = await gateway.database<[{ open: number; untaken: number }]>`
    select count(*) filter (where closed_at is null)::integer as open,
      count(*) filter (where taken_at is null)::integer as untaken from tabs.tab`
  return row
}

test('behavior: closes at most 1,000 tabs per statement, and as many per step as its time limit allows', async () => {
  await copyTab(count - 1)
  const sql = gateway.database
  await sql.unsafe(`
    create function refuse_many() returns trigger language plpgsql as $$ begin
      if (select count(*) from changed) > ${closedAtOnce} then raise exception 'too many at once'; end if;
      return null; end $$;
    create trigger refuse_many after update on tabs.tab referencing new table as changed
      for each statement execute function refuse_many()`)
  try {
    expect(await afterHours().closeAndTake()).toBe('busy')
    expect((await countTabs()).open).toBe(count - closedAtOnce)
    for (let n = 0; n < 2; n++) await afterHours().closeAndTake()
    expect((await countTabs()).open).toBe(0)
  } finally {
    await sql`drop function refuse_many cascade`
  }
})

test('behavior: a step imports closed tabs until its time limit, and the next step follows immediately', async () => {
  await copyTab(149)
  const upkeep = afterHours()
  expect(await upkeep.closeAndTake()).toBe('busy')
  expect(await countTabs()).toEqual({ open: 0, untaken: 50 })
  expect(await upkeep.closeAndTake()).toBe('idle')
  expect(await countTabs()).toEqual({ open: 0, untaken: 0 })
})

test('behavior: a step searches for credits until its time limit, and the next step continues where this step stopped', async () => {
  await copyTab(600)
  await gateway.database`
    update tabs.tab set closed_at = now(), close_reason = 'idle', taken_at = now(), awaits_end = charged = '{}'`
  const upkeep = afterHours()
  expect(await upkeep.closeAndTake()).toBe('busy')
  expect(await upkeep.closeAndTake()).toBe('idle')
})

test.each([
  ['the row of tabs.mark can’t be updated', 'tabs.mark', 'true'],
  ['tabs can’t be closed', 'tabs.tab', 'old.closed_at is null and new.closed_at is not null'],
])('error: imports closed tabs even if %s', async (_what, table, when) => {
  await afterHours().closeAndTake()
  await copyTab(1)
  await gateway.database`
    update tabs.tab set closed_at = now(), close_reason = 'buyer', taken_at = null where id = ${Buffer.from(tab.tabId.slice(4), 'hex')}`
  const allow = await refuseWrites(gateway.database, table, 'update', when)
  await gateway.database`update tabs.tab set closed_at = null, close_reason = null, taken_at = null where charged = '{}'`
  await expect(afterHours().closeAndTake()).rejects.toThrow('refused for a test')
  expect((await tab.read()).body).toMatchObject({ closeReason: 'buyer', isTaken: true })
  await allow()
})
