import { findRevenue } from '@tollkeeper/api/views/revenueQueries'
import { finalityOf } from '@tollkeeper/chain/finality'
import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { badDebt } from '@tollkeeper/ledger/acceptance/badDebt'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Address, Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import { withoutIndex } from '../support/indexTables.ts'
import {
  transactionsOf as allTransactionsOf,
  attemptsOf,
  hourAgo,
  mine,
  mineUntil,
  queueDue,
  settleAll,
  testClient,
  untilIndexed,
  untilRecorded,
  whileRecording,
  whileRunning,
} from '../support/keeperScenes.ts'
import { platformWallet, type QueuedPayment, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { expire, positionOf, voidNow } from '../support/paymentPosition.ts'
import { untilInRecord } from '../support/recorder.ts'
import { until } from '../support/until.ts'
import { cancelDirectly, sendDirectly } from '../support/usdc.ts'

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 1_500 })

async function submitDirectly(authorization: SignedAuthorization): Promise<void> {
  const hash = await sendDirectly(stack, authorization)
  await stack.served.client.waitForTransactionReceipt({ hash })
}

const transactionsOf = (payment: QueuedPayment) => allTransactionsOf(stack, [payment])

/** Returns the notifications that the provider of a payment got, oldest first. */
async function notificationsOf({ paymentId }: QueuedPayment) {
  return stack.database<
    { event: string; txHash: string; occurrence: number; data: Record<string, unknown> }[]
  >`
    select event, tx_hash as "txHash", occurrence, data from outbox where payment_id = ${paymentId} order by id`
}

async function untilNotified(payment: QueuedPayment, count: number) {
  await until(
    `${count} notifications are written`,
    async () => (await notificationsOf(payment)).length >= count,
  )
  return notificationsOf(payment)
}

/** Returns the settled revenue of all time, as the provider's view shows it. */
async function settledRevenue({ paymentId }: QueuedPayment): Promise<bigint> {
  const [owner] = await stack.database<{ providerId: string }[]>`
    select provider_id as "providerId" from payment where id = ${paymentId}`
  const [total] = await findRevenue(stack.database, {
    providerId: owner?.providerId ?? '',
    interval: 'total',
    testnet: true,
    groupBy: 'none',
    from: new Date(0),
    to: new Date(Date.now() + 86_400_000),
    after: null,
    limit: 1,
    now: new Date(),
  })
  return total?.settledNet ?? 0n
}

describe('strangers', () => {
  test.each(['provider', 'fee'] as const)(
    'behavior: if a stranger sends the %s authorization straight to USDC, settles the other authorization',
    async (half) => {
      const [payment] = await queueDue(stack)
      await submitDirectly(payment[half])
      await settleAll(stack, [payment])
      expect(await attemptsOf(stack, [payment])).toEqual([0])
      expect(await stack.balanceOf(payment.provider.from)).toBe(0n)
    },
  )

  test('behavior: if a stranger sends both authorizations straight to USDC, sends no transaction', async () => {
    const [payment] = await queueDue(stack)
    await submitDirectly(payment.provider)
    await submitDirectly(payment.fee)
    await whileRunning([stack.keeper()], async () => {
      await until('both halves are settled', () => stack.isSettled([payment]))
      await testClient(stack).mine({ blocks: 1 })
      const [half] = await stack.halves(payment)
      expect(await untilNotified(payment, 1)).toMatchObject([
        { event: 'payment.settled', txHash: half?.txHash },
      ])
    })
    expect(await transactionsOf(payment)).toEqual([])
    expect(await attemptsOf(stack, [payment])).toEqual([0])
  })

  test('behavior: if a payer cancels the provider’s authorization, waives the fee, and fails the payment once the cancellation is final', async () => {
    const [buyer] = await stack.buyers(1, 50_000n)
    const payment = await stack.queue({ buyer, price: 50_000n, acceptedAt: hourAgo() })
    await cancelDirectly(stack, buyer, payment.provider.nonce)
    await whileRunning([stack.keeper()], async () => {
      await until('it has left the queue', async () => (await recordOf(payment)).kind === 'spent')
      expect(await recordOf(payment)).toMatchObject({ attempts: 0, failedAt: null })
      expect(await notificationsOf(payment)).toEqual([])
      await mine(stack, Number(finalityOf(stack.served.network.chainId)))
      await until('it failed', async () => (await recordOf(payment)).failedAt !== null)
    })
    expect(await recordOf(payment)).toMatchObject({ attempts: 1, failureCode: 'authorization_cancelled' })
    expect(await notificationsOf(payment)).toMatchObject([{ event: 'settlement.failed' }])
    expect(await transactionsOf(payment)).toEqual([])
    expect(await stack.balanceOf(payment.provider.from)).toBe(50_000n)
  })

  test('behavior: if a payer cancels only the fee’s authorization, pays the provider, records the fee as a debt, and sends no failure notification', async () => {
    const [buyer] = await stack.buyers(1, 50_000n)
    const payment = await stack.queue({ buyer, price: 50_000n, acceptedAt: hourAgo() })
    await cancelDirectly(stack, buyer, payment.fee.nonce)
    let claims = 0
    const checkpoint = (name: CheckpointName) => {
      if (name === 'before-claim') claims += 1
    }
    await whileRunning([stack.keeper({ checkpoint })], async () => {
      await until('it has left the queue', async () => (await recordOf(payment)).kind === 'spent')
      const before = await versionOf(payment)
      const { client, network } = stack.served
      await mine(stack, Number(finalityOf(network.chainId)) - 3)
      for (let round = 0; round < 2; round++) {
        await mine(stack, 1)
        const head = await client.getBlockNumber({ cacheTime: 0 })
        await until('the record has reached the head', async () => {
          return (await readRecordHead(stack.database, network.chainId))?.blockNumber === head
        })
      }
      claims = 0
      await until('the queue was read repeatedly', () => claims >= 20)
      expect(await versionOf(payment)).toBe(before)
      await mine(stack, 2)
      await until('it is finalized', async () => (await recordOf(payment)).isFinal)
    })
    expect(await recordOf(payment)).toMatchObject({
      attempts: 0,
      failedAt: null,
      failureCode: 'authorization_cancelled',
    })
    expect(await stack.balanceOf(payment.provider.to)).toBeGreaterThanOrEqual(47_500n)
    expect(await stack.balanceOf(payment.provider.from)).toBe(2_500n)
    expect(await notificationsOf(payment)).toEqual([])
    const owed = await stack.database<{ half: number; value: bigint; code: string }[]>`
      select half, value, code from ${badDebt(stack.database)} debt where payment_id = ${payment.paymentId}`
    expect([...owed]).toEqual([{ half: 1, value: 2_500n, code: 'authorization_cancelled' }])
  })
})

const recordOf = (payment: QueuedPayment) => positionOf(stack.database, payment)

/** Returns a value that changes with each write of the payment's result. */
async function versionOf({ paymentId }: QueuedPayment): Promise<string | undefined> {
  const [row] = await stack.database<{ version: string }[]>`
    select xmin::text as version from payment_result where payment_id = ${paymentId}`
  return row?.version
}

describe('voided payments', () => {
  test('behavior: the keeper never claims a voided payment, and deletes its signatures once it expires', async () => {
    const [payment] = await queueDue(stack)
    await voidNow(stack.database, payment)
    const [other] = await queueDue(stack)
    await settleAll(stack, [other])
    expect(await transactionsOf(payment)).toEqual([])

    await expire(stack.database, payment)
    await whileRunning([stack.keeper()], () =>
      until('the signatures are deleted', async () => {
        const rows = await stack.database`select from presentation where payment_id = ${payment.paymentId}`
        return rows.length === 0
      }),
    )
  })

  test('behavior: if the provider settles a voided payment anyway, revokes the void and claims the fee', async () => {
    const [payment] = await queueDue(stack)
    await voidNow(stack.database, payment)
    await submitDirectly(payment.provider)
    await settleAll(stack, [payment])
    const [provider] = await stack.database<{ violations: number }[]>`
      select void_violations as violations from provider
      where id = (select provider_id from payment where id = ${payment.paymentId})`
    expect(provider?.violations).toBe(1)
  })
})

test('behavior: records a batch’s confirmation once, with the time of the block that confirms it', async () => {
  const [payment] = await queueDue(stack)
  await whileRunning([stack.keeper()], async () => {
    await until('it is settled', () => stack.isSettled([payment]))
    const [half] = await stack.halves(payment)
    const block = half?.blockNumber ?? 0n
    const find = () => stack.database<{ at: Date }[]>`
      select confirmed_at as at from recorded_block
      where hash = ${half?.blockHash ?? ''} and confirmed_at is not null`
    expect(await find()).toEqual([])
    await testClient(stack).mine({ blocks: 1 })
    await until('it is confirmed', async () => (await find()).length === 1)
    const next = await stack.served.client.getBlock({ blockNumber: block + 1n })
    expect((await find())[0]?.at).toEqual(new Date(Number(next.timestamp) * 1000))
  })
})

describe('transactions', () => {
  test('behavior: sends an unmined transaction again, then raises both of its fees by at least 10% each time until one replacement is mined', async () => {
    const [payment] = await queueDue(stack)
    const chain = testClient(stack)
    await chain.setAutomine(false)
    await whileRunning([stack.keeper()], async () => {
      await until('two replacements are out', async () => (await transactionsOf(payment)).length >= 3)
      await chain.setAutomine(true)
      await chain.mine({ blocks: 1 })
      await until('it is settled', () => stack.isSettled([payment]))
      await until('the mined one is recorded', async () => {
        return (await transactionsOf(payment)).filter((one) => one.mined !== null).length === 1
      })
    })
    const all = await transactionsOf(payment)
    expect(new Set(all.map((one) => one.nonce)).size).toBe(1)
    for (const [index, { maxFee, priority }] of all.entries()) {
      const before = all[index - 1]
      if (!before) continue
      expect(maxFee * 100n).toBeGreaterThanOrEqual(before.maxFee * 110n)
      expect(priority).toBeGreaterThan(before.priority)
    }
  })

  test('behavior: cancels the nonce of a stuck batch if strangers have settled all its payments', async () => {
    const [payment] = await queueDue(stack)
    const chain = testClient(stack)
    await chain.setAutomine(false)
    await sendDirectly(stack, payment.provider)
    await sendDirectly(stack, payment.fee)
    // The keeper's offer, based on the latest block, is too low for the next block, which executes both direct transfers.
    await chain.setNextBlockBaseFeePerGas({ baseFeePerGas: 10_000_000_000n })
    await whileRunning([stack.keeper()], async () => {
      await until('it is out', async () => (await transactionsOf(payment)).length > 0)
      await chain.mine({ blocks: 1 })
      // With automine on, the node rejects a second transaction with the same nonce, so send the cancellation before.
      await until('its cancellation is out', async () => {
        const last = (await transactionsOf(payment)).at(-1)
        return last?.kind === 'cancellation' && last.isOut
      })
      await chain.setAutomine(true)
      await mineUntil(stack, 'it is settled', () => stack.isSettled([payment]))
      await mineUntil(stack, 'its block is final, and the batch is over', async () => {
        const all = await transactionsOf(payment)
        return all.every((one) => one.state === 'closed')
      })
    })
    const all = await transactionsOf(payment)
    expect(all.at(-1)).toMatchObject({ kind: 'cancellation' })
    expect(all.at(-1)?.mined).not.toBeNull()
    expect(await attemptsOf(stack, [payment])).toEqual([0])
    expect(await stack.balanceOf(payment.provider.from)).toBe(0n)
  })

  test('behavior: two keepers with a shared wallet settle every payment once', async () => {
    const payments = await queueDue(stack, 40, 60_000n)
    const keepers = [
      stack.keeper({ accounts: [walletAccount(1)] }),
      stack.keeper({ accounts: [walletAccount(1), walletAccount(2)] }),
    ]
    const before = await stack.balanceOf(platformWallet)
    await whileRunning(keepers, () => until('all are settled', () => stack.isSettled(payments)))
    expect((await stack.balanceOf(platformWallet)) - before).toBe(40n * 3_000n)
    for (const { provider } of payments) expect(await stack.balanceOf(provider.from)).toBe(0n)
  })
})

describe('reorgs', () => {
  test.each([
    { name: 'a mined batch', replaced: false, depth: 0 },
    { name: 'a batch and its replacement', replaced: true, depth: 0 },
    { name: 'a batch that was already confirmed', replaced: false, depth: 3 },
  ])(
    'behavior: after a reorg drops $name, settles the payment again, and only once',
    async ({ replaced, depth }) => {
      const [payment] = await queueDue(stack)
      const chain = testClient(stack)
      await stack.chain.mintUsdc([walletAccount(9).address as Address], 1n)
      const snapshot = await chain.snapshot()
      await chain.setAutomine(!replaced)
      await whileRunning([stack.keeper()], async () => {
        if (replaced) {
          await until('a replacement is out', async () => (await transactionsOf(payment)).length >= 2)
          await chain.setAutomine(true)
          await chain.mine({ blocks: 1 })
        }
        await until('it is settled', () => stack.isSettled([payment]))
        const [first] = await stack.halves(payment)
        for (let i = 0; i < depth; i++) await chain.mine({ blocks: 1 })
        const isConfirmed = async (blockHash: string) => {
          const rows = await stack.database`
            select from recorded_block where hash = ${blockHash} and confirmed_at is not null`
          return rows.length > 0
        }
        if (depth > 0) await until('it is confirmed', () => isConfirmed(first?.blockHash ?? ''))
        await chain.revert({ id: snapshot })
        await chain.setAutomine(true)
        for (let i = 0; i < 4 + depth; i++) await chain.mine({ blocks: 1 })
        await until('the views show the reorg', async () => {
          const [half] = await stack.halves(payment)
          return half?.state === 'open' || half?.blockHash !== first?.blockHash
        })
        await until('it is settled again', async () => {
          const [half] = await stack.halves(payment)
          return half?.state === 'settled' && half.blockHash !== first?.blockHash
        })
        await chain.mine({ blocks: 1 })
        await until('the new block is confirmed', async () => {
          const [half] = await stack.halves(payment)
          return isConfirmed(half?.blockHash ?? '')
        })
      })
      expect(await attemptsOf(stack, [payment])).toEqual([0])
      expect(await stack.balanceOf(payment.provider.from)).toBe(0n)
      expect(await stack.balanceOf(payment.provider.to)).toBeGreaterThan(0n)
    },
  )
})

describe('notifications', () => {
  test('behavior: notifies once that a payment is confirmed; if a deeper reorg drops the payment, notifies again and settles the payment again with the same transaction', async () => {
    const [payment] = await queueDue(stack)
    const chain = testClient(stack)
    const snapshot = await chain.snapshot()
    await whileRunning([stack.keeper(), stack.keeper({ accounts: [walletAccount(1)] })], async () => {
      await until('it is settled', () => stack.isSettled([payment]))
      expect(await notificationsOf(payment)).toEqual([])
      await chain.mine({ blocks: 1 })
      await untilNotified(payment, 1)
      for (let i = 0; i < 2; i++) await chain.mine({ blocks: 1 })
    })
    const [first] = await stack.halves(payment)
    const txHash = first?.txHash ?? ''
    const revenue = await settledRevenue(payment)
    expect(revenue).toBe(await stack.balanceOf(stack.payee))
    expect(await notificationsOf(payment)).toMatchObject([
      {
        event: 'payment.settled',
        txHash,
        data: { network: 'localhost', providerUsdc: '47500', platformUsdc: '2500', platformTxHash: txHash },
      },
    ])
    const batches = () => stack.database<{ occurrence: number; data: object }[]>`
      select occurrence, data from outbox where event = 'batch.confirmed' and tx_hash = ${txHash} order by id`
    expect(await batches()).toMatchObject([{ occurrence: 1, data: { payments: 1, providerUsdc: '47500' } }])

    await chain.revert({ id: snapshot })
    // The keeper immediately sends its transaction again, but no block includes it yet.
    await chain.setAutomine(false)
    for (let i = 0; i < 6; i++) await chain.mine({ blocks: 1 })
    await untilIndexed(stack)
    await whileRunning([stack.keeper()], async () => {
      expect((await untilNotified(payment, 2))[1]).toMatchObject({ event: 'payment.reverted', txHash })
      expect(await settledRevenue(payment)).toBe(revenue - 47_500n)
      expect(await stack.balanceOf(stack.payee)).toBe(revenue - 47_500n)
      await chain.setAutomine(true)
      await chain.mine({ blocks: 1 })
      await until('it is settled again', () => stack.isSettled([payment]))
      await chain.mine({ blocks: 1 })
      const notifications = await untilNotified(payment, 3)
      const [half] = await stack.halves(payment)
      expect(notifications[2]).toMatchObject({
        event: 'payment.settled',
        txHash: half?.txHash,
        occurrence: 2,
      })
      await untilRecorded(stack)
    })
    expect(await notificationsOf(payment)).toHaveLength(3)
    expect(await settledRevenue(payment)).toBe(revenue)
    expect(await stack.balanceOf(stack.payee)).toBe(revenue)
  })
})

describe('the keeper’s record of the chain', () => {
  test('behavior: leaves all payments queued while the record is behind the chain', async () => {
    const [payment] = await queueDue(stack)
    const steps: string[] = []
    const blind = stack.keeper({ checkpoint: (name) => void steps.push(name) })
    await whileRecording(stack, () => untilInRecord(stack))
    await withoutIndex(stack.database, async () => {
      await mine(stack, Number(stack.settings.maxIndexLagBlocks) + 1)
      // Refresh the head that this client caches for all its users, so that the keeper sees the new blocks.
      await stack.served.client.getBlockNumber({ cacheTime: 0 })
      await whileRunning([blind], () =>
        until('it reports that the record is stale', async () => {
          const response = await blind.app.request('/readyz')
          return response.status === 503 && (await response.text()).includes('behind: stale')
        }),
      )
    })
    // The keeper needs no index to record earlier batches from its own receipts, nor to process tabs.
    expect(steps.filter((name) => !name.endsWith('-finalization') && name !== 'after-tabs-closed')).toEqual(
      [],
    )
    await settleAll(stack, [payment])
  })

  test('behavior: without an index, records a batch from the keeper’s receipts exactly as the index records it later', async () => {
    const { database } = stack
    const payments = await queueDue(stack, 3)
    await whileRecording(stack, () => untilInRecord(stack))
    const recorded = () => database<{ sequence: number | null; txHash: Hex }[]>`
      select b.sequence, b.tx_hash as "txHash", b.log_index, b.keeper, b.trigger, b.payment_count, b.provider_total,
        b.fee_total, b.gas_used, b.gas_cost, array(
          select recipient || ' ' || r.payment_count || ' ' || total from batch_recipient r where r.batch_id = b.id order by 1
        ) as recipients
      from settled_batch b order by position desc limit 1`
    await withoutIndex(database, () => settleAll(stack, payments))
    const [own] = await recorded()
    expect(own).toMatchObject({ sequence: null, payment_count: 3 })
    await whileRunning([stack.keeper()], () =>
      until('the index has counted it', async () => (await recorded())[0]?.sequence !== null),
    )
    const indexed = await database`
      select sequence, tx_hash as "txHash", log_index, keeper, trigger, payment_count, provider_total, fee_total, gas_used,
        gas_used * effective_gas_price + coalesce(l1_fee, 0) as gas_cost, array(
          select recipient || ' ' || r.payment_count || ' ' || total from indexer.batch_recipient r
          where r.tx_hash = b.tx_hash and r.log_index = b.log_index order by 1
        ) as recipients
      from indexer.batch b where tx_hash = ${own?.txHash ?? ''}`
    expect(await recorded()).toEqual(indexed)
    expect([{ ...own, sequence: indexed[0]?.sequence }]).toEqual(indexed)
  })
})
