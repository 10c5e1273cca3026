import type { Address, Hex } from 'viem'
import type { TabSale } from '../acceptance/takeTabs.ts'
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

/** A line of a tab that the ledger doesn't have yet. */
export type OpenLine = {
  split: bigint
  /** Whom its fees are paid to. */
  platform: Address
  /** USDC base units, on this line. */
  charged: bigint
  /** USDC base units, on all lines of its tab. */
  tabCharged: bigint
  /** How many requests are charged on it. */
  requests: number
  /** When the first of them was bought; null: none is charged. */
  firstAt: Date | null
  /** When its tab was opened. */
  openedAt: Date
  /** Unix seconds: when its tab runs out. */
  expiresAt: number
}

/** A request without what its buyer signed. */
export type SoldRequest = Omit<TabRequest, 'signature'>

type SoldQuestion = {
  providerId: string
  endpointId?: string | undefined
  /** The number of a request. */
  after: number
  limit: number
}

export type TabReads = ReturnType<typeof createTabReads>

/** Reads tabs by the payments as which they settle, and by the wallets that they pay, for views. */
export function createTabReads({ all: sql, of }: TabDatabase) {
  return {
    /** The tab that settles, or would have settled, as a payment. */
    async readByPayment(paymentId: string): Promise<StoredTab | undefined> {
      const [row] = await sql<TabRow[]>`
        select ${tabColumns(sql)} from tabs.tab t where t.payment_id = ${paymentId}`
      return row && toStoredTab(row)
    },

    /** The requests on a tab that a provider sold, in their order, after a number. */
    async readRequests(
      { payer, tabId }: TabKey,
      { providerId, endpointId, after, limit }: SoldQuestion,
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

    /** What is charged on a tab so far, by line, endpoint and hour. */
    async readSales(tab: StoredTab): Promise<TabSale[]> {
      return readTabSales(await of(tab.payer), tab)
    },

    /** Whether a provider has a charged request on a tab. */
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
     * Returns the lines with charges, of tabs that are open or not taken into the ledger yet. It reads all open tabs of the network and
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
