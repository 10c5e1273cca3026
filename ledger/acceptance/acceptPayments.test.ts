import type { Address } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createMigratedDatabase } from '../../test/support/database.ts'
import { createIndexTables } from '../../test/support/indexTables.ts'
import {
  type SeedProvider,
  seedPayment,
  seedProvider,
  seedSettlement,
} from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { bothHalves } from '../facts/halves.ts'
import { endPayments } from '../queue/stages.ts'
import { compositeArray } from '../store/compositeArray.ts'
import { type Database, openDatabase } from '../store/database.ts'
import { warmSessions } from './acceptance.ts'

const splitter: Address = randomHex(20)

let database: Database
let provider: SeedProvider
beforeAll(async () => {
  database = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(database)
  provider = await seedProvider(database)
})
afterAll(() => database?.end())

async function readHalves(paymentId: string) {
  const [row] = await database<{ provider: string; fee: string | null; feeTx: string | null }[]>`
    select half.provider, half.fee, half.fee_tx as "feeTx" from payment p
    cross join lateral ${bothHalves(database)} half where p.id = ${paymentId}`
  return row
}

test("behavior: one authorization to a splitter carries the provider's part and the fee", async () => {
  const payment = await seedPayment(database, { provider, splitter })
  expect(await readHalves(payment.paymentId)).toEqual({ provider: 'open', fee: 'open', feeTx: null })
  const rows =
    await database`select half, recipient, value from signed_authorization where payment_id = ${payment.paymentId}`
  expect([...rows]).toEqual([{ half: 0, recipient: splitter, value: 50_000n }])

  const txHash = await seedSettlement(database, payment, { halves: [0] })
  expect(await readHalves(payment.paymentId)).toEqual({ provider: 'settled', fee: 'settled', feeTx: txHash })
  const ending = { paymentId: payment.paymentId, kind: 'settled', code: null, isFinal: true } as const
  await endPayments(database, [ending], new Date())
  const [sums] = await database`
    select settled_net, settled_fee from revenue where provider_id = ${provider.providerId} and period = 'day'`
  expect(sums).toEqual({ settled_net: 47_500n, settled_fee: 2_500n })
})

test('error: a splitter without a fee is no payment', async () => {
  await expect(seedPayment(database, { provider, splitter, feeAmount: 0n })).rejects.toThrow(
    /check constraint/,
  )
})

test('behavior: sessions are opened for all groups that can be under way, and nothing is stored', async () => {
  const sessions = async () =>
    (
      await database`select from pg_stat_activity where datname = current_database() and backend_type = 'client backend'`
    ).length
  const payments = async () => (await database`select from payment`).length
  const before = await payments()
  expect(await sessions()).toBe(1)
  await warmSessions(database)
  expect(await sessions()).toBe(3)
  expect(await payments()).toBe(before)
})

test('behavior: rows arrive as they were, whatever their text holds', async () => {
  const texts = ['', 'a b', '"', '\\', '\\"', 'a,b', '(x)', '{y}', 'null', "'", '\n\t', 'é€😀', '"",\\\\"']
  const rows = texts.map((text, index) => [text, index, null, 2n ** 63n, null, null, `${text},`, null, null])
  const read = await database`
    select payment_id, half, recipient, value, nonce
    from unnest(${compositeArray(rows)}::text::candidate_authorization[])`
  expect([...read]).toEqual(
    texts.map((text, half) => ({
      payment_id: text,
      half,
      recipient: null,
      value: 2n ** 63n,
      nonce: `${text},`,
    })),
  )
  const none = await database`select from unnest(${compositeArray([])}::text::candidate[])`
  expect(none).toHaveLength(0)
})
