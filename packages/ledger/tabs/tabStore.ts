import { createCache } from '@tollkeeper/runtime/cache'
import { failedDependency, isRowFault } from '@tollkeeper/runtime/dependencies'
import { createGroupCommit, type GroupCommit } from '@tollkeeper/runtime/groupCommit'
import type { TabVerdict as RuleVerdict } from '@tollkeeper/sdk/protocol/tabRule'
import type { Address, Hex } from 'viem'
import { compositeArray } from '../store/compositeArray.ts'
import type { Database } from '../store/database.ts'
import { createDatabaseClock, type DatabaseClock } from '../store/databaseClock.ts'
import { createOpenTabLimit } from './openTabLimit.ts'
import { type TabDatabase, toBytes, toHex } from './tabDatabase.ts'

// Stores open tabs and each request that was bought on them. Each request is one durable write, which is grouped with others.

/** The key of a tab. A client chooses the id, so it is unique only together with the payer. */
export type TabKey = { payer: Address; tabId: string }

/** The constant fields of a tab. */
export type TabHead = TabKey & {
  chainId: number
  token: Address
  contract: Address
  platform: Address
  rewardShare: number
  nonce: Hex
  /** Unix seconds, as signed. */
  expiresAt: number
  /** Id of the payment that it becomes in the ledger. */
  paymentId: string
}

/** The total reserved for a tab, in USDC base units. */
export type Reservation = {
  reserved: bigint
  /** The part of it that is lent from the common budget, beyond the payer's earned credit. */
  lent: bigint
  /** Maximum that its payer may owe on tabs; null if unlimited. */
  credit: bigint | null
}

/** A request on a tab that passed all checks except those that need the tab's row. `paymentId` is used if it opens the tab. */
export type TabCandidate = TabHead & {
  hasCode: boolean
  /** The total reserved for the tab, if that is new. */
  reservation: Reservation | null
  sequence: number
  /** Signed amount of each line. */
  amounts: readonly bigint[]
  signature: Hex
  /** Equal for equal requests: 16 bytes. */
  requestHash: Hex
  /** The charged line. */
  position: number
  price: bigint
  providerId: string
  endpointId: string
  /**
   * Number of lines whose splits are already stored. This state's signature was verified with the stored splits.
   */
  known: number
  /** Splits of the new lines, which start at position `known`. */
  splits: readonly bigint[]
}

/** A verdict of the protocol's rule. `late`: the request's deadline passed before it could be stored, and nothing is charged. */
export type TabVerdict =
  | ({ verdict: 'accepted' | 'repeated' } & AcceptedOnTab)
  | { verdict: Exclude<RuleVerdict, 'accepted' | 'repeated'> | 'late' }

export type AcceptedOnTab = {
  paymentId: string
  /** Total charged on the line, including this request. */
  lineTotal: bigint
  /** Total by which earlier charges on the line are below their prices; null if none is. */
  lineReduced: bigint | null
  /** Unix milliseconds. */
  acceptedAt: number
  /** Number of the tab's lines. */
  known: number
  requests: number
  /** Total charged on all lines; null for a repeated request. */
  charged: bigint | null
  /** The credit with which the line started, if this request added it. */
  credit: bigint | null
  /** Maximum that the tab's payer may owe on all tabs; null if unlimited or for a repeated request. */
  payerCredit: bigint | null
}

/** The current state of a tab. Amounts are in USDC base units, one per line. */
export type StoredTab = TabHead & {
  openedAt: Date
  usedAt: Date
  reserved: bigint
  requests: number
  sequence: number
  /** Number of lines in the newest state, which may lack later lines that an older state added. */
  signedLines: number
  lines: { split: bigint; signed: bigint; charged: bigint; credit: bigint }[]
  closedAt: Date | null
  closeReason: string | null
  takenAt: Date | null
}

/** An accepted request on a tab. */
export type TabRequest = TabKey & {
  sequence: number
  providerId: string
  endpointId: string
  split: bigint
  /** USDC base units. */
  price: bigint
  /** The price, or less. */
  charged: bigint
  /** Total charged on its line, including this request at its price. */
  lineTotal: bigint
  /** Total by which earlier charges on the line are below their prices; null if none is. */
  lineReduced: bigint | null
  acceptedAt: Date
  /** The buyer's signature of the request's state. */
  signature: Hex
}

/** The result of changing a charge. `over`: the new charge would exceed the price or the signed amount. */
export type Charged = 'charged' | 'closed' | 'over'

export type TabStore = ReturnType<typeof createTabStore>

/** A state that buys nothing, by which a buyer signs exactly the charges. */
export type LastState = { sequence: number; amounts: readonly bigint[]; signature: Hex }

// Requests are grouped like payments: see acceptance.ts.
const maxGroup = 64
const groupsInFlight = 2
const maxWaiting = 2_000
const beside = { items: 16, afterMs: 10 }
const maxTabs = 100_000

export function createTabStore(database: TabDatabase) {
  const servers = new Map<Database, { group: GroupCommit<Asked, TabVerdict>; clock: DatabaseClock }>()
  const splits = createCache<string, readonly bigint[]>({
    load: (key) => readSplits(...(key.split(':') as [Address, string])),
    // Lines are only added, so entries never become stale.
    ttlMs: Number.POSITIVE_INFINITY,
    max: maxTabs,
    now: () => performance.now(),
  })

  function serverOf(sql: Database) {
    const known = servers.get(sql)
    if (known) return known
    const group = createGroupCommit<Asked, TabVerdict>({
      commit: (asked) => acceptOnTabs(sql, asked),
      maxItems: maxGroup,
      concurrency: groupsInFlight,
      beside,
      maxWaiting,
      callerOf: ({ candidate }) => candidate.providerId,
      isItemFault: isRowFault,
    })
    const server = { group, clock: createDatabaseClock(sql) }
    servers.set(sql, server)
    return server
  }

  async function readSplits(payer: Address, tabId: string): Promise<readonly bigint[]> {
    const sql = await database.of(payer)
    const rows = await sql<{ split: Uint8Array }[]>`
      select split from tabs.line where payer = ${toBytes(payer)} and tab_id = ${tabBytes(tabId)} order by position`
    return rows.map(({ split }) => BigInt(toHex(split)))
  }

  /** @param deadlineMs time until which the caller waits, by `performance.now()`. After that, the request is not accepted. */
  async function accept(candidate: TabCandidate, deadlineMs?: number): Promise<TabVerdict> {
    const { group, clock } = serverOf(await database.of(candidate.payer))
    const deadline = deadlineMs === undefined ? null : await clock.at(deadlineMs)
    try {
      return remember(candidate, await group.submit({ candidate, deadline }))
    } catch (error) {
      // The database's answer was lost, perhaps after the commit. If the first attempt succeeded, the second attempt finds the request's row.
      if (failedDependency(error) !== 'database') throw error
      return remember(candidate, await group.submit({ candidate, deadline }))
    }
  }

  /** Caches the lines that a request added, so that they don't have to be read. */
  function remember({ payer, tabId, known, splits: added }: TabCandidate, verdict: TabVerdict): TabVerdict {
    const key = `${payer}:${tabId}`
    if (verdict.verdict !== 'accepted' || added.length === 0 || !splits.has(key)) return verdict
    splits.refresh(key, 0, async () => {
      const before = await splits.get(key)
      const all = [...before.slice(0, known), ...added]
      return before.length >= known && all.length > before.length ? all : before
    })
    return verdict
  }

  return {
    accept,
    requireRoom: createOpenTabLimit(database),
    /** Returns the splits of a tab's lines in order; empty for a tab that isn't stored. Uses the cache if that has `atLeast` lines. */
    async readSplits({ payer, tabId }: TabKey, atLeast: number): Promise<readonly bigint[]> {
      const key = `${payer}:${tabId}`
      const isRead = splits.has(key)
      const known = await splits.get(key)
      return known.length >= atLeast && (known.length > 0 || !isRead) ? known : splits.refresh(key, 0)
    },
    async read({ payer, tabId }: TabKey): Promise<StoredTab | undefined> {
      const sql = await database.of(payer)
      const [row] = await sql<TabRow[]>`
        select ${tabColumns(sql)} from tabs.tab t where t.payer = ${toBytes(payer)} and t.id = ${tabBytes(tabId)}`
      return row && toStoredTab(row)
    },
    async readRequest({ payer, tabId }: TabKey, sequence: number): Promise<TabRequest | undefined> {
      const sql = await database.of(payer)
      const [row] = await sql<(Omit<TabRequest, 'split' | keyof TabKey | 'sequence'> & { split: Hex })[]>`
        select ${requestColumns(sql)}, '0x' || encode(r.signature, 'hex') as signature
        from tabs.request r
        join tabs.item i on i.payer = r.payer and i.tab_id = r.tab_id and i.number = r.item
        join tabs.line l on l.payer = r.payer and l.tab_id = r.tab_id and l.position = i.position
        where r.payer = ${toBytes(payer)} and r.tab_id = ${tabBytes(tabId)} and r.sequence = ${sequence}`
      return row && { payer, tabId, sequence, ...row, split: BigInt(row.split) }
    },
    /** Reduces a request's charge, or raises it again up to its price. */
    async charge(
      { payer, tabId, sequence }: TabKey & Pick<TabRequest, 'sequence'>,
      amount: bigint,
    ): Promise<Charged> {
      const sql = await database.of(payer)
      const [row] = await sql<[{ charged: Charged }]>`
        select tabs.charge(${toBytes(payer)}, ${tabBytes(tabId)}, ${sequence}, ${amount}) as charged`
      return row.charged
    },
    /**
     * Closes a tab, with its buyer's last state if there is one. That state's signature must have been verified. @returns whether this call
     * closed the tab.
     */
    async close({ payer, tabId }: TabKey, reason: string, last?: LastState): Promise<boolean> {
      const sql = await database.of(payer)
      const state = last
        ? sql`sequence = ${last.sequence}, signed = ${toArray(last.amounts)}::bigint[], last_signature = ${toBytes(last.signature)},`
        : sql``
      const covers = last
        ? sql`and sequence < ${last.sequence} and not exists (
            select from unnest(charged, ${toArray(last.amounts)}::bigint[]) as line (charged, signed)
            where coalesce(charged, 0) > coalesce(signed, 0)
          )`
        : sql``
      const closed = await sql`
        update tabs.tab set ${state} closed_at = now(), close_reason = ${reason}
        where payer = ${toBytes(payer)} and id = ${tabBytes(tabId)} and closed_at is null ${covers}
        returning id`
      return closed.length > 0
    },
  }
}

/** `deadline`: in Unix milliseconds of the server's clock; null for none. */
type Asked = { candidate: TabCandidate; deadline: number | null }

/** Calls `tabs.accept`, and returns its verdicts in order. */
async function acceptOnTabs(sql: Database, asked: Asked[]): Promise<TabVerdict[]> {
  // All code locks tabs in this order.
  const order = asked
    .map((one, index) => ({ ...one, index, key: `${one.candidate.payer}${one.candidate.tabId}` }))
    .toSorted((a, b) =>
      a.key < b.key ? -1 : a.key > b.key ? 1 : a.candidate.sequence - b.candidate.sequence,
    )
  const rows = await sql<TabVerdict[]>`
    select verdict, payment_id as "paymentId", line_total as "lineTotal", line_reduced as "lineReduced", accepted_at as "acceptedAt", known, requests, charged, credit,
      payer_credit as "payerCredit"
    from tabs.accept(${compositeArray(order.map(({ candidate }) => toFields(candidate)))}::text::tabs.candidate[],
      ${order.map(({ deadline }) => deadline)}::float8[])`
  const verdicts: TabVerdict[] = new Array(asked.length)
  rows.forEach((row, at) => {
    verdicts[order[at]?.index as number] = row
  })
  return verdicts
}

/** Returns the fields in the order of the type `tabs.candidate`. */
function toFields(candidate: TabCandidate) {
  return [
    bytea(candidate.payer),
    bytea(tabHex(candidate.tabId)),
    candidate.chainId,
    bytea(candidate.token),
    bytea(candidate.contract),
    bytea(candidate.platform),
    candidate.rewardShare,
    bytea(candidate.nonce),
    candidate.expiresAt,
    candidate.hasCode,
    candidate.paymentId,
    candidate.reservation?.reserved ?? null,
    candidate.reservation?.lent ?? null,
    candidate.reservation?.credit ?? null,
    candidate.sequence,
    toArray(candidate.amounts),
    bytea(candidate.signature),
    bytea(candidate.requestHash),
    candidate.position,
    candidate.price,
    candidate.providerId,
    candidate.endpointId,
    `{${candidate.splits.map((split) => `"\\\\x${split.toString(16).padStart(64, '0')}"`).join()}}`,
    candidate.known,
  ]
}

function bytea(hex: Hex): string {
  return `\\x${hex.slice(2)}`
}

function toArray(amounts: readonly bigint[]): string {
  return `{${amounts.join()}}`
}

function tabHex(tabId: string): Hex {
  return `0x${tabId.slice('tab_'.length)}`
}

export function tabBytes(tabId: string): Buffer {
  return toBytes(tabHex(tabId))
}

export type TabRow = Omit<StoredTab, 'lines'> & {
  signed: bigint[]
  charged: bigint[]
  splits: Hex[] | null
  credits: bigint[] | null
}

/** Returns the columns of {@link TabRequest}, without its key, for the request `r`, its item `i` and its line `l`. */
export function requestColumns(sql: Database) {
  return sql`i.provider_id as "providerId", i.endpoint_id as "endpointId",
    '0x' || encode(l.split, 'hex') as split, r.price, coalesce(r.charged, r.price) as charged,
    r.line_total as "lineTotal", r.line_reduced as "lineReduced", r.accepted_at as "acceptedAt"`
}

/** Returns the columns of {@link TabRow} for the tab `t`. */
export function tabColumns(sql: Database) {
  return sql`'0x' || encode(t.payer, 'hex') as payer, 'tab_' || encode(t.id, 'hex') as "tabId", t.chain_id as "chainId",
    '0x' || encode(t.token, 'hex') as token, '0x' || encode(t.contract, 'hex') as contract,
    '0x' || encode(t.platform, 'hex') as platform, t.reward_share as "rewardShare",
    '0x' || encode(t.nonce, 'hex') as nonce, t.expires_at::float8 as "expiresAt",
    t.payment_id as "paymentId", t.opened_at as "openedAt", t.used_at as "usedAt", t.reserved, t.requests,
    t.sequence::float8 as sequence, coalesce(t.signed, t.charged) as signed, cardinality(coalesce(t.signed, t.charged)) as "signedLines", t.charged, t.closed_at as "closedAt", t.close_reason as "closeReason",
    t.taken_at as "takenAt",
    (select array_agg('0x' || encode(l.split, 'hex') order by l.position) from tabs.line l where l.payer = t.payer and l.tab_id = t.id) as splits,
    (select array_agg(l.credit order by l.position) from tabs.line l where l.payer = t.payer and l.tab_id = t.id) as credits`
}

export function toStoredTab<Row extends TabRow>({ signed, charged, splits, credits, ...tab }: Row) {
  return {
    ...tab,
    lines: charged.map((amount, index) => ({
      split: BigInt(splits?.[index] as Hex),
      signed: BigInt(signed[index] ?? 0n),
      charged: BigInt(amount),
      credit: BigInt(credits?.[index] ?? 0n),
    })),
  }
}
