import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedChainId, seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { recordFailure } from '../queue/failures.ts'
import { bookGas, drawGas } from '../queue/gasDraws.ts'
import { isolatePayers } from '../queue/isolation.ts'
import { endPayments, releasePayments } from '../queue/stages.ts'
import { readGasCost } from './gasCosts.ts'
import { insertTransaction, markMined, markUnmined } from './transactions.ts'

const noon = new Date('2026-11-23T12:00:00Z')

const sql = await useDatabase()

/** Opens a batch of one payment and sends its transaction. */
async function openBatch(paymentId: string) {
  const [{ token }] = await sql<[{ token: Address }]>`select token from payment where id = ${paymentId}`
  const [batch] = await sql<[{ id: bigint }]>`
    insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence)
    values (${randomHex(32)}, ${seedChainId}, ${token}, ${randomHex(20)}, 'time', 'shared', ${randomHex(20)}, 1)
    returning id`
  await sql`insert into batch_item (batch_id, position, payment_id) values (${batch.id}, 0, ${paymentId})`
  await sql`update queue set stage = 'sent', batch_id = ${batch.id} where payment_id = ${paymentId}`
  const hash = randomHex(32)
  await insertTransaction(sql, {
    hash,
    batchId: batch.id,
    chainId: seedChainId,
    wallet: randomHex(20),
    nonce: 1,
    kind: 'settle',
    raw: '0x00',
    gas: 1n,
    maxFeePerGas: 1n,
    maxPriorityFeePerGas: 0n,
  })
  return { ...batch, hash, token }
}

const drawnOf = async () => {
  const [row] = await sql<[{ drawn: bigint | null }]>`select sum(drawn) as drawn from gas_draw`
  return BigInt(row.drawn ?? 0n)
}

test('behavior: a reorg reverts a transaction’s cost, its payments’ failures, and the failures counted for their payers', async () => {
  const provider = await seedProvider(sql)
  const { paymentId, payer } = await seedPayment(sql, { provider, feeAmount: 10n })
  const wants = [{ paymentId, amount: 50n, fromBudget: true }]
  await drawGas(sql, seedChainId, wants, { budget: null, common: 0n }, noon)
  const { hash, token, ...batch } = await openBatch(paymentId)
  const standing = async () => {
    const [row] = await sql<[{ attempts: number; spent: bigint; failures: number }]>`
      select q.attempts, q.gas_spent as spent, p.mined_failures as failures
      from queue q join payer p on p.address = q.payer where q.payment_id = ${paymentId}`
    const failed = await sql`select from settlement_failure where payment_id = ${paymentId}`
    const cost = await readGasCost(sql, seedChainId, noon)
    return { ...row, spent: BigInt(row.spent), failed: failed.length, cost, drawn: await drawnOf() }
  }
  const untried = { attempts: 0, spent: 0n, failures: 0, failed: 0, cost: 0n }
  expect(await standing()).toEqual({ ...untried, drawn: 50n })

  const mined = { blockNumber: 1n, blockHash: randomHex(32), succeeded: false }
  const markOnce = () => markMined(sql, hash, { ...mined, cost: 40n, now: noon, refused: [payer] })
  await markOnce()
  // Reading the receipt a second time changes nothing.
  await markOnce()
  await isolatePayers(sql, { chainId: seedChainId, token }, [payer])
  await bookGas(sql, batch.id, { cost: 40n, isOver: false, now: noon })
  await releasePayments(sql, batch.id, noon)
  const failure = { paymentId, batchId: batch.id, code: 'insufficient_balance', detail: '', isFinal: false }
  await recordFailure(sql, failure, { now: noon })
  expect(await standing()).toEqual({
    attempts: 1,
    spent: 30n,
    failures: 1,
    failed: 1,
    cost: 40n,
    drawn: 50n,
  })

  await markUnmined(sql, batch.id)
  // The payment's reservation stays available for the next attempt.
  expect(await standing()).toEqual({ ...untried, drawn: 20n })
})

test.each([
  [
    'returns the amount that was drawn from the budget for costs beyond fees, such as sweeps',
    false,
    false,
    0n,
  ],
  ['reserves the drawn amount again for a payment that is still in the batch', true, false, 90n],
  ['returns the amount that was drawn for a payment that has ended', true, true, 0n],
])('behavior: a reorg %s', async (_, draws, isOver, left) => {
  const provider = await seedProvider(sql)
  const { paymentId, payer } = await seedPayment(sql, { provider, feeAmount: 10n })
  await sql`delete from gas_draw`
  const wants = [{ paymentId, amount: 50n, fromBudget: true }]
  if (draws) await drawGas(sql, seedChainId, wants, { budget: null, common: 0n }, noon)
  const batch = await openBatch(paymentId)
  const mine = async () => {
    const mined = { blockNumber: 1n, blockHash: randomHex(32), succeeded: !isOver, refused: [payer] }
    await markMined(sql, batch.hash, { ...mined, cost: 100n, now: noon })
    await bookGas(sql, batch.id, { cost: 100n, isOver: !isOver, now: noon })
  }
  await mine()
  const failed = { paymentId, kind: 'failed' as const, code: 'x', isFinal: false }
  if (isOver) await endPayments(sql, [failed], noon, batch.id)
  expect(await drawnOf()).toBe(90n)
  await markUnmined(sql, batch.id)
  expect(await drawnOf()).toBe(left)
  if (isOver) return
  // When the transaction is mined again, its cost still counts only once.
  await mine()
  expect(await drawnOf()).toBe(90n)
})
