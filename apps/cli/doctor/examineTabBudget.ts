import type { Queryable } from '@tollkeeper/ledger/store/database'
import { type Environment, readVariable } from '@tollkeeper/runtime/env'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import { type Check, fail, ok, warn } from './check.ts'
import type { ExaminedNetwork } from './networks.ts'

export const tabBudgetCheck = 'tab budget'

/** Percentages of the budget. If `nearly` is owed, the alert TabBudgetLow fires. If `wholly` is owed, the check fails. */
const nearly = 80n
const wholly = 98n
/** If one payer owes at least this percentage of the owed amount, the advice is about that payer. */
const dominant = 50n

type Row = {
  money: 'real' | 'test'
  lent: bigint
  budget: bigint
  payers: number
  most: bigint
  payer: string
}

/** Reports how much of today's budget for tabs is owed, and by which payers. */
export async function examineTabBudget(
  sql: Queryable,
  env: Environment,
  networks: readonly Pick<ExaminedNetwork, 'network'>[],
): Promise<Check> {
  if (readVariable(env, 'TABS') === null) return ok(tabBudgetCheck, 'no tabs (TABS=off)')
  const day = utcDay(new Date())
  const rows = await sql<Row[]>`
    select b.money, b.lent, b.budget, coalesce(l.payers, 0) as payers, coalesce(l.most, 0) as most, l.payer
    from tab_budget b left join (
      select distinct on (money) money, payer, amount as most, count(*) over (partition by money)::int as payers
      from (
        select money, payer, sum(amount) as amount from tab_loan where day = ${day}::date group by money, payer
      ) owed
      order by money, amount desc
    ) l on l.money = b.money
    where b.day = ${day}::date and b.budget > 0 order by b.money`
  // Count real money if any network has it, and testnet funds otherwise.
  const money = networks.every(({ network }) => network.testnet) ? 'test' : 'real'
  const row = rows.find((one) => one.money === money)
  const [fees] = await sql<[{ week: bigint }]>`
    select coalesce(sum(settled_fee), 0) as week from revenue
    where period = 'day' and starts_at >= now() - interval '7 days'
      and chain_id in (select chain_id from network where is_testnet = ${money === 'test'})`
  const limit = row?.budget ?? readVariable(env, 'TAB_BUDGET_USDC')
  const setting = `fees of the last 7 days: ${formatUsdc(fees.week)} USDC`
  if (row === undefined || row.lent === 0n) {
    return ok(tabBudgetCheck, `no part of today's budget of ${formatUsdc(limit)} USDC is owed; ${setting}`)
  }
  const percent = (row.lent * 100n) / row.budget
  const found =
    `${percent}% of today's budget of ${formatUsdc(row.budget)} USDC is owed by ${row.payers} payers, ` +
    `the largest part by ${row.payer}: ${formatUsdc(row.most)} USDC; ${setting}`
  if (percent < nearly) return ok(tabBudgetCheck, found)
  const advice =
    row.most * 100n >= row.lent * dominant
      ? 'one payer uses up the budget: check its debts (tollkeeper payer debts), or grant it credit outside the budget (tollkeeper payer credit)'
      : 'new payers will soon be unable to buy on tabs: raise TAB_BUDGET_USDC if few debts are lost (tollkeeper payer debts)'
  const judge = percent >= wholly ? fail : warn
  return judge(tabBudgetCheck, found, advice)
}
