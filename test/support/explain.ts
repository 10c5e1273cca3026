import type { Database } from '@tollkeeper/ledger/store/database'

type Plan = {
  'Node Type': string
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  Plans?: Plan[]
}

/**
 * Returns the number of rows that statements read, kept or discarded, by table and access method.
 *
 * @param whole matches the beginning of each statement to explain. It must not match a fragment that is inserted into a statement.
 */
export async function explain(
  sql: Database,
  whole: RegExp,
  run: (sql: Database) => Promise<unknown>,
): Promise<Record<string, number>> {
  const read: Record<string, number> = {}
  const visit = (node: Plan): void => {
    const name = node['Relation Name']
    if (name && name !== 'gas_token_price') {
      // Rows are averages over the loops, with two decimals.
      const each = node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)
      const rows = Math.round(each * node['Actual Loops'])
      const way = `${node['Node Type'].replace(/Bitmap Heap|Index Only/, 'Index')} ${name}`
      read[way] = (read[way] ?? 0) + rows
    }
    for (const inner of node.Plans ?? []) visit(inner)
  }
  const explaining = ((parts: TemplateStringsArray, ...values: unknown[]) => {
    if (!whole.test(parts[0] ?? '')) return sql(parts, ...(values as never[]))
    const [first = '', ...rest] = parts
    const explain = Object.assign([`explain (analyze, format json) ${first}`, ...rest], { raw: parts.raw })
    return sql.begin(async (tx) => {
      // Plan as in production, because the tests' Postgres uses other planner settings (globalSetup.ts).
      await tx`set local plan_cache_mode = auto`
      const [row] = await tx(explain as unknown as TemplateStringsArray, ...(values as never[]))
      visit(row?.['QUERY PLAN'][0].Plan)
      return []
    })
  }) as unknown as Database
  await run(explaining)
  return read
}
