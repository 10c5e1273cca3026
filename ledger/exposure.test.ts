import { afterAll, beforeAll, expect, test } from 'vitest'
import { networks } from '#protocol/networks'
import { createMigratedDatabase } from '../test/support/database.ts'
import { createIndexTables } from '../test/support/indexTables.ts'
import { seedPayment, seedProvider } from '../test/support/seedPayments.ts'
import { type Database, openDatabase } from './database.ts'
import { readExposures } from './exposure.ts'
import { quarantinePayers } from './quarantine.ts'

let sql: Database
beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(sql)
})
afterAll(() => sql?.end())

test('behavior: a payer is quarantined while a payment of it waits that failed on chain', async () => {
  const { paymentId } = await seedPayment(sql, { provider: await seedProvider(sql) })
  const [payment] = await sql`select payer, token, chain_id as "chainId" from payment where id = ${paymentId}`
  const { payer, token, chainId } = payment as { payer: `0x${string}`; token: `0x${string}`; chainId: number }
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
  await sql`
    insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value, tx_hash, log_index,
      block_number, block_hash, block_time)
    select chain_id, token, authorizer, nonce, 'used', recipient, value, nonce, 0, 1000, nonce, 1
    from signed_authorization where payment_id = ${paymentId}`
  expect(await isQuarantined()).toBe(false)
})
