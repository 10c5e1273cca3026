import { forEachRow, type OnBadRow } from '@tollkeeper/runtime/stepBack'
import { atLeastZero } from '@tollkeeper/sdk/protocol/amount'
import { toWord } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex } from 'viem'
import type { Database, Queryable } from '../store/database.ts'
import { type TabDatabase, toBytes, toHex } from './tabDatabase.ts'

type WaitingTab = { payer: Uint8Array; id: Uint8Array; paymentId: string; key: Uint8Array }

const tabsAtOnce = 500

/** The amounts that moved when a tab settled: one per line, and the amounts of lines that the ledger doesn't have. */
type Moved = { lines: bigint[]; unknown: { split: bigint; amount: bigint }[] }

/**
 * Credits buyers with the amounts that moved beyond the charges, for each tab whose payment's result is final. The state that settled may have signed
 * more than was charged, or the buyer or someone else may have settled another state. If the process crashes, the next call continues, and each
 * credit is given only once.
 *
 * Only amounts that moved under the accepted terms are credited. A buyer who settles a state with itself as the platform pays no fee. Purchases on a
 * credit count as if their fees had been paid, so such a credit would cost the platform its fees.
 *
 * @param options.after the position after which to begin among the waiting tabs.
 * @param options.isOver returns whether to stop. It is called after each page.
 * @returns the position at which to continue; null if no tabs are left.
 */
export async function giveCredits(
  { sql, tabs, onBadRow }: { sql: Database; tabs: TabDatabase; onBadRow: OnBadRow },
  options: { after: Uint8Array | null; isOver: () => boolean },
): Promise<Uint8Array | null> {
  let after: Uint8Array = options.after ?? Buffer.alloc(0)
  for (;;) {
    const waiting = await tabs.all<WaitingTab[]>`
      select payer, id, payment_id as "paymentId", payer || id as key from tabs.tab
      where awaits_end and payer || id > ${after}
      order by payer || id limit ${tabsAtOnce}`
    const ended = await readMoved(
      sql,
      waiting.map(({ paymentId }) => paymentId),
    )
    await forEachRow(
      waiting.filter(({ paymentId }) => ended.has(paymentId)),
      (tab) => giveCredit(tabs, tab, ended.get(tab.paymentId) as Moved),
      (error, { payer, paymentId }) => onBadRow('credit', error, { payer: toHex(payer), paymentId }),
      { ask: () => tabs.all`select 1` },
    )
    if (waiting.length < tabsAtOnce) return null
    after = (waiting.at(-1) as WaitingTab).key
    if (options.isOver()) return after
  }
}

/** Reads the moved amounts of the payments whose result is final. */
async function readMoved(sql: Database, paymentIds: readonly string[]): Promise<Map<string, Moved>> {
  const rows = await sql<
    { paymentId: string; moved: bigint[]; unknown: { split: Hex; amount: number }[] | null }[]
  >`
    select o.payment_id as "paymentId", array(
      select case
        when e.lost_fee_share > 0 then 0
        when e.state = 'foreign_use' then coalesce(l.moved, 0)
        when e.state = 'settled' or o.kind = 'settled' then coalesce(l.moved, l.amount)
        else 0
      end
      from tab_line l where l.payment_id = o.payment_id order by l.position
    ) as moved, e.unknown_lines as unknown
    from payment_result o left join authorization_event e on e.payment_id = o.payment_id and e.half = 0
    where o.payment_id = any(${[...paymentIds]}::text[]) and o.final_at is not null`
  return new Map(
    rows.map(({ paymentId, moved, unknown }) => [
      paymentId,
      {
        lines: moved.map(BigInt),
        unknown: (unknown ?? []).map(({ split, amount }) => ({
          split: BigInt(split),
          amount: BigInt(amount),
        })),
      },
    ]),
  )
}

async function giveCredit(tabs: TabDatabase, { payer: bytes, id }: WaitingTab, moved: Moved): Promise<void> {
  const payer = toHex(bytes) as Address
  const own = await tabs.of(payer)
  await own.begin(async (tx) => {
    const [tab] = await tx<{ chainId: number; charged: bigint[] }[]>`
      update tabs.tab set awaits_end = false where payer = ${bytes} and id = ${id} and awaits_end
      returning chain_id as "chainId", charged`
    if (tab === undefined) return
    const lines = await tx<{ position: number; split: Uint8Array }[]>`
      select position, split from tabs.line where payer = ${bytes} and tab_id = ${id} order by position`
    const credits = lines.map(({ position, split }) => {
      const charged = BigInt(tab.charged[position] ?? 0n)
      return {
        split: BigInt(toHex(split)),
        amount: (moved.lines[position] ?? 0n) - atLeastZero(charged),
      }
    })
    await addCredits(tx, { payer, chainId: tab.chainId }, [...credits, ...moved.unknown])
  })
}

/** Adds to the credits with which a buyer's next tab starts. Ignores amounts that aren't above 0. */
export async function addCredits(
  sql: Queryable,
  { payer, chainId }: { payer: Address; chainId: number },
  credits: readonly { split: bigint; amount: bigint }[],
): Promise<void> {
  for (const { split, amount } of credits) {
    if (amount <= 0n) continue
    await sql`
      insert into tabs.credit as c (payer, chain_id, split, amount)
      values (${toBytes(payer)}, ${chainId}, ${toBytes(toWord(split))}, ${amount})
      on conflict (payer, chain_id, split) do update set amount = c.amount + excluded.amount`
  }
}
