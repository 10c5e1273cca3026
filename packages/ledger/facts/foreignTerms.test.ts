import type { ChainReads } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { beforeEach, describe, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import {
  blockHashOf,
  type SeedProvider,
  seedChainId,
  seedPlatform,
  seedProvider,
  seedToken,
} from '../../../test/support/seedPayments.ts'
import { type SeededTab, type SettledAt, seedTab, settleTab } from '../../../test/support/seedTabs.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { badDebt } from '../acceptance/badDebt.ts'
import { createPayers } from '../acceptance/payers.ts'
import { endPayments } from '../queue/stages.ts'
import { dropBlock } from './record.ts'

// A payer holds the only key that a tab needs, so it can sign a state under other terms and settle that state itself.

const sql = await useDatabase()
let provider: SeedProvider
let other: SeedProvider
let payer: Address
let tab: SeededTab
beforeEach(async () => {
  provider = await seedProvider(sql)
  other = await seedProvider(sql)
  payer = randomHex(20)
  tab = await seed()
})

/**
 * A tab with 1,000 on one provider's line and 2,000 on another provider's line. The platform's part is a tenth, and the reward is 5% of that part.
 */
const seed = () =>
  seedTab(sql, {
    payer,
    sales: [
      { provider, amount: 1_000n },
      { provider: other, amount: 2_000n },
    ],
  })

const readEvent = async () =>
  (
    await sql<{ state: string; lostFeeShare: number }[]>`
      select state, lost_fee_share as "lostFeeShare" from authorization_event where payment_id = ${tab.paymentId}`
  )[0]

const readMoved = async () =>
  (
    await sql<{ moved: bigint | null }[]>`
      select moved from tab_line where payment_id = ${tab.paymentId} order by position`
  ).map(({ moved }) => moved)

const readDebt = async () =>
  (
    await sql<{ value: bigint; code: string }[]>`
      select value, code from ${badDebt(sql)} debt where debt.payer = ${payer}`
  ).map(({ value, code }) => [value, code])

const readSums = () =>
  sql`
    select provider_id as "providerId", settled_payments as "settledPayments", settled_net as "settledNet",
      settled_fee as "settledFee"
    from revenue where period = 'day' and provider_id in (${provider.providerId}, ${other.providerId})
    order by settled_net`

/** Finalizes the tab by its recorded events. */
async function finalize(): Promise<void> {
  const { state } = (await readEvent()) ?? {}
  const kind = state === 'settled' ? 'settled' : 'failed'
  const code = state === 'settled' ? null : 'authorization_used'
  await endPayments(sql, [{ paymentId: tab.paymentId, kind, code, isFinal: true }], new Date())
}

/** Reads the payer's credit on tabs from its settled payments. */
async function readEarned(): Promise<bigint | null> {
  const client = { getBlockNumber: async () => 1_000n }
  const served = { network: networks.localhost, token: seedToken, client } as unknown as ServedNetwork
  const payers = createPayers(served, {} as Pick<ChainReads, 'read'>, {
    database: sql,
    checkBalance: false,
    caps: { payer: null, newPayer: null },
    tabCredit: { base: 1_000_000n, basisPoints: 10_000n },
    balanceTtlMs: 30_000,
    now: Date.now,
  })
  const { earnedLimit, tabLimit } = await payers.allowance(payer)
  return earnedLimit === null || tabLimit === null ? null : earnedLimit
}

const ofPayer = (): SettledAt => ({ platform: payer, blockNumber: 50 })

describe('a tab that its payer settled with itself as the platform', () => {
  test('behavior: the settlement is a foreign use, and the tab’s lines count with the amounts that moved', async () => {
    await settleTab(sql, tab, ofPayer())
    expect(await readEvent()).toEqual({ state: 'foreign_use', lostFeeShare: 10_000 })
    expect(await readMoved()).toEqual([1_000n, 2_000n])
  })

  test('behavior: the payer owes the platform’s part', async () => {
    await settleTab(sql, tab, ofPayer())
    expect(await readDebt()).toEqual([[300n, 'authorization_used']])
    await finalize()
    expect(await readDebt()).toEqual([[300n, 'authorization_used']])
  })

  test('behavior: the providers are paid, but no fee is settled', async () => {
    await settleTab(sql, tab, ofPayer())
    await finalize()
    expect(await readSums()).toEqual([
      { providerId: provider.providerId, settledPayments: 10, settledNet: 900n, settledFee: 0n },
      { providerId: other.providerId, settledPayments: 10, settledNet: 1_800n, settledFee: 0n },
    ])
  })

  test('behavior: the payer earns no credit, unlike from a tab under the accepted terms', async () => {
    await settleTab(sql, tab, ofPayer())
    await finalize()
    expect(await readEarned()).toBeNull()

    tab = await seed()
    await settleTab(sql, tab, { blockNumber: 51 })
    await finalize()
    expect(await readEarned()).not.toBeNull()
  })

  test('behavior: the settlement has no effect any more once a reorg dropped its block', async () => {
    await settleTab(sql, tab, ofPayer())
    await dropBlock(sql, seedChainId, { blockNumber: 50n, blockHash: blockHashOf(50) })
    expect([await readEvent(), await readMoved(), await readDebt()]).toEqual([undefined, [null, null], []])
    await settleTab(sql, tab, { blockNumber: 51 })
    expect(await readEvent()).toEqual({ state: 'settled', lostFeeShare: 0 })
    expect(await readMoved()).toEqual([null, null])
  })

  test('behavior: if a later block shows a settlement under the accepted terms, the tab counts as settled', async () => {
    await settleTab(sql, tab, ofPayer())
    await settleTab(sql, tab, { blockNumber: 51 })
    expect(await readEvent()).toEqual({ state: 'settled', lostFeeShare: 0 })
    expect([await readMoved(), await readDebt()]).toEqual([[null, null], []])
  })
})

describe('the reward of a settled tab', () => {
  test('behavior: a larger reward than accepted is a foreign use, and the excess is the payer’s debt', async () => {
    await settleTab(sql, tab, { rewardShare: 5_500 })
    expect(await readEvent()).toEqual({ state: 'foreign_use', lostFeeShare: 5_000 })
    expect(await readDebt()).toEqual([[150n, 'authorization_used']])
    await finalize()
    expect(await readSums()).toMatchObject([{ settledFee: 50n }, { settledFee: 100n }])
  })

  test('behavior: if the reward was the whole fee, the payer owes the excess over the accepted reward', async () => {
    await settleTab(sql, tab, { rewardShare: 10_000 })
    expect(await readDebt()).toEqual([[285n, 'authorization_used']])
  })

  test('behavior: a smaller reward than accepted costs the platform nothing', async () => {
    await settleTab(sql, tab, { rewardShare: 0 })
    expect(await readEvent()).toEqual({ state: 'settled', lostFeeShare: 0 })
    expect(await readDebt()).toEqual([])
  })

  test('default: if the reward is the accepted reward, the tab counts as settled with its whole fee', async () => {
    await settleTab(sql, tab, { platform: seedPlatform, rewardShare: 500 })
    expect(await readEvent()).toEqual({ state: 'settled', lostFeeShare: 0 })
    await finalize()
    expect(await readSums()).toMatchObject([{ settledFee: 100n }, { settledFee: 200n }])
  })
})
