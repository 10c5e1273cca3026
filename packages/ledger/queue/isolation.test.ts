import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import { claimAs } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { failAll } from '../../../test/support/paymentPosition.ts'
import {
  seedChainId,
  seedHalf,
  seedPayment,
  seedPlatform,
  seedProvider,
  seedScope,
  seedTransfer,
  toCandidate,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { storeSubmission } from '../acceptance/submissions.ts'
import { closeBatch } from '../batches/batches.ts'
import { countBlockedPayers, isolatePayers, readBlocked, readIsolated, unblockPayer } from './isolation.ts'
import { readGroups } from './queue.ts'
import { isolatePayments } from './stages.ts'

const now = new Date()
const sql = await useDatabase()
const provider = await seedProvider(sql)

const seed = async (payer: Address, acceptedAt = now) =>
  (await seedPayment(sql, { provider, payer, acceptedAt })).paymentId

/** Records that these payers' payments failed in one of our transactions. */
const failOnChain = (...payers: Address[]) => isolatePayers(sql, seedScope, payers)

/** Returns the isolated payments that may be tried now. */
async function tryable(): Promise<string[]> {
  const group = (await readGroups(sql, seedScope)).find(({ feeRecipient }) => feeRecipient === seedPlatform)
  if (!group) return []
  return (await readIsolated(sql, group, now, 100)).map(({ id }) => id)
}

const blocked = async (scope = seedScope) =>
  (await readBlocked(sql, scope, 100)).map(({ paymentId }) => paymentId)

async function stageOf(paymentId: string): Promise<string | undefined> {
  const [row] = await sql<{ stage: string }[]>`select stage from queue where payment_id = ${paymentId}`
  return row?.stage
}

describe('payers whose payments fail on chain', () => {
  test('default: retries a payer’s payments separately after the first failure, and not at all after the second', async () => {
    const payer = randomHex(20)
    const payment = await seed(payer)
    expect(await tryable()).toEqual([])
    await failOnChain(payer)
    expect(await stageOf(payment)).toBe('isolated')
    expect(await tryable()).toEqual([payment])
    expect(await blocked()).toEqual([])
    expect(await countBlockedPayers(sql, seedChainId)).toBe(0)

    await failOnChain(payer)
    expect(await tryable()).toEqual([])
    expect(await blocked()).toEqual([payment])
    expect(await countBlockedPayers(sql, seedChainId)).toBe(1)
    await failAll(sql)
  })

  test('behavior: separates all waiting payments of the payer from other payers’ payments', async () => {
    const payer = randomHex(20)
    const payments = [await seed(payer), await seed(payer)]
    const other = await seed(randomHex(20))
    await failOnChain(payer)
    expect(await Promise.all(payments.map(stageOf))).toEqual(['isolated', 'isolated'])
    expect(await stageOf(other)).toBe('waiting')
    await failAll(sql)
  })

  test('behavior: a transaction counts as one failure, regardless of how many of its payments failed in it', async () => {
    const payer = randomHex(20)
    const payment = await seed(payer)
    await failOnChain(payer, payer, payer)
    expect(await tryable()).toEqual([payment])
    await failAll(sql)
  })

  test('behavior: attempts one payment of the payer at a time, the oldest first', async () => {
    const payer = randomHex(20)
    const newer = await seed(payer, now)
    const older = await seed(payer, new Date(now.getTime() - 60_000))
    await failOnChain(payer)
    expect(await tryable()).toEqual([older])
    const { batch } = await claimAs(sql, 'isolated', [older], { now })
    expect(await tryable()).toEqual([])
    await closeBatch(sql, batch?.id ?? 0n, 'released', now)
    expect(await tryable()).toEqual([older])
    expect(await stageOf(newer)).toBe('isolated')
    await failAll(sql)
  })

  test('behavior: attempts the payer’s payments after the isolated payments of payers that never failed', async () => {
    const [liar, honest] = [randomHex(20), randomHex(20)]
    const lies = await seed(liar, new Date(now.getTime() - 60_000))
    const payments = [await seed(honest), await seed(honest)]
    await isolatePayments(sql, payments)
    await failOnChain(liar)
    const tried = await tryable()
    expect(tried.slice(0, 2).toSorted()).toEqual(payments.toSorted())
    expect(tried.slice(2)).toEqual([lies])
    await failAll(sql)
  })

  test('behavior: settles the payer’s waiting payments together with other payers’ payments once the operator unblocks the payer', async () => {
    const [payer, other] = [randomHex(20), randomHex(20)]
    const blockedBefore = await countBlockedPayers(sql, seedChainId)
    const payments = [await seed(payer), await seed(payer)]
    const others = await seed(other)
    await failOnChain(payer, other)
    await failOnChain(payer)
    const unblock = (of = payer, chainId?: number) =>
      sql.begin((tx) => unblockPayer(tx, { payer: of, chainId }, now))
    expect(await unblock(payer, 8453)).toEqual([])
    expect(await blocked()).toEqual(expect.arrayContaining(payments))
    const { chainId, token } = seedScope
    expect(await unblock()).toEqual([{ chainId, token, minedFailures: 2, released: 2 }])
    expect(await Promise.all(payments.map(stageOf))).toEqual(['waiting', 'waiting'])
    expect(await stageOf(others)).toBe('isolated')
    expect(await blocked()).toEqual([])
    expect(await countBlockedPayers(sql, seedChainId)).toBe(blockedBefore)
    expect(await unblock(payer, chainId)).toEqual([{ chainId, token, minedFailures: 0, released: 0 }])
    // The payer's next failure counts as the first one again.
    await failOnChain(payer)
    expect(await blocked()).toEqual([])
    await failAll(sql)
  })

  test('behavior: also fails the payer’s submissions after the second failure', async () => {
    const payer = randomHex(20)
    await seed(payer)
    await failOnChain(payer)
    await failOnChain(payer)
    await failAll(sql)
    const key = randomHex(32)
    const candidate = toCandidate({ source: 'submission', payer, acceptedAt: now, halves: [seedHalf()] })
    await sql.begin((tx) => storeSubmission(tx, { key, candidates: [candidate], known: [] }, now))
    expect(await readBlocked(sql, seedScope, 100)).toEqual([{ paymentId: candidate.id, submission: key }])
    await failAll(sql)
  })

  test('behavior: failures on one chain don’t count on other chains', async () => {
    const payer = randomHex(20)
    await seed(payer)
    const { paymentId: elsewhere } = await seedTransfer(sql, {
      payer,
      chainId: 84_532,
      source: 'facilitator',
      facilitation: { providerId: null, paymentIdentifier: null },
      feeRecipient: seedPlatform,
    })
    await isolatePayments(sql, [elsewhere])
    await failOnChain(payer)
    await failOnChain(payer)
    expect(await blocked({ ...seedScope, chainId: 84_532 })).toEqual([])
    expect(await countBlockedPayers(sql, 84_532)).toBe(0)
    const [group] = await readGroups(sql, { ...seedScope, chainId: 84_532 })
    if (!group) throw new Error('Expected a group')
    expect((await readIsolated(sql, group, now, 100)).map(({ id }) => id)).toEqual([elsewhere])
    await failAll(sql)
  })
})
