/*
 * What Citus would need of the schema, with what belongs to a payer distributed by its address: so that accepting a payment, with
 * its reservation and its unique keys, is a matter of one shard (docs/scaling.md). On a distributed table, Citus takes a unique key
 * only if the distribution column is in it, a foreign key only between such columns or to a reference table, and no trigger.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createMigratedDatabase } from '../test/support/database.ts'
import { type Database, openDatabase, schema } from './database.ts'

/** By which column. */
const distributed = {
  payer: 'address',
  payment: 'payer',
  signed_authorization: 'authorizer',
  transfer: 'authorizer',
  evidence: 'authorizer',
  facilitation: 'payer',
}
/** Small and seldom written: each node has all of it. Tables that are in neither list stay on the coordinator. */
const reference = ['provider', 'wallet', 'endpoint', 'endpoint_wallet']

const withPayer = 'the payer before it: the identifier is random, so it is unique in all shards'
const fromCoordinator =
  'left out: what it is for stays on the coordinator, and no payment is deleted once it is asked for'
/** What there is to do about each that Citus refuses. */
const answers: Record<string, string> = {
  'payment: PRIMARY KEY (id)': withPayer,
  'payment: UNIQUE (request_id)':
    'the payer before it: a challenge buys once for each payer, who all pay for what they get',
  'signed_authorization: PRIMARY KEY (payment_id, half)': withPayer,
  'facilitation: PRIMARY KEY (payment_id)': withPayer,
  'transfer: PRIMARY KEY (id)': 'the authorizer before it; numbers come from one sequence',
  'signed_authorization: FOREIGN KEY (payment_id) REFERENCES payment(id) ON DELETE CASCADE':
    'by payer and id',
  'facilitation: FOREIGN KEY (payment_id) REFERENCES payment(id) ON DELETE CASCADE': 'by payer and id',
  'transfer: FOREIGN KEY (submission_id) REFERENCES submission(id)': fromCoordinator,
  'transfer: FOREIGN KEY (fee_of) REFERENCES transfer(id)':
    'by authorizer and id: a fee has its payment’s payer',
  'presentation: FOREIGN KEY (payment_id) REFERENCES payment(id) ON DELETE CASCADE':
    'the table gets the payer, and is distributed with the payment',
  'batch_item: FOREIGN KEY (payment_id) REFERENCES payment(id)': fromCoordinator,
  'batch_item: FOREIGN KEY (transfer_id) REFERENCES transfer(id)': fromCoordinator,
  'forgiven_debt: FOREIGN KEY (payment_id) REFERENCES payment(id)': fromCoordinator,
  'outbox: FOREIGN KEY (payment_id) REFERENCES payment(id)': fromCoordinator,
  'payment_notification: FOREIGN KEY (payment_id) REFERENCES payment(id) ON DELETE CASCADE': fromCoordinator,
  'refund: FOREIGN KEY (payment_id) REFERENCES payment(id)': fromCoordinator,
  'refund: FOREIGN KEY (of_payment_id) REFERENCES payment(id)': fromCoordinator,
  'settlement_failure: FOREIGN KEY (payment_id) REFERENCES payment(id)': fromCoordinator,
  'submission_payment: FOREIGN KEY (payment_id) REFERENCES payment(id)': fromCoordinator,
  'payment: trigger payment_leaves_revenue':
    'the statement that opens a payment again takes it out of the sums',
}

let sql: Database
beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
})
afterAll(() => sql.end())

/** What Citus refuses, as `table: constraint`; `unique` indexes that are no constraint included. */
async function findRefused(): Promise<string[]> {
  const keys = await sql<{ table: string; definition: string; columns: string[] }[]>`
    select r.relname as table,
      coalesce(pg_get_constraintdef(c.oid), replace(pg_get_indexdef(i.indexrelid), ${`${schema}.`}, '')) as definition,
      array(
        select a.attname::text from unnest(i.indkey) as k (number) join pg_attribute a on a.attrelid = r.oid and a.attnum = k.number
      ) as columns
    from pg_index i join pg_class r on r.oid = i.indrelid
    left join pg_constraint c on c.conindid = i.indexrelid and c.contype in ('p', 'u', 'x')
    where r.relnamespace = ${schema}::regnamespace and i.indisunique`
  const references = await sql<
    { table: string; definition: string; columns: string[]; target: string; targetColumns: string[] }[]
  >`
    select r.relname as table, pg_get_constraintdef(c.oid) as definition, t.relname as target,
      array(select attname::text from unnest(c.conkey) with ordinality as k (number, position)
        join pg_attribute a on a.attrelid = r.oid and a.attnum = k.number order by position) as columns,
      array(select attname::text from unnest(c.confkey) with ordinality as k (number, position)
        join pg_attribute a on a.attrelid = t.oid and a.attnum = k.number order by position) as "targetColumns"
    from pg_constraint c join pg_class r on r.oid = c.conrelid join pg_class t on t.oid = c.confrelid
    where c.contype = 'f' and r.relnamespace = ${schema}::regnamespace`
  const triggers = await sql<{ table: string; definition: string }[]>`
    select r.relname as table, 'trigger ' || tgname as definition
    from pg_trigger join pg_class r on r.oid = tgrelid
    where not tgisinternal and r.relnamespace = ${schema}::regnamespace`
  const by = (table: string) => (distributed as Record<string, string>)[table]
  const isShared = (table: string) => reference.includes(table)
  return [
    ...keys.filter(({ table, columns }) => by(table) !== undefined && !columns.includes(by(table) as string)),
    ...references.filter(({ table, columns, target, targetColumns }) => {
      const [column, targetColumn] = [by(table), by(target)]
      if (targetColumn === undefined) return !isShared(target) && (column !== undefined || isShared(table))
      return (
        column === undefined ||
        columns.indexOf(column) !== targetColumns.indexOf(targetColumn) ||
        !columns.includes(column)
      )
    }),
    ...triggers.filter(({ table }) => by(table) !== undefined),
  ].map(({ table, definition }) => `${table}: ${definition}`)
}

test('default: there is an answer to whatever Citus refuses, and none too many', async () => {
  expect((await findRefused()).toSorted()).toEqual(Object.keys(answers).toSorted())
})

test('behavior: what refuses a replay and reserves a balance is local to a shard as it stands', async () => {
  const refused = await findRefused()
  expect(refused.filter((one) => one.startsWith('payer:'))).toEqual([])
  expect(refused).not.toContain('signed_authorization: UNIQUE (chain_id, token, authorizer, nonce)')
  expect(refused).not.toContain(
    'payment: FOREIGN KEY (chain_id, token, payer) REFERENCES payer(chain_id, token, address)',
  )
})

test.each([
  ['a unique key', 'alter table payment add unique (resource)', 'payment: UNIQUE (resource)'],
  [
    'a unique index',
    'create unique index payment_twice on payment (lower(resource)) where fee_amount > 0',
    'payment: CREATE UNIQUE INDEX payment_twice ON payment USING btree (lower(resource)) WHERE ((fee_amount)::numeric > (0)::numeric)',
  ],
  [
    'a reference of a payment to what has another place',
    'alter table payment add batch_id bigint references batch',
    'payment: FOREIGN KEY (batch_id) REFERENCES batch(id)',
  ],
  [
    'a reference between payers that are not the same column',
    'alter table evidence add foreign key (chain_id, token, recipient) references payer',
    'evidence: FOREIGN KEY (chain_id, token, recipient) REFERENCES payer(chain_id, token, address)',
  ],
])('error: %s that a shard can not check is found', async (_, statement, found) => {
  const before = await findRefused()
  await sql.unsafe(statement)
  const after = await findRefused()
  expect(after.filter((one) => !before.includes(one))).toEqual([found])
})
