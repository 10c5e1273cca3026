import { type Database, schema } from '@tollkeeper/ledger/store/database'

/** Returns everything in our schema, one line each, so that two databases can be compared. */
export async function describeSchema(sql: Database): Promise<string[]> {
  const rows = await sql<{ line: string }[]>`
    with ours as (select oid from pg_namespace where nspname = ${schema})
    select format('column %s.%s #%s %s, null %s, default %s, generated %s, identity %s', table_name, column_name,
      ordinal_position, coalesce(domain_name, udt_name), is_nullable, coalesce(column_default, '-'),
      coalesce(generation_expression, '-'), coalesce(identity_generation, '-')) as line
    from information_schema.columns where table_schema = ${schema}
    union all
    select format('attribute %s.%s #%s %s', udt_name, attribute_name, ordinal_position, attribute_udt_name)
    from information_schema.attributes where udt_schema = ${schema}
    union all
    select format('relation %s of kind %s, persistence %s, options %s', relname, relkind, relpersistence, reloptions)
    from pg_class where relnamespace in (select oid from ours)
    union all
    select format('constraint %s of %s %s: %s', conname, conrelid::regclass, contypid::regtype, pg_get_constraintdef(oid))
    from pg_constraint where connamespace in (select oid from ours)
    union all
    select format('index %s', indexdef) from pg_indexes where schemaname = ${schema}
    union all
    select format('view %s: %s', viewname, definition) from pg_views where schemaname = ${schema}
    union all
    select format('function %s', pg_get_functiondef(oid)) from pg_proc
    where pronamespace in (select oid from ours) and prokind in ('f', 'p')
    union all
    select format('trigger %s, enabled %s', pg_get_triggerdef(t.oid), t.tgenabled)
    from pg_trigger t join pg_class c on c.oid = t.tgrelid
    where c.relnamespace in (select oid from ours) and not t.tgisinternal
    union all
    select format('type %s of kind %s, base %s', typname, typtype, typbasetype::regtype)
    from pg_type where typnamespace in (select oid from ours)
    order by line`
  return rows.map(({ line }) => line)
}

type Row = Record<string, unknown>
export type Rows = ReadonlyMap<string, readonly Row[]>

/** Returns the rows of all non-empty tables, except the list of migrations. */
export async function readRows(sql: Database): Promise<Rows> {
  const tables = await sql<{ name: string }[]>`
    select tablename as name from pg_tables where schemaname = ${schema} and tablename not in ('migration', 'loaded_function') order by name`
  const rows = new Map<string, Row[]>()
  for (const { name } of tables) {
    const found = await sql<{ row: Row }[]>`select to_jsonb(t) as row from ${sql(schema)}.${sql(name)} t`
    if (found.length > 0)
      rows.set(
        name,
        found.map(({ row }) => row),
      )
  }
  return rows
}

/** Returns the missing rows as text. Columns added or dropped since are ignored. */
export function findLost(before: Rows, after: Rows): string[] {
  return [...before].flatMap(([table, rows]) => {
    const left = after.get(table) ?? []
    const columns = Object.keys(rows[0] ?? {}).filter((name) => left[0] === undefined || name in left[0])
    const describe = (row: Row) => `${table}: ${JSON.stringify(columns.map((name) => [name, row[name]]))}`
    const kept = new Set(left.map(describe))
    return rows.map(describe).filter((row) => !kept.has(row))
  })
}
