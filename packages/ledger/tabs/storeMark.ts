import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Database } from '../store/database.ts'
import type { TabDatabase } from './tabDatabase.ts'

// The ledger has the tabs' credit, and only the tab store has the purchases. If a backup is restored without the tab store, or if the two
// are from different times, upkeep would release the credit as unused, and the purchases would be lost silently. So processes refuse to
// start in that case.

/** A tab with reserved credit in the ledger that is missing in the tab store. */
export type LostTab = {
  payer: string
  tabId: string
  chainId: number
  /** USDC base units; at least the amount that was charged on it. */
  reserved: bigint
}

/** The tab store is older than the ledger, or it is a different tab store, so tabs are missing. */
export class TabStoreBehind extends Error {
  override readonly name = 'TabStoreBehind'
  readonly code = 'tab_store_behind'
  /** Description of the fault. */
  readonly found: string
  /** Advice on how to correct it. */
  readonly advice =
    'Restore the schema `tabs` from the same backup as the schema `tollkeeper` (docs/deployment.md). Without such a backup, ' +
    `the purchases on these tabs are lost: ${ownCommand} tabs lists them, and ${ownCommand} tabs --accept-loss lets the processes start`

  constructor(lost: readonly LostTab[]) {
    const total = lost.reduce((sum, { reserved }) => sum + reserved, 0n)
    const tabs = lost.length === 1 ? '1 tab' : `${lost.length} tabs`
    super()
    this.found = `the ledger has reserved ${formatUsdc(total)} USDC for ${tabs} that are missing in the tab store`
    this.message = `${this.found} (${this.code}). ${this.advice}`
  }
}

type Stores = { sql: Database; tabs: TabDatabase }

/**
 * Checks the tab store at the start of the api and the keeper, before any upkeep.
 *
 * @throws {TabStoreBehind}
 */
export async function requireTabStore(stores: Stores): Promise<void> {
  const lost = await findLostTabs(stores)
  if (lost.length > 0) throw new TabStoreBehind(lost)
  await raiseMark(stores)
}

/**
 * Increases the mark by which {@link findLostTabs} detects whether both stores are from the same time. This also detects a tab store that
 * went back in time while this process ran, for example by a failover to a lagging replica.
 *
 * @throws {TabStoreBehind} without changing the mark, so that later calls also throw until the loss is accepted.
 */
export async function raiseMark(stores: Stores): Promise<void> {
  const { sql, tabs } = stores
  // Read this first: the store's mark is always increased before the ledger's, so the store's mark that is read later is at least as high.
  const ledgerMark = await readLedgerMark(sql)
  let number = await raiseStoreMark(tabs, ledgerMark)
  if (number === undefined) {
    const lost = await findLostTabs(stores)
    if (lost.length > 0) throw new TabStoreBehind(lost)
    // No tab is missing, so both stores continue from the ledger's mark.
    await acceptLoss(stores)
    number = await raiseStoreMark(tabs, ledgerMark)
    if (number === undefined) return
  }
  await sql`
    insert into tab_store_mark as m (number) values (${number})
    on conflict (is_only) do update set number = greatest(m.number, excluded.number)`
}

/** Increases the store's mark. @returns undefined if it is below the ledger's. */
async function raiseStoreMark({ all }: TabDatabase, ledgerMark: bigint): Promise<bigint | undefined> {
  const raised =
    ledgerMark === 0n
      ? all<{ number: bigint }[]>`
          insert into tabs.mark as m (number) values (1) on conflict (is_only) do update set number = m.number + 1
          returning number`
      : all<{ number: bigint }[]>`
          update tabs.mark set number = number + 1 where number >= ${ledgerMark}::bigint returning number`
  const [row] = await raised
  return row?.number
}

/**
 * Finds the tabs that are missing in the tab store. If the store is as new as the ledger, no tab is missing: credit is reserved before a tab is
 * stored, so a reservation without a stored tab belongs to a tab that was never opened.
 */
export async function findLostTabs({ sql, tabs }: Stores): Promise<LostTab[]> {
  // The doctor may run before a process has created the tab store again.
  const [{ isMade }] = await tabs.all<
    [{ isMade: boolean }]
  >`select to_regclass('tabs.mark') is not null as "isMade"`
  const [ledgerMark, storeMark] = [await readLedgerMark(sql), isMade ? await readStoreMark(tabs) : 0n]
  if (storeMark > 0n && storeMark >= ledgerMark) return []
  const lost: LostTab[] = []
  let after = ''
  for (;;) {
    const reserved = await sql<LostTab[]>`
      select payer, tab_id as "tabId", chain_id as "chainId", reserved from tab_reservation
      where tab_id || payer > ${after} order by tab_id || payer limit ${reservationsAtOnce}`
    const last = reserved.at(-1)
    if (last === undefined) return lost
    after = last.tabId + last.payer
    const ids = reserved.map(({ tabId }) => tabId)
    const stored = isMade ? await readStored(tabs, ids) : []
    const known = new Set(stored.map(({ payer, tabId }) => `${payer} ${tabId}`))
    lost.push(...reserved.filter(({ payer, tabId }) => !known.has(`${payer} ${tabId}`)))
  }
}

/** Allows processes to start although tabs are missing. Upkeep then releases their credit. */
export async function acceptLoss({ sql, tabs }: Stores): Promise<void> {
  const ledgerMark = await readLedgerMark(sql)
  await tabs.all`
    insert into tabs.mark as m (number) values (greatest(${ledgerMark}::bigint, 1))
    on conflict (is_only) do update set number = greatest(m.number, excluded.number)`
}

function readStored({ all: sql }: TabDatabase, ids: readonly string[]) {
  return sql<Pick<LostTab, 'payer' | 'tabId'>[]>`
    select '0x' || encode(payer, 'hex') as payer, 'tab_' || encode(id, 'hex') as "tabId" from tabs.tab
    where id = any(select decode(substr(one, 5), 'hex') from unnest(${ids}::text[]) one)`
}

const reservationsAtOnce = 1_000

async function readLedgerMark(sql: Database): Promise<bigint> {
  const [row] = await sql<{ number: bigint }[]>`select number from tab_store_mark`
  return row?.number ?? 0n
}

async function readStoreMark(tabs: TabDatabase): Promise<bigint> {
  const [row] = await tabs.all<{ number: bigint }[]>`select number from tabs.mark`
  return row?.number ?? 0n
}
