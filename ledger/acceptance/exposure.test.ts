import type { Address } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { networks } from '#protocol/networks'
import { createMigratedDatabase } from '../../test/support/database.ts'
import { createIndexTables } from '../../test/support/indexTables.ts'
import { seedChainId, seedPayment, seedProvider, seedSettlement } from '../../test/support/seedPayments.ts'
import { quarantinePayers } from '../queue/quarantine.ts'
import { type Database, openDatabase } from '../store/database.ts'
import { readExposures } from './exposure.ts'

const token: Address = `0x${'ab'.repeat(20)}`

let sql: Database
beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(sql)
})
afterAll(() => sql?.end())

test('behavior: a payer is quarantined while a payment of it waits that failed on chain', async () => {
  const payment = await seedPayment(sql, { provider: await seedProvider(sql) })
  const { payer } = payment
  const chainId = seedChainId
  const network = Object.values(networks).find((one) => one.chainId === chainId)
  if (!network) throw new Error(`no network ${chainId}`)
  const isQuarantined = async () => {
    const question = { payers: [payer], block: 0n, now: Math.floor(Date.now() / 1000), withHistory: true }
    return (await readExposures(sql, { network, token }, question)).get(payer)?.isQuarantined
  }
  expect(await isQuarantined()).toBe(false)
  await quarantinePayers(sql, { chainId, token }, [payer])
  expect(await isQuarantined()).toBe(true)
  // Settled after all.
  await seedSettlement(sql, payment)
  expect(await isQuarantined()).toBe(false)
})
