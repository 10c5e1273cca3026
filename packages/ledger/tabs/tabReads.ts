import type { Address, Hex } from 'viem'
import type { TabSale } from '../acceptance/takeTabs.ts'
import type { ClosingTab } from './closeTabs.ts'
import { readTabSales } from './tabCharges.ts'
import { type TabDatabase, toBytes } from './tabDatabase.ts'
import {
  requestColumns,
  type StoredTab,
  type TabKey,
  type TabRequest,
  type TabRow,
  tabBytes,
  tabColumns,
  toStoredTab,
} from './tabStore.ts'

/** A line of a tab that the ledger hasn't imported yet. */
export type OpenLine = {
  split: bigint
  /** The recipient of its fees. */
  platform: Address
  /** USDC base units, on this line. */
  charged: bigint
  /** USDC base units, on all lines of its tab. */
  tabCharged: bigint
  /** Number of charged requests. */
  requests: number
  /** Time of the first charged request; null if none is charged. */
  firstAt: Date | null
  /** When its tab was opened. */
  openedAt: Date
  /** When its tab expires, in Unix seconds. */
  expiresAt: number
}

/** A provider's sales on a tab that the ledger hasn't imported yet, for one endpoint and line. */
export type CurrentItem = {
  endpointId: string
  position: number
  split: bigint
  /** Number of charged requests. */
  requests: number
  /** Total of their charges in USDC base units. */
  charged: bigint
  lastAt: Date
  /** USDC base units that the newest state signs on its line. */
  signed: bigint
  /** True if another provider sells on the same line as well, because both have the same wallet. */
  isShared: boolean
}

/** A tab that the ledger hasn't imported yet, as one of its providers sees it. */
export type CurrentTab = TabKey &
  Omit<ClosingTab, 'charged'> & {
    paymentId: string
    /** USDC base units on all lines of all providers. Used only by the rules that close the tab. */
    charged: bigint
    closedAt: Date | null
    closeReason: string | null
    /** The provider's items. */
    items: CurrentItem[]
  }

/** A position in a list of tabs, the newest first. */
export type CurrentPosition = { openedAt: Date; payer: Address; tabId: string }

type CurrentOptions = {
  providerId: string
  chainId?: number | undefined
  payer?: Address | undefined
  /** Only this tab. */
  tab?: TabKey | undefined
  after: CurrentPosition | null
  limit: number
}

/** A request without its buyer's signature. */
export type SoldRequest = Omit<TabRequest, 'signature'>

type SoldOptions = {
  providerId: string
  endpointId?: string | undefined
  /** Only requests with a higher number than this are returned. */
  after: number
  limit: number
}

export type TabReads = ReturnType<typeof createTabReads>

/** Creates the functions with which views read tabs: by the payment that a tab becomes, or by the provider or network that it concerns. */
export function createTabReads({ all: sql, of }: TabDatabase) {
  return {
    /** Reads the tab that becomes, or would have become, a payment. */
    async readByPayment(paymentId: string): Promise<StoredTab | undefined> {
      const [row] = await sql<TabRow[]>`
        select ${tabColumns(sql)} from tabs.tab t where t.payment_id = ${paymentId}`
      return row && toStoredTab(row)
    },

    /** Reads a provider's requests on a tab, in order, after a given number. */
    async readRequests(
      { payer, tabId }: TabKey,
      { providerId, endpointId, after, limit }: SoldOptions,
    ): Promise<SoldRequest[]> {
      const own = await of(payer)
      const rows = await own<(Omit<SoldRequest, 'split' | keyof TabKey> & { split: Hex })[]>`
        select r.sequence::float8 as sequence, ${requestColumns(own)}
        from tabs.request r
        join tabs.item i on i.payer = r.payer and i.tab_id = r.tab_id and i.number = r.item
        join tabs.line l on l.payer = r.payer and l.tab_id = r.tab_id and l.position = i.position
        where r.payer = ${toBytes(payer)} and r.tab_id = ${tabBytes(tabId)} and r.sequence > ${after}
          and i.provider_id = ${providerId} ${endpointId === undefined ? own`` : own`and i.endpoint_id = ${endpointId}`}
        order by r.sequence limit ${limit}`
      return rows.map((row) => ({ payer, tabId, ...row, split: BigInt(row.split) }))
    },

    /** Reads the charges on a tab so far, by line, endpoint and hour. */
    async readSales(tab: StoredTab): Promise<TabSale[]> {
      return readTabSales(await of(tab.payer), tab)
    },

    /** Returns whether a provider has a charged request on a tab. */
    async isSeller({ payer, tabId }: TabKey, providerId: string): Promise<boolean> {
      const own = await of(payer)
      const [row] = await own<[{ isSeller: boolean }]>`
        select exists (
          select from tabs.item i
          join tabs.request r on r.payer = i.payer and r.tab_id = i.tab_id and r.item = i.number
          where i.payer = ${toBytes(payer)} and i.tab_id = ${tabBytes(tabId)} and i.provider_id = ${providerId}
            and coalesce(r.charged, r.price) > 0
        ) as "isSeller"`
      return row.isSeller
    },

    /**
     * Finds the tabs that the ledger hasn't imported yet and on which a provider sold something, the newest first. It reads only rows of
     * the provider's own tabs, and no requests.
     */
    async findCurrent({
      providerId,
      chainId,
      payer,
      tab,
      after,
      limit,
    }: CurrentOptions): Promise<CurrentTab[]> {
      const rows = await sql<CurrentRow[]>`
        with found as materialized (
          select i.opened_at, i.payer, i.tab_id from tabs.item i
          join tabs.tab t on t.payer = i.payer and t.id = i.tab_id
          where i.provider_id = ${providerId} and not i.is_taken and t.taken_at is null
            ${chainId === undefined ? sql`` : sql`and t.chain_id = ${chainId}`}
            ${payer === undefined ? sql`` : sql`and i.payer = ${toBytes(payer)}`}
            ${tab === undefined ? sql`` : sql`and i.payer = ${toBytes(tab.payer)} and i.tab_id = ${tabBytes(tab.tabId)}`}
            ${
              after === null
                ? sql``
                : sql`and (i.opened_at, i.payer, i.tab_id) < (${after.openedAt}, ${toBytes(after.payer)}, ${tabBytes(after.tabId)})`
            }
          group by i.opened_at, i.payer, i.tab_id
          having sum(t.bought[3 * i.number + 1]) > 0
          order by i.opened_at desc, i.payer desc, i.tab_id desc limit ${limit}
        )
        select t.opened_at as "openedAt", '0x' || encode(t.payer, 'hex') as payer, 'tab_' || encode(t.id, 'hex') as "tabId",
          t.payment_id as "paymentId", t.chain_id as "chainId", t.used_at as "usedAt", t.expires_at::float8 as "expiresAt",
          t.requests as "tabRequests", cardinality(t.charged) as lines, t.reserved, t.lent, t.credit, t.closed_at as "closedAt",
          t.close_reason as "closeReason", i.position, i.endpoint_id as "endpointId",
          (select coalesce(sum(greatest(one, 0)), 0)::bigint from unnest(t.charged) one) as "tabCharged",
          (t.bought[3 * i.number + 1])::int as requests, t.bought[3 * i.number + 2] as charged,
          to_timestamp(t.bought[3 * i.number + 3] / 1000.0) as "lastAt",
          coalesce((coalesce(t.signed, t.charged))[i.position + 1], 0) as signed, '0x' || encode(l.split, 'hex') as split,
          exists (
            select from tabs.item other where other.payer = i.payer and other.tab_id = i.tab_id and other.position = i.position
              and other.provider_id <> i.provider_id
          ) as "isShared"
        from found
        join tabs.tab t on t.payer = found.payer and t.id = found.tab_id
        join tabs.item i on i.payer = found.payer and i.tab_id = found.tab_id and i.provider_id = ${providerId}
        join tabs.line l on l.payer = i.payer and l.tab_id = i.tab_id and l.position = i.position
        order by found.opened_at desc, found.payer desc, found.tab_id desc, i.number`
      const byTab = Map.groupBy(rows, ({ payer, tabId }) => `${payer} ${tabId}`)
      return [...byTab.values()].map(toCurrentTab)
    },

    /**
     * Returns the lines with charges, of tabs that are open or not imported into the ledger yet. It reads all open tabs of the network and
     * counts their requests, so its callers must share answers.
     */
    async readOpenLines({ chainId, token }: { chainId: number; token: Address }): Promise<OpenLine[]> {
      const rows = await sql<(Omit<OpenLine, 'split'> & { split: Hex })[]>`
        select '0x' || encode(l.split, 'hex') as split, '0x' || encode(t.platform, 'hex') as platform,
          t.charged[l.position + 1] as charged,
          (select coalesce(sum(greatest(one, 0)), 0)::bigint from unnest(t.charged) one) as "tabCharged",
          bought.requests, bought.first_at as "firstAt", t.opened_at as "openedAt", t.expires_at::float8 as "expiresAt"
        from tabs.tab t
        join tabs.line l on l.payer = t.payer and l.tab_id = t.id
        cross join lateral (
          select count(*)::int as requests, min(r.accepted_at) as first_at
          from tabs.item i
          join tabs.request r on r.payer = i.payer and r.tab_id = i.tab_id and r.item = i.number
          where i.payer = t.payer and i.tab_id = t.id and i.position = l.position and coalesce(r.charged, r.price) > 0
        ) bought
        where (t.closed_at is null or (t.closed_at is not null and t.taken_at is null))
          and t.chain_id = ${chainId} and t.token = ${toBytes(token)} and t.charged[l.position + 1] > 0`
      return rows.map((row) => ({ ...row, split: BigInt(row.split) }))
    },
  }
}

type CurrentRow = Omit<CurrentTab, 'items' | 'requests' | 'charged'> &
  Omit<CurrentItem, 'split'> & { split: Hex; tabRequests: number; tabCharged: bigint }

function toCurrentTab(rows: CurrentRow[]): CurrentTab {
  const [{ tabRequests, tabCharged, ...tab }] = rows as [CurrentRow]
  return {
    payer: tab.payer,
    tabId: tab.tabId,
    paymentId: tab.paymentId,
    chainId: tab.chainId,
    openedAt: tab.openedAt,
    usedAt: tab.usedAt,
    expiresAt: tab.expiresAt,
    requests: tabRequests,
    charged: tabCharged,
    lines: tab.lines,
    reserved: tab.reserved,
    lent: tab.lent,
    credit: tab.credit,
    closedAt: tab.closedAt,
    closeReason: tab.closeReason,
    items: rows.map(({ endpointId, position, split, requests, charged, lastAt, signed, isShared }) => ({
      endpointId,
      position,
      split: BigInt(split),
      requests,
      charged,
      lastAt,
      signed,
      isShared,
    })),
  }
}
