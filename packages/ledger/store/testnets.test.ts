import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'

const database = await useDatabase()

test('behavior: the database tells test networks from production ones as the networks table does', async () => {
  const chainIds = Object.values(networks).map(({ chainId }) => chainId)
  const rows = await database<{ chainId: number; testnet: boolean }[]>`
    select chain_id as "chainId", is_testnet(chain_id) as testnet from unnest(${chainIds}::int[]) as given (chain_id)`
  expect(rows).toEqual(Object.values(networks).map(({ chainId, testnet }) => ({ chainId, testnet })))
})

test('behavior: the database names networks as the networks table does', async () => {
  const all = Object.values(networks)
  const rows = await database<{ name: string }[]>`
    select network_name(chain_id) as name from unnest(${all.map(({ chainId }) => chainId)}::int[]) as given (chain_id)`
  expect(rows.map(({ name }) => name)).toEqual(all.map(({ name }) => name))
})
