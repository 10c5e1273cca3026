import { networks } from '@tollkeeper/sdk/protocol/networks'
import { beforeEach, expect, test } from 'vitest'
import { useMigrations } from '../../../test/support/migrations.ts'
import { seedProvider } from '../../../test/support/seedPayments.ts'
import type { Database } from './database.ts'
import { describePending, migrate, readSchemaState } from './migrate.ts'
import { isTestnet } from './networks.ts'

const { openTestDatabase } = useMigrations()
let sql: Database
beforeEach(async () => {
  sql = await openTestDatabase()
  await migrate(sql)
})

const own = Object.values(networks).map(({ chainId, name, testnet }) => ({ chainId, name, testnet }))

const readTable = async () => [
  ...(await sql`
    select chain_id as "chainId", name, is_testnet as testnet from network
    order by array_position(${own.map(({ chainId }) => chainId)}::int[], chain_id)`),
]

test('default: the table has the networks of the SDK', async () => {
  expect(await readTable()).toEqual(own)
})

test.each([
  ['added to the list', `delete from network where chain_id in (137, 8453)`, ['base', 'polygon']],
  ['renamed in the list', `update network set name = 'matic' where chain_id = 137`, ['polygon']],
  [
    'turned into a production one in the list',
    `update network set is_testnet = true where chain_id = 1`,
    ['ethereum'],
  ],
])('behavior: a network that was %s is pending, and the next start writes it', async (_, before, pending) => {
  await sql.unsafe(before)
  const state = await readSchemaState(sql)
  expect(state.networks).toEqual(pending)
  expect(describePending(state)).toBe(`has other networks: it differs in ${pending.join(', ')}`)
  expect(await migrate(sql)).toEqual([])
  expect(await readTable()).toEqual(own)
  expect(describePending(await readSchemaState(sql))).toBeNull()
})

test('behavior: a network that this version does not have keeps its row', async () => {
  await sql`insert into network values (10, 'optimism', false)`
  await sql`delete from network where chain_id = 137`
  await migrate(sql)
  expect(await readTable()).toEqual([...own, { chainId: 10, name: 'optimism', testnet: false }])
})

test("error: a network on which an endpoint is paid can't turn from a test network into a production one", async () => {
  await seedProvider(sql)
  await expect(sql`update network set is_testnet = false where chain_id = 31337`).rejects.toMatchObject({
    code: '23503',
  })
})

test('behavior: a query tells test networks from production ones by the table', async () => {
  await sql`insert into network values (10, 'optimism', false), (11155420, 'optimism-sepolia', true)`
  const rows = await sql<{ chainId: number; testnet: boolean }[]>`
    select chain_id as "chainId", ${isTestnet(sql)} as testnet from network`
  const added = { 10: false, 11155420: true }
  const expected = { ...Object.fromEntries(own.map(({ chainId, testnet }) => [chainId, testnet])), ...added }
  expect(Object.fromEntries(rows.map(({ chainId, testnet }) => [chainId, testnet]))).toEqual(expected)
})
