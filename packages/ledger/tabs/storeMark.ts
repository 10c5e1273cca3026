import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Database } from '../store/database.ts'
import type { TabDatabase } from './tabDatabase.ts'

// The ledger knows which tabs have credit, and only the tab store knows what was bought on them. If a backup without the tab store is
// restored, or the two are of different times, upkeep would release that credit as never used, and the purchases would be lost
// without a word. So a process refuses to start then.

/** A tab to which the ledger reserved credit, and which the tab store doesn't know. */
export type LostTab = {
  payer: string
  tabId: string
  chainId: number
  /** USDC base units; at least what was charged on it. */
  reserved: bigint
}

/** The tab store is older than the ledger, or another one, so tabs are missing. */
export class TabStoreBehind extends Error {
  override readonly name = 'TabStoreBehind'
  readonly code = 'tab_store_behind'
  /** What is wrong. */
  readonly found: string
  /** What to do about it. */
  readonly advice =
    'Restore the schema tabs from the backup that the schema tollkeeper came from (docs/deployment.md). If there is none, ' +
    `what was bought on these tabs is lost: ${ownCommand} tabs lists them, and ${ownCommand} tabs --accept-loss lets the processes start`

  constructor(lost: readonly LostTab[]) {
    const total = lost.reduce((sum, { reserved }) => sum + reserved, 0n)
    const tabs = lost.length === 1 ? '1 tab' : `${lost.length} tabs`
    super()
    this.found = `the ledger has reserved ${formatUsdc(total)} USDC for ${tabs} that the tab store doesn't know`
    this.message = `${this.found} (${this.code}). ${this.advice}`
  }
}

type Stores = { sql: Database; tabs: TabDatabase }

/**
 * For the start of api and keeper, before any upkeep.
 *
 * @throws {TabStoreBehind}
 */
export async function requireTabStore(stores: Stores): Promise<void> {
  const lost = await findLostTabs(stores)
  if (lost.length > 0) throw new TabStoreBehind(lost)
  await raiseMark(stores)
}

/**
 * Raises the number by which {@link findLostTabs} knows that both stores are of the same time. It also notices a tab store that went back
 * in time while this process ran, such as a failover to a replica that lagged behind.
 *
 * @throws {TabStoreBehind} and leaves the number as it is, so that each later call throws as well until the loss is accepted.
 */
export async function raiseMark(stores: Stores): Promise<void> {
  const { sql, tabs } = stores
  // Read first: the store's number is always raised before the ledger's, so it is at least this one.
  const ledgerMark = await readLedgerMark(sql)
  let number = await raiseStoreMark(tabs, ledgerMark)
  if (number === undefined) {
    const lost = await findLostTabs(stores)
    if (lost.length > 0) throw new TabStoreBehind(lost)
    // No tab is missing, so both stores count from the ledger's number on.
    await acceptLoss(stores)
    number = await raiseStoreMark(tabs, ledgerMark)
    if (number === undefined) return
  }
  await sql`
    insert into tab_store_mark as m (number) values (${number})
    on conflict (is_only) do update set number = greatest(m.number, excluded.number)`
}

/** Raises the store's number. @returns undefined if it is below the ledger's. */
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
 * The tabs that are missing in the tab store. It is empty while the store is as new as the ledger: a tab that isn't stored was never
 * opened then, since credit is reserved before a tab is stored.
 */
export async function findLostTabs({ sql, tabs }: Stores): Promise<LostTab[]> {
  // The doctor may look before a process has made the tab store again.
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

/** Lets processes start although tabs are missing. Upkeep releases their credit. */
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
