import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { explain } from '../../../test/support/explain.ts'
import { seedChainId, seedPayment, seedProvider, seedSettlement } from '../../../test/support/seedPayments.ts'
import { recordFailure } from '../queue/failures.ts'
import { isolatePayers } from '../queue/isolation.ts'
import { endPayments } from '../queue/stages.ts'
import { readExposures } from './exposure.ts'
import { createPayers } from './payers.ts'

const token: Address = `0x${'ab'.repeat(20)}`

const sql = await useDatabase()

const served = { network: networks.localhost, token } as unknown as ServedNetwork

async function unsettledOf(payer: Address, { block = 0n, now = Math.floor(Date.now() / 1000) } = {}) {
  const read = await readExposures(sql, served, { payers: [payer], block, now, withHistory: false })
  return read.get(payer)?.unsettled
}

async function isBlocked(payer: Address): Promise<boolean | undefined> {
  const question = { payers: [payer], block: 0n, now: Math.floor(Date.now() / 1000), withHistory: true }
  return (await readExposures(sql, served, question)).get(payer)?.isBlocked
}

test('behavior: a payer whose payment failed on chain is blocked until that payment settles', async () => {
  const payment = await seedPayment(sql, { provider: await seedProvider(sql) })
  const { payer } = payment
  expect(await isBlocked(payer)).toBe(false)
  await isolatePayers(sql, { chainId: seedChainId, token }, [payer])
  expect(await isBlocked(payer)).toBe(true)
  // The payment settles after all.
  await seedSettlement(sql, payment)
  expect(await isBlocked(payer)).toBe(false)
})

test('behavior: a payer whose wallet rejected a payment’s signature is blocked until that payment settles; other failures don’t block the payer', async () => {
  const payment = await seedPayment(sql, { provider: await seedProvider(sql) })
  const { payer, paymentId } = payment
  const fail = (code: string) =>
    recordFailure(sql, { paymentId, batchId: null, code, detail: '', isFinal: false }, { now: new Date() })
  await fail('insufficient_balance')
  expect(await isBlocked(payer)).toBe(false)
  await fail('invalid_signature')
  expect(await isBlocked(payer)).toBe(true)
  await seedSettlement(sql, payment)
  expect(await isBlocked(payer)).toBe(false)
})

test('behavior: a payment that settled after the block at which the balance was read counts as unsettled, even if it is final', async () => {
  const payment = await seedPayment(sql, { provider: await seedProvider(sql) })
  const { payer } = payment
  await seedSettlement(sql, payment, { blockNumber: 200 })
  await endPayments(sql, [{ ...payment, kind: 'settled', code: null, isFinal: true }], new Date())
  expect(await unsettledOf(payer, { block: 199n })).toBe(50_000n)
  expect(await unsettledOf(payer, { block: 200n })).toBe(0n)
  // After ten minutes, all queried nodes have the settlement's block.
  const now = Math.floor(Date.now() / 1000)
  expect(await unsettledOf(payer, { block: 199n, now: now + 590 })).toBe(50_000n)
  expect(await unsettledOf(payer, { block: 199n, now: now + 610 })).toBe(0n)
})

test('behavior: a failed payment counts as unsettled until its failure is final', async () => {
  const { payer, paymentId } = await seedPayment(sql, { provider: await seedProvider(sql) })
  const failed = { paymentId, kind: 'failed', code: 'settlement_failed' } as const
  await endPayments(sql, [{ ...failed, isFinal: false }], new Date())
  expect(await unsettledOf(payer)).toBe(50_000n)
  await endPayments(sql, [{ ...failed, isFinal: true }], new Date())
  expect(await unsettledOf(payer, { now: Math.floor(Date.now() / 1000) + 610 })).toBe(0n)
})

test('behavior: an expired authorization still counts as unsettled for two minutes, because the chain’s clock may lag', async () => {
  const now = Math.floor(Date.now() / 1000)
  const validBefore = now + 1_000
  const { payer } = await seedPayment(sql, { provider: await seedProvider(sql), validBefore })
  expect(await unsettledOf(payer, { now: validBefore + 119 })).toBe(50_000n)
  expect(await unsettledOf(payer, { now: validBefore + 120 })).toBe(0n)
})

test('behavior: if the balance that was read with the debts differs from the balance that the caller passes, the lower balance counts', async () => {
  const { payer } = await seedPayment(sql, { provider: await seedProvider(sql) })
  const stateOf = (balance: bigint, blockNumber: bigint): PayerState => ({
    blockNumber,
    balance,
    hasCode: false,
    isBlacklisted: false,
    isPaused: false,
    isUsed: [false, false],
  })
  const payers = createPayers(
    served,
    { read: async () => stateOf(80_000n, 100n) },
    {
      database: sql,
      checkBalance: true,
      caps: { payer: null, newPayer: null },
      balanceTtlMs: 30_000,
      now: Date.now,
    },
  )
  expect(await payers.allowance(payer)).toMatchObject({ available: 80_000n, limit: 80_000n })
  // After the debts were read, a reorg returned settled money, or someone sent money to the wallet.
  expect(await payers.allowance(payer, stateOf(130_000n, 99n))).toMatchObject({ available: 80_000n })
  expect(await payers.allowance(payer, stateOf(30_000n, 101n))).toMatchObject({ available: 30_000n })
})

test('behavior: for many payers, reads only these payers’ payments, even if Postgres’s statistics contain no authorization that is still valid', async () => {
  const provider = await seedProvider(sql)
  const payers: Address[] = []
  for (let index = 0; index < 150; index++) payers.push((await seedPayment(sql, { provider })).payer)
  await sql`analyze signed_authorization, queue, payment`
  const now = Math.floor(Date.now() / 1000) + 10 * 86_400
  const asked = { payers: payers.slice(0, 100), block: 0n, now, withHistory: false }
  const read = await explain(sql, /^\s*select asked\.address/, (explaining) =>
    readExposures(explaining, served, asked),
  )
  // Each payer has one payment, whose two halves are looked up once for the owed amount and once for debts.
  const rowsOf = (table: string) =>
    Object.entries(read).reduce((sum, [way, rows]) => sum + (way.endsWith(` ${table}`) ? rows : 0), 0)
  expect([rowsOf('queue'), rowsOf('signed_authorization')]).toEqual([2 * 100, 4 * 100])
})
