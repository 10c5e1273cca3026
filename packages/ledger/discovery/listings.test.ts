import type { Address } from 'viem'
import { beforeEach, describe, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedChainId, seedProvider } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { setSuspended } from '../registry/suspendProvider.ts'
import { type Declaration, listDeclaration } from './declarations.ts'
import { readListings } from './listings.ts'

const sql = await useDatabase()
beforeEach(() => sql`delete from declared_resource`)

async function declare(path: string, payTo: Address): Promise<string> {
  const declaration: Declaration = {
    resource: `https://declared.example/${path}`,
    chainId: seedChainId,
    payTo,
    providerId: null,
    x402Version: 2,
    amount: 10_000n,
    maxTimeoutSeconds: 60,
    description: '',
    mimeType: '',
    bazaar: { info: { input: { type: 'http', method: 'GET' } }, schema: { type: 'object' } },
    serviceName: null,
    tags: [],
    iconUrl: null,
  }
  expect(await listDeclaration(sql, declaration)).toBe(true)
  return declaration.resource
}

/** Returns the paths of the declared resources, in the order of the list. */
async function listed(): Promise<string[]> {
  const listings = await readListings(sql, new Date())
  return listings
    .filter(({ endpointId }) => endpointId === null)
    .map(({ resource }) => resource.replace('https://declared.example/', ''))
}

describe('a provider', () => {
  test('behavior: lists at most a hundred resources without payments, and all resources with settled payments', async () => {
    const { providerId, endpointIds, wallet } = await seedProvider(sql, 103)
    await sql`update endpoint set created_at = now() + substring(url from '[0-9]+$')::int * interval '1 second' where provider_id = ${providerId}`
    const [paid = ''] = endpointIds.slice(-1)
    await sql`
      insert into revenue (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments, voided_payments, settled_payments,
        failed_payments, gross, fee, settled_net, settled_fee, failed_net)
      select ${providerId}, period, date_trunc(period, now(), 'UTC'), ${paid}, ${seedChainId}, ${wallet}, 1, 0, 1, 0, 0, 0, 0, 7, 0
      from unnest(array['hour', 'day', 'month']) period`
    const listings = await readListings(sql, new Date())
    const own = listings.filter((one) => one.providerId === providerId)
    expect(own).toHaveLength(101)
    expect(own[0]).toMatchObject({ endpointId: paid, fees: 7n, payments: 1 })
    expect(own.map(({ endpointId }) => endpointId).slice(1)).toEqual(endpointIds.slice(0, 100))
  })
})

describe('a declared resource', () => {
  test('default: ranks behind all resources whose own 402 answer was read, regardless of their age', async () => {
    for (const path of ['first', 'proven', 'last']) await declare(path, randomHex(20))
    await sql`update declared_resource set proven_at = now() where resource like '%/proven'`
    expect(await listed()).toEqual(['proven', 'first', 'last'])
  })

  test.each([
    ['29 days', ['paid']],
    ['31 days', []],
  ])('behavior: is listed for 30 days after its last payment (its age is %s)', async (age, expected) => {
    await declare('paid', randomHex(20))
    await sql`update declared_resource set settled_at = now() - ${age}::interval`
    expect(await listed()).toEqual(expected)
  })

  test('behavior: is not listed while the operator suspends the owner of its wallet', async () => {
    const [provider, other] = [await seedProvider(sql), await seedProvider(sql)]
    await declare('suspended', provider.wallet)
    await declare('other', other.wallet)
    expect(await listed()).toEqual(['suspended', 'other'])
    await setSuspended(sql, provider.providerId, new Date())
    expect(await listed()).toEqual(['other'])
  })
})
