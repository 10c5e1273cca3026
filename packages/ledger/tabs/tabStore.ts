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

// Open tabs and what was bought on them, request by request. Each request is one durable write, in a group.

/** A payer's tab. Its id is chosen by a client, so it identifies nothing without the payer. */
export type TabKey = { payer: Address; tabId: string }

/** What stays the same of a tab. */
export type TabHead = TabKey & {
  chainId: number
  token: Address
  contract: Address
  platform: Address
  rewardShare: number
  nonce: Hex
  /** Unix seconds, as signed. */
  expiresAt: number
  /** Of the payment as which it will be taken into the ledger. */
  paymentId: string
}

/** What is reserved for a tab in all, USDC base units. */
export type Reservation = {
  reserved: bigint
  /** The part of it that is lent of the common budget, beyond what the payer has earned. */
  lent: bigint
  /** What its payer may owe on tabs; null: nothing limits it. */
  credit: bigint | null
}

/** A request on a tab that passed every check but those that need the tab's row. `paymentId`: if it opens the tab. */
export type TabCandidate = TabHead & {
  hasCode: boolean
  /** What the ledger has reserved for it in all, if that is new. */
  reservation: Reservation | null
  sequence: number
  /** The signed amount of each line. */
  amounts: readonly bigint[]
  signature: Hex
  /** Equal for equal requests: 16 bytes. */
  requestHash: Hex
  /** The charged line. */
  position: number
  price: bigint
  providerId: string
  endpointId: string
  /** The splits of the lines from `known` on. Earlier ones are stored, and were verified with this state. */
  known: number
  splits: readonly bigint[]
}

/** A verdict of the protocol's rule. `late`: the request's deadline passed before it could be stored, and nothing is charged. */
export type TabVerdict =
  | ({ verdict: 'accepted' | 'repeated' } & AcceptedOnTab)
  | { verdict: Exclude<RuleVerdict, 'accepted' | 'repeated'> | 'late' }

export type AcceptedOnTab = {
  paymentId: string
  /** Charged on the line up to and with this request. */
  lineTotal: bigint
  /** How far the charges of the line before it are below their prices; null: not at all. */
  lineReduced: bigint | null
  /** Unix milliseconds. */
  acceptedAt: number
  /** Number of the tab's lines. */
  known: number
  requests: number
  /** Charged on all lines; null for a repeated request. */
  charged: bigint | null
  /** The credit that the line began with, if this request opened it. */
  credit: bigint | null
  /** What the tab's payer may owe on all tabs; null: nothing limits it, or the request is a repeated one. */
  payerCredit: bigint | null
}

/** A tab as it stands. Amounts in USDC base units, a line each. */
export type StoredTab = TabHead & {
  openedAt: Date
  usedAt: Date
  reserved: bigint
  requests: number
  sequence: number
  /** Number of lines in the newest state. Later lines, which an older state brought, aren't in it. */
  signedLines: number
  lines: { split: bigint; signed: bigint; charged: bigint; credit: bigint }[]
  closedAt: Date | null
  closeReason: string | null
  takenAt: Date | null
}

/** A request on a tab, as it was accepted. */
export type TabRequest = TabKey & {
  sequence: number
  providerId: string
  endpointId: string
  split: bigint
  /** USDC base units. */
  price: bigint
  /** The price, or less. */
  charged: bigint
  /** Charged on its line up to and with it, at its price. */
  lineTotal: bigint
  /** How far the charges of the line before it are below their prices; null: not at all. */
  lineReduced: bigint | null
  acceptedAt: Date
  /** The buyer's, of its state. */
  signature: Hex
}

/** The result of charging less. `over`: more than the price, or than is signed. */
export type Charged = 'charged' | 'closed' | 'over'

export type TabStore = ReturnType<typeof createTabStore>

/** A state that buys nothing: with it, a buyer signs just what is charged. */
export type LastState = { sequence: number; amounts: readonly bigint[]; signature: Hex }

// As for payments (acceptance.ts): a few wait for the group that is under way.
const maxGroup = 64
const groupsInFlight = 2
const maxWaiting = 2_000
const beside = { items: 16, afterMs: 10 }
const maxTabs = 100_000

export function createTabStore(database: TabDatabase) {
  const servers = new Map<Database, { group: GroupCommit<Asked, TabVerdict>; clock: DatabaseClock }>()
  const splits = createCache<string, readonly bigint[]>({
    load: (key) => readSplits(...(key.split(':') as [Address, string])),
    // Lines are only ever added.
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

  /** @param deadlineMs until when its caller hears an answer, by `performance.now()`: later it is not accepted. */
  async function accept(candidate: TabCandidate, deadlineMs?: number): Promise<TabVerdict> {
    const { group, clock } = serverOf(await database.of(candidate.payer))
    const deadline = deadlineMs === undefined ? null : await clock.at(deadlineMs)
    try {
      return remember(candidate, await group.submit({ candidate, deadline }))
    } catch (error) {
      // Its answer was lost, perhaps after the commit. The request's row makes the second try find the first.
      if (failedDependency(error) !== 'database') throw error
      return remember(candidate, await group.submit({ candidate, deadline }))
    }
  }

  /** A line that a request brought needn't be read back. */
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
    /** The splits of a tab's lines in their order; empty for a tab that isn't stored. Remembered, as far as `atLeast` goes. */
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
    /** Charges less for a request, or up to its price again. */
    async charge(
      { payer, tabId, sequence }: TabKey & Pick<TabRequest, 'sequence'>,
      amount: bigint,
    ): Promise<Charged> {
      const sql = await database.of(payer)
      const [row] = await sql<[{ charged: Charged }]>`
        select tabs.charge(${toBytes(payer)}, ${tabBytes(tabId)}, ${sequence}, ${amount}) as charged`
      return row.charged
    },
    /** Closes a tab, by its buyer's last state if there is one, whose signature was verified. @returns whether it took it. */
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

/** `deadline`: by the server's clock, Unix milliseconds; null: none. */
type Asked = { candidate: TabCandidate; deadline: number | null }

/** The verdicts of `tabs.accept`, in order. */
async function acceptOnTabs(sql: Database, asked: Asked[]): Promise<TabVerdict[]> {
  // Tabs are locked in this order by everybody.
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

/** As the type `tabs.candidate` has them. */
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

/** The columns of a {@link TabRequest} of the request `r`, its item `i` and its line `l`, without its key. */
export function requestColumns(sql: Database) {
  return sql`i.provider_id as "providerId", i.endpoint_id as "endpointId",
    '0x' || encode(l.split, 'hex') as split, r.price, coalesce(r.charged, r.price) as charged,
    r.line_total as "lineTotal", r.line_reduced as "lineReduced", r.accepted_at as "acceptedAt"`
}

/** The columns of {@link TabRow} of the tab `t`. */
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
