import { afterAll, beforeAll, expect, test } from 'vitest'
import { createMigratedDatabase } from '../test/support/database.ts'
import { createIndexTables } from '../test/support/indexTables.ts'
import { type SeedProvider, seedPayment, seedProvider, seedSettlement } from '../test/support/seedPayments.ts'
import { badDebt } from './badDebt.ts'
import { type Database, openDatabase } from './database.ts'

let database: Database
let provider: SeedProvider
beforeAll(async () => {
  database = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(database)
  provider = await seedProvider(database)
})
afterAll(() => database?.end())

type Case = {
  name: string
  /** What the index shows of the provider's and the fee's half. */
  seen?: ['settled' | 'cancelled' | 'foreign_use' | null, 'settled' | 'cancelled' | 'foreign_use' | null]
  payment?: { failure_code?: string; failed_at?: Date; concluded_at?: Date; voided_at?: Date }
  /** `half: code`, for each half that is owed. */
  owed: string[]
}
const now = new Date()

const cases: Case[] = [
  { name: 'waiting', owed: [] },
  { name: 'settled', seen: ['settled', 'settled'], owed: [] },
  { name: 'cancelled, not final yet', seen: ['cancelled', null], owed: ['0: authorization_cancelled'] },
  {
    name: 'cancelled and failed: the fee, which is never charged alone, is owed as well',
    seen: ['cancelled', null],
    payment: { failure_code: 'authorization_cancelled', failed_at: now },
    owed: ['0: authorization_cancelled', '1: authorization_cancelled'],
  },
  {
    name: 'only the fee cancelled, and concluded',
    seen: ['settled', 'cancelled'],
    payment: { failure_code: 'authorization_cancelled', concluded_at: now },
    owed: ['1: authorization_cancelled'],
  },
  { name: 'used for something else', seen: ['foreign_use', null], owed: ['0: authorization_used'] },
  { name: 'to be tried again', payment: { failure_code: 'insufficient_balance' }, owed: [] },
  {
    name: 'given up for want of money',
    payment: { failure_code: 'insufficient_balance', failed_at: now },
    owed: ['0: insufficient_balance', '1: insufficient_balance'],
  },
  {
    name: 'given up, concluded, and one half settled by a stranger',
    seen: ['settled', null],
    payment: { failure_code: 'insufficient_balance', failed_at: now, concluded_at: now },
    owed: ['1: insufficient_balance'],
  },
  { name: 'expired by itself', payment: { failure_code: 'authorization_expired', failed_at: now }, owed: [] },
  { name: 'voided and cancelled', seen: ['cancelled', null], payment: { voided_at: now }, owed: [] },
]

test.each(cases)('args: $name', async ({ seen = [null, null], payment, owed }) => {
  const seeded = await seedPayment(database, { provider })
  for (const half of [0, 1] as const) {
    if (seen[half] === null) continue
    await seedSettlement(database, seeded, { halves: [half] })
    const key = database`authorizer = ${seeded.payer} and nonce = ${seeded.nonces[half]}`
    if (seen[half] === 'cancelled')
      await database`update indexer.authorization set state = 'cancelled', recipient = null, value = null where ${key}`
    if (seen[half] === 'foreign_use') await database`update indexer.authorization set value = 1 where ${key}`
  }
  if (payment) await database`update payment set ${database(payment)} where id = ${seeded.paymentId}`
  const rows = await database<{ half: number; code: string }[]>`
    select half, code from ${badDebt(database)} debt where payer = ${seeded.payer} order by half`
  expect(rows.map(({ half, code }) => `${half}: ${code}`)).toEqual(owed)
})
