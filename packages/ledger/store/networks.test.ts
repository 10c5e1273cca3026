import { networks } from '@tollkeeper/sdk/protocol/networks'
import { beforeEach, expect, test } from 'vitest'
import { useMigrations } from '../../../test/support/migrations.ts'
import { seedProvider } from '../../../test/support/seedPayments.ts'
import { type Database, schema } from './database.ts'
import { describePending, migrate, readSchemaState } from './migrate.ts'
import { isTestnet, requireKnownNetworks } from './networks.ts'

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

test('default: the table contains the SDK’s networks', async () => {
  expect(await readTable()).toEqual(own)
})

test.each([
  ['added to the list', `delete from network where chain_id in (137, 8453)`, ['base', 'polygon']],
  ['renamed in the list', `update network set name = 'matic' where chain_id = 137`, ['polygon']],
  [
    'changed to a production network in the list',
    `update network set is_testnet = true where chain_id = 1`,
    ['ethereum'],
  ],
])(
  'behavior: a network that was %s is pending until the next start writes it to the table',
  async (_, before, pending) => {
    await sql.unsafe(before)
    const state = await readSchemaState(sql)
    expect(state.networks).toEqual(pending)
    expect(describePending(state)).toBe(`has other networks: it differs in ${pending.join(', ')}`)
    expect(await migrate(sql)).toEqual([])
    expect(await readTable()).toEqual(own)
    expect(describePending(await readSchemaState(sql))).toBeNull()
  },
)

test('behavior: a network that this version does not have keeps its row', async () => {
  await sql`insert into network values (4242, 'former', false)`
  await sql`delete from network where chain_id = 137`
  await migrate(sql)
  expect(await readTable()).toEqual([...own, { chainId: 4242, name: 'former', testnet: false }])
})

test("error: a network on which an endpoint is paid can't change from a test network to a production network", async () => {
  await seedProvider(sql)
  await expect(sql`update network set is_testnet = false where chain_id = 31337`).rejects.toMatchObject({
    code: '23503',
  })
})

test('behavior: queries distinguish test networks from production networks by the table `network`', async () => {
  await sql`insert into network values (4242, 'former', false), (4243, 'former-sepolia', true)`
  const rows = await sql<{ chainId: number; testnet: boolean }[]>`
    select chain_id as "chainId", ${isTestnet(sql)} as testnet from network`
  const added = { 4242: false, 4243: true }
  const expected = { ...Object.fromEntries(own.map(({ chainId, testnet }) => [chainId, testnet])), ...added }
  expect(Object.fromEntries(rows.map(({ chainId, testnet }) => [chainId, testnet]))).toEqual(expected)
})

test('rejects a network with the stored name of another chain', async () => {
  await sql`update network set chain_id = 4242 where chain_id = 137`
  await expect(migrate(sql)).rejects.toThrow(
    'NETWORKS_FILE: expected another name for chain 137, got "polygon", which is the name of another chain in the database',
  )
})

test('rejects a change between test and production for a network on which endpoints are registered', async () => {
  await seedProvider(sql)
  await sql`insert into network values (4242, 'former', false)`
  const [endpoint] = await sql<[{ id: string }]>`select id from endpoint where chain_id = 31337`
  expect(endpoint).toBeDefined()
  await sql`alter table endpoint drop constraint endpoint_chain_id_testnet_fkey`
  await sql`update endpoint set testnet = false where chain_id = 31337`
  await sql`update network set is_testnet = false where chain_id = 31337`
  await sql`
    alter table endpoint add constraint endpoint_chain_id_testnet_fkey
    foreign key (chain_id, testnet) references network (chain_id, is_testnet)`
  await expect(migrate(sql)).rejects.toThrow(
    'NETWORKS_FILE: expected localhost to be a production network, as it was when endpoints were registered on it, got testnet true',
  )
})

test('refuses to start without the description of a network that has wallets', async () => {
  const { providerId } = await seedProvider(sql)
  await sql`insert into network values (4242, 'former', false)`
  await requireKnownNetworks(sql, schema)
  await sql`
    insert into wallet (id, provider_id, chain_id, address)
    values (${`wal_${'0'.repeat(32)}`}, ${providerId}, 4242, ${`0x${'1'.repeat(40)}`})`
  await expect(requireKnownNetworks(sql, schema)).rejects.toThrow(
    'NETWORKS_FILE: expected a description of every network with wallets in the database, got no description of former (chain 4242)',
  )
})
