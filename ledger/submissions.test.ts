import type { Address, Hex } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { SignedAuthorization } from '#protocol/payload'
import { createMigratedDatabase } from '../test/support/database.ts'
import { seedPayment, seedProvider } from '../test/support/seedPayments.ts'
import { randomHex } from '../test/support/usdc.ts'
import { type BatchRow, closeBatch } from './batches.ts'
import { type Database, openDatabase } from './database.ts'
import { acquireLease, type Lease } from './leases.ts'
import { claimSubmission, insertSubmission, readSubmission, TransferInProgress } from './submissions.ts'

const token: Address = `0x${'ab'.repeat(20)}`
const chainId = 31_337

let sql: Database
let lease: Lease
beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
})
afterAll(() => sql.end())

function transfer(): SignedAuthorization {
  const window = { validAfter: 0n, validBefore: 2n ** 39n }
  return {
    from: randomHex(20),
    to: randomHex(20),
    value: 1n,
    ...window,
    nonce: randomHex(32),
    signature: randomHex(65),
  }
}

/** Asks for a payment's two transfers, or for one of them alone. */
async function ask(...given: [SignedAuthorization, SignedAuthorization?]): Promise<Hex> {
  const key = randomHex(32)
  await askAs(key, ...given)
  return key
}

function askAs(key: Hex, ...given: [SignedAuthorization, SignedAuthorization?]): Promise<unknown> {
  const transfers = given.flatMap((authorization, index) =>
    authorization ? [{ authorization, paymentId: null, feeOf: index === 0 ? null : 0 }] : [],
  )
  return sql.begin((tx) => insertSubmission(tx, { key, chainId, token, transfers }))
}

async function claim(): Promise<BatchRow | null> {
  const held = await acquireLease(sql, { chainId, address: randomHex(20), holder: 'a', ttlMs: 60_000 })
  if (!held) throw new Error('no lease')
  lease = held
  return sql.begin((tx) =>
    claimSubmission(tx, lease, { token, batchId: randomHex(32) }),
  ) as Promise<BatchRow | null>
}

async function itemsOf(batch: BatchRow | null): Promise<number> {
  const [row] = await sql<[{ count: number }]>`
    select count(*)::int as count from batch_item i join transfer t on t.id = i.transfer_id or t.fee_of = i.transfer_id
    where i.batch_id = ${batch?.id ?? 0n}`
  return row.count
}

async function batchOf(key: Hex): Promise<bigint | null> {
  const [row] = await sql<[{ id: bigint | null }]>`select batch_id as id from submission where key = ${key}`
  return row.id
}

test('error: a transfer that waits, or is under way, in other company', async () => {
  const [provider, fee] = [transfer(), transfer()]
  await ask(provider, fee)
  await expect(ask(fee)).rejects.toThrow(TransferInProgress)
  const batch = await claim()
  await expect(ask(fee)).rejects.toThrow(TransferInProgress)
  await expect(ask(provider)).rejects.toThrow(TransferInProgress)
  if (batch) await closeBatch(sql, batch.id, { outcome: 'settled', failure: null, now: new Date() })
})

test('behavior: once its submission has failed, a transfer may come back alone, and the first company too', async () => {
  const [provider, fee] = [transfer(), transfer()]
  const key = await ask(provider, fee)
  const first = await claim()
  expect(await itemsOf(first)).toBe(2)
  if (!first) throw new Error('nothing claimed')
  await sql.begin(async (tx) => {
    const failure = 'authorization_used'
    await closeBatch(tx, first.id, { outcome: 'nothing_left', failure, now: new Date() })
  })

  await ask(provider)
  const alone = await claim()
  // Its fee, which wasn't asked for, isn't taken along.
  expect(await itemsOf(alone)).toBe(1)
  await expect(askAs(key, provider, fee)).rejects.toThrow(TransferInProgress)
  if (alone) await closeBatch(sql, alone.id, { outcome: 'lost', failure: null, now: new Date() })

  await askAs(key, provider, fee)
  const again = await claim()
  expect(await itemsOf(again)).toBe(2)
  expect(await readSubmission(sql, key)).toMatchObject({ failureCode: null })
  expect(await batchOf(key)).toBe(again?.id)
})

test('behavior: a payment that was voided since it was submitted is not settled', async () => {
  const { paymentId } = await seedPayment(sql, { provider: await seedProvider(sql) })
  const key = randomHex(32)
  const transfers = [{ authorization: transfer(), paymentId, feeOf: null }]
  await sql.begin((tx) => insertSubmission(tx, { key, chainId, token, transfers }))
  await sql`update payment set voided_at = now() where id = ${paymentId}`
  expect(await claim()).toBeNull()
  expect(await readSubmission(sql, key)).toMatchObject({ failureCode: 'payment_voided' })
  expect(await batchOf(key)).toBeNull()
})
