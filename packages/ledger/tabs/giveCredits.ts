import type { Address } from 'viem'
import type { Database } from '../store/database.ts'
import { type TabDatabase, toHex } from './tabDatabase.ts'

type WaitingCredit = { payer: Uint8Array; id: Uint8Array; paymentId: string; key: Uint8Array }

const creditsAtOnce = 100

/**
 * Credits buyers with what they signed too much, tab by tab, once the tab's payment has settled for good. If it ended otherwise,
 * nothing is credited. After a crash in between it runs again, and credits once.
 */
export async function giveCredits(sql: Database, tabs: TabDatabase): Promise<void> {
  let after: Uint8Array = Buffer.alloc(0)
  for (;;) {
    const waiting = await tabs.all<WaitingCredit[]>`
      select payer, id, payment_id as "paymentId", payer || id as key from tabs.tab
      where credits is not null and payer || id > ${after}
      order by payer || id limit ${creditsAtOnce}`
    const ended = await sql<{ paymentId: string; isSettled: boolean }[]>`
      select payment_id as "paymentId", kind = 'settled' as "isSettled" from outcome
      where payment_id = any(${waiting.map(({ paymentId }) => paymentId)}::text[]) and final_at is not null`
    const isSettled = new Map(ended.map((one) => [one.paymentId, one.isSettled]))
    for (const one of waiting) {
      const settled = isSettled.get(one.paymentId)
      if (settled !== undefined) await giveCredit(tabs, one, settled)
    }
    if (waiting.length < creditsAtOnce) return
    after = (waiting.at(-1) as WaitingCredit).key
  }
}

async function giveCredit(
  tabs: TabDatabase,
  { payer, id }: WaitingCredit,
  isSettled: boolean,
): Promise<void> {
  const own = await tabs.of(toHex(payer) as Address)
  await own.begin(async (tx) => {
    const [tab] = await tx<{ chainId: number; credits: bigint[] }[]>`
      select chain_id as "chainId", credits from tabs.tab
      where payer = ${payer} and id = ${id} and credits is not null for update`
    if (tab === undefined) return
    await tx`update tabs.tab set credits = null where payer = ${payer} and id = ${id}`
    if (!isSettled) return
    const lines = await tx<{ position: number; split: Uint8Array }[]>`
      select position, split from tabs.line where payer = ${payer} and tab_id = ${id} order by position`
    for (const { position, split } of lines) {
      const amount = BigInt(tab.credits[position] ?? 0n)
      if (amount <= 0n) continue
      await tx`
        insert into tabs.credit as c (payer, chain_id, split, amount) values (${payer}, ${tab.chainId}, ${split}, ${amount})
        on conflict (payer, chain_id, split) do update set amount = c.amount + excluded.amount`
    }
  })
}
