import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedChainId, seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { newId } from '../store/identifiers.ts'
import { findSuspendedPayees, isClosedProvider, setSuspended } from './suspendProvider.ts'

const sql = await useDatabase()

const addWallet = (providerId: string, address: Address) => sql`
  insert into wallet (id, provider_id, chain_id, address)
  values (${newId('wal')}, ${providerId}, ${seedChainId}, ${address})`

test('default: returns the wallets and splitters of a suspended provider, but not wallets that another provider has registered as well', async () => {
  const [provider, other] = [await seedProvider(sql), await seedProvider(sql)]
  const [splitter, shared, late] = [randomHex(20), randomHex(20), randomHex(20)]
  const { paymentId } = await seedPayment(sql, { provider, splitter })
  await addWallet(provider.providerId, shared)
  await addWallet(other.providerId, shared)
  const [row] = await sql<[{ token: Address }]>`select token from payment where id = ${paymentId}`
  const find = async (chainId = seedChainId) => {
    const asked = [other.wallet, provider.wallet, splitter, shared, late, provider.wallet]
    return [...(await findSuspendedPayees(sql, { chainId, token: row.token }, asked))].sort()
  }
  expect(await find()).toEqual([])
  expect(await isClosedProvider(sql, provider.providerId)).toBe(false)

  await setSuspended(sql, provider.providerId, new Date())
  // A suspended provider must not block wallets that other providers own.
  await addWallet(provider.providerId, late)
  expect(await isClosedProvider(sql, provider.providerId)).toBe(true)
  expect(await find()).toEqual([provider.wallet, splitter].sort())
  expect(await find(1)).toEqual([])
  await sql`update provider set disabled_at = now() where id = ${other.providerId}`
  expect(await isClosedProvider(sql, other.providerId)).toBe(true)
  expect(await find()).toEqual([provider.wallet, splitter].sort())
})
