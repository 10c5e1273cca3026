import { claimNext } from '@tollkeeper/keeper/loops/claim'
import { readExposures } from '@tollkeeper/ledger/acceptance/exposure'
import { acquireLease } from '@tollkeeper/ledger/batches/leases'
import { releasePayments } from '@tollkeeper/ledger/queue/stages'
import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import { createKeeperContext } from '../support/keeperContext.ts'
import { settleAll, whileRunning } from '../support/keeperScenes.ts'
import { type Many, platformWallet, type QueuedPayment, useKeeperStack } from '../support/keeperStack.ts'
import { failPayments, positionOf } from '../support/paymentPosition.ts'
import { until } from '../support/until.ts'
import { randomHex, setBlacklisted } from '../support/usdc.ts'

const stack = useKeeperStack()

const minute = 60_000
const later = (ms: number) => () => new Date(Date.now() + ms)

/** Returns the batches that contained any of these payments. */
async function batchesOf(payments: Pick<QueuedPayment, 'paymentId'>[]) {
  return stack.database<{ trigger: string; result: string | null; items: number }[]>`
    select trigger, result, (select count(*)::int from batch_item i where i.batch_id = b.id) as items
    from batch b
    where id in (
      select batch_id from batch_item where payment_id in ${stack.database(payments.map((one) => one.paymentId))}
    )
    order by id`
}

const paymentRow = (payment: Pick<QueuedPayment, 'paymentId'>) => positionOf(stack.database, payment)

async function queueMany<N extends number>(count: N, price: bigint, payee: Address) {
  const buyers = await stack.buyers(3, BigInt(count) * price)
  const payments: QueuedPayment[] = []
  for (let i = 0; i < count; i++)
    payments.push(await stack.queue({ buyer: buyers[i % 3] ?? buyers[0], payee, price }))
  return payments as Many<QueuedPayment, N>
}

describe('triggers', () => {
  test('default: settles 100 payments in one transaction when the count trigger fires', async () => {
    const payee = randomHex(20)
    const before = await stack.balanceOf(platformWallet)
    const payments = await queueMany(100, 5_000n, payee)
    await settleAll(stack, payments)
    expect(await batchesOf(payments)).toEqual([{ trigger: 'count', result: null, items: 100 }])
    expect(await stack.balanceOf(payee)).toBe(450_000n)
    expect((await stack.balanceOf(platformWallet)) - before).toBe(50_000n)
  })

  test('behavior: 1.00 USD due to one wallet triggers a batch by amount, and a payment to another wallet joins that batch', async () => {
    const [rider] = await queueMany(1, 5_000n, randomHex(20))
    const payments = await queueMany(18, 60_000n, randomHex(20))
    await settleAll(stack, payments)
    expect(await batchesOf(payments)).toEqual([{ trigger: 'amount', result: null, items: 19 }])
    expect(rider && (await stack.isSettled([rider]))).toBe(true)
  })

  test('behavior: settles payments of 10 USDC or more immediately, each alone and from a separate keeper wallet, while small payments wait', async () => {
    const waiting = await queueMany(2, 5_000n, randomHex(20))
    const large = await queueMany(2, 12_000_000n, randomHex(20))
    // Two wallets of one process claim at the same moment, and each gets one of the payments.
    const context = createKeeperContext(stack)
    const claim = async (address: Address) => {
      const wallet = { chainId: stack.served.network.chainId, address }
      const lease = await acquireLease(stack.database, { ...wallet, holder: 'test', ttlMs: 60_000 })
      return lease && claimNext(context, lease)
    }
    const claimed = await Promise.all([claim(randomHex(20)), claim(randomHex(20))])
    const ids = claimed.map((batch) => batch?.id ?? null)
    expect(ids).not.toContain(null)
    for (const id of ids) {
      if (id === null) continue
      await releasePayments(stack.database, id, new Date())
      await stack.database`delete from batch where id = ${id}`
    }
    await settleAll(stack, large)
    const alone = { trigger: 'high_value', result: null, items: 1 }
    expect(await batchesOf(large)).toEqual([alone, alone])
    expect(await batchesOf(waiting)).toEqual([])
    await settleAll(stack, waiting, { now: later(60 * minute) })
    expect(await batchesOf(waiting)).toEqual([{ trigger: 'time', result: null, items: 2 }])
  })

  test('behavior: settles a refund together with payments or in a separate batch, and notifies the provider', async () => {
    const [paid] = await queueMany(1, 60_000n, randomHex(20))
    const hourLater = stack.keeper({ now: later(60 * minute) })
    await whileRunning(hourLater, () => until('it is settled', () => stack.isSettled([paid])))
    const [wallet] = await stack.buyers(1, 60_000n)
    const first = await stack.queueRefund({ of: paid, number: 1, wallet, value: 20_000n })
    const others = await queueMany(2, 5_000n, randomHex(20))
    const before = await stack.balanceOf(paid.provider.from)
    await settleAll(stack, [first, ...others], { now: later(60 * minute) })
    expect(await batchesOf([first, ...others])).toEqual([{ trigger: 'time', result: null, items: 3 }])
    expect((await stack.balanceOf(paid.provider.from)) - before).toBe(20_000n)

    const second = await stack.queueRefund({ of: paid, number: 2, wallet, value: 40_000n })
    await expect(stack.queueRefund({ of: paid, number: 3, wallet, value: 1n })).rejects.toMatchObject({
      code: 'refund_exceeds_payment',
    })
    // The refund's gas comes from the operator's allowance, so no fee in the batch has to cover it.
    const settings = { ...stack.settings, gasPerFee: 1n }
    await whileRunning(stack.keeper({ now: later(60 * minute), settings }), async () => {
      await until('it is settled', () => stack.isSettled([second]))
      await stack.served.client.request({ method: 'hardhat_mine', params: ['0x1'] } as never)
      await until('its provider is notified', async () => {
        const notifications = await stack.database`
          select event, data->>'paymentId' as of, data->>'number' as number, data->>'valueUsdc' as value from outbox
          where event like 'refund.%' order by id`
        return notifications.length === 2
      })
    })
    expect(await stack.balanceOf(wallet.address)).toBe(0n)
    expect(
      await stack.database`
        select event, data->>'paymentId' as of, data->>'valueUsdc' as value from outbox
        where event like 'refund.%' order by data->>'number'`,
    ).toEqual([
      { event: 'refund.settled', of: paid.paymentId, value: '20000' },
      { event: 'refund.settled', of: paid.paymentId, value: '40000' },
    ])
  })

  test('behavior: `expiry` triggers after three minutes of a 5-minute validity, and after 45 minutes of a one-hour validity', async () => {
    const [buyer] = await stack.buyers(1, 25_000n)
    const triggers = { ...stack.settings.triggers, minAgeMs: 150_000 }
    const settings = { ...stack.settings, triggers }
    const wallet = { chainId: stack.served.network.chainId, address: randomHex(20) }
    const lease = await acquireLease(stack.database, { ...wallet, holder: 'test', ttlMs: 600_000 })
    if (!lease) throw new Error('the lease is taken')
    /** Queues a payment with this window, and returns the time in Unix milliseconds at which it becomes urgent. */
    const queue = async (validFor: number) => {
      const { paymentId } = await stack.queue({ buyer, price: 5_000n, validFor })
      const [row] = await stack.database<[{ left: number; urgent: number; accepted: number }]>`
        select (valid_before - urgent_at)::int as left, urgent_at * 1000::float8 as urgent,
          extract(epoch from accepted_at)::float8 * 1000 as accepted
        from queue where payment_id = ${paymentId}`
      return { paymentId, ...row }
    }
    /** Returns the trigger and the size of the batch that a keeper would claim at this time, or null. Then undoes the claim. */
    const claimAt = async (at: number) => {
      const batch = await claimNext(
        createKeeperContext({ ...stack, settings }, undefined, () => new Date(at)),
        lease,
      )
      if (batch === null) return null
      const rows = await stack.database`select from batch_item where batch_id = ${batch.id}`
      await releasePayments(stack.database, batch.id, new Date())
      await stack.database`delete from batch where id = ${batch.id}`
      return [batch.trigger, rows.length]
    }
    const [short, hour, day] = [await queue(300), await queue(3_600), await queue(93_600)]
    expect([short.left, hour.left, day.left]).toEqual([expect.closeTo(120, -1), 900, 900])
    expect([await claimAt(short.urgent - 1), await claimAt(short.urgent)]).toEqual([null, ['expiry', 3]])
    const ahead = short.urgent - Date.now()
    await settleAll(stack, [short], { now: later(ahead), settings })
    expect(await batchesOf([short])).toEqual([{ trigger: 'expiry', result: null, items: 3 }])
    expect(await stack.isSettled([hour, day])).toBe(true)

    const [next, last] = [await queue(3_600), await queue(93_600)]
    expect([await claimAt(next.urgent - 1), await claimAt(next.urgent)]).toEqual([null, ['expiry', 2]])
    await stack.database`delete from queue where payment_id = ${next.paymentId}`
    const hourLater = last.accepted + 3_540_000
    expect([await claimAt(hourLater - 1_000), await claimAt(hourLater + 1)]).toEqual([null, ['time', 1]])
  })
})

describe('failures', () => {
  test('behavior: counts an attempt only for the payment with an insufficient balance', async () => {
    const payee = randomHex(20)
    const good = await queueMany(2, 5_000n, payee)
    const [poor] = await stack.buyers(1, 0n)
    const acceptedAt = new Date(Date.now() - 60 * minute)
    const bad = await stack.queue({ buyer: poor, payee, price: 5_000n, acceptedAt })

    const from = Date.now() + minute
    await whileRunning(stack.keeper(), async () => {
      await until('the good ones are settled', () => stack.isSettled(good))
      await until('the bad one failed', async () => (await paymentRow(bad)).attempts === 1)
    })
    const row = await paymentRow(bad)
    expect(row).toMatchObject({ attempts: 1, failureCode: 'insufficient_balance', failedAt: null })
    expect(row.nextAttemptAt?.getTime()).toBeGreaterThanOrEqual(from)
    expect(row.nextAttemptAt?.getTime()).toBeLessThanOrEqual(Date.now() + minute)

    // The money arrives before the retry.
    await stack.chain.mintUsdc([poor.address], 5_000n)
    await settleAll(stack, [bad], { now: later(2 * minute) })
    expect((await batchesOf([bad])).map((batch) => batch.trigger)).toEqual(['time', 'time'])
  })

  test('behavior: retries a payment to a blacklisted provider later, settles other payments, and records no debt for the buyer', async () => {
    const [blocked, other] = [randomHex(20), randomHex(20)]
    const [buyer] = await stack.buyers(1, 10_000n)
    const acceptedAt = new Date(Date.now() - 60 * minute)
    const bad = await stack.queue({ buyer, payee: blocked, price: 5_000n, acceptedAt })
    const good = await stack.queue({ buyer, payee: other, price: 5_000n, acceptedAt })
    await setBlacklisted(stack.chain, blocked, true)
    await whileRunning(stack.keeper(), async () => {
      await until('the other payment is settled', () => stack.isSettled([good]))
      await until('it failed', async () => (await paymentRow(bad)).attempts === 1)
    })
    expect(await paymentRow(bad)).toMatchObject({ failureCode: 'account_blacklisted', failedAt: null })
    // Neither authorization settled, because the fee isn't charged if the provider receives nothing.
    expect(await stack.balanceOf(buyer.address)).toBe(5_000n)
    const payer = buyer.address.toLowerCase() as Address
    const now = { block: await stack.served.client.getBlockNumber(), now: Math.floor(Date.now() / 1000) }
    const question = { payers: [payer], withHistory: false, ...now }
    const exposures = await readExposures(stack.database, stack.served, question)
    expect(exposures.get(payer)).toMatchObject({ debt: 0n, isBlocked: false })
    await setBlacklisted(stack.chain, blocked, false)
    await settleAll(stack, [bad], { now: later(2 * minute) })
  })

  test('behavior: fails a payment or refund after six attempts, and notifies the provider of the third and the sixth failure', async () => {
    const [paid] = await queueMany(1, 60_000n, randomHex(20))
    const [poor, emptied] = await stack.buyers(2, 0n)
    if (!paid || !poor || !emptied) throw new Error('no buyer')
    await settleAll(stack, [paid], { now: later(60 * minute) })
    const acceptedAt = new Date(Date.now() - 60 * minute)
    const payment = await stack.queue({ buyer: poor, price: 5_000n, acceptedAt })
    const of = { of: paid, number: 1, wallet: emptied, value: 20_000n }
    const refund = await stack.queueRefund({ ...of, acceptedAt })
    const attempts = async () => {
      const both = await Promise.all([payment, refund].map(paymentRow))
      return both.map((row) => row.attempts)
    }
    let offset = 0
    await whileRunning(stack.keeper({ now: () => new Date(Date.now() + offset) }), async () => {
      for (const [index, wait] of [0, 1, 5, 15, 60, 24 * 60].entries()) {
        offset = wait * minute + 5_000
        await until(`attempt ${index + 1} failed`, async () =>
          (await attempts()).every((count) => count === index + 1),
        )
      }
    })
    const code = 'insufficient_balance'
    for (const failed of [payment, refund]) {
      const row = await paymentRow(failed)
      expect(row).toMatchObject({ attempts: 6, failureCode: code, nextAttemptAt: null })
      expect(row.failedAt).not.toBeNull()
    }
    const notificationsOf = ({ paymentId }: Pick<QueuedPayment, 'paymentId'>) =>
      stack.database`select event, data from outbox where payment_id = ${paymentId} order by id`
    const failing = { code, attempts: 3, nextAttemptAt: expect.any(String) }
    const failed = { code, attempts: 6, nextAttemptAt: null }
    expect(await notificationsOf(payment)).toEqual([
      { event: 'settlement.failing', data: failing },
      { event: 'settlement.failed', data: failed },
    ])
    // The notification names the refunded payment.
    const which = { paymentId: paid.paymentId, number: 1 }
    expect(await notificationsOf(refund)).toEqual([
      { event: 'refund.failing', data: { ...which, ...failing } },
      { event: 'refund.failed', data: { ...which, ...failed } },
    ])
  })

  test('behavior: never sends an authorization with an invalid signature to the chain', async () => {
    const [buyer] = await stack.buyers(1, 5_000n)
    const payment = await stack.queue({
      buyer,
      price: 5_000n,
      acceptedAt: new Date(Date.now() - 60 * minute),
      sign: (authorization) => ({ ...authorization, value: authorization.value - 1n }),
    })
    await whileRunning(stack.keeper(), () =>
      until('it failed', async () => (await paymentRow(payment)).attempts === 1),
    )
    expect((await paymentRow(payment)).failureCode).toBe('invalid_signature')
    expect(await batchesOf([payment])).toEqual([{ trigger: 'time', result: 'nothing_left', items: 1 }])
    await failPayments(stack.database, [payment.paymentId])
  })

  test('behavior: pauses a wallet that has no gas money, without counting an attempt for its payments', async () => {
    const [buyer, empty] = await stack.buyers(2, 5_000n)
    const payment = await stack.queue({
      buyer,
      price: 5_000n,
      acceptedAt: new Date(Date.now() - 60 * minute),
    })
    await whileRunning(stack.keeper({ accounts: [empty] }), () =>
      until('the wallet is paused', async () => {
        const [row] = await stack.database<{ reason: string | null }[]>`
          select paused_reason as reason from wallet_lease where address = ${empty.address.toLowerCase()}`
        return row?.reason === 'insufficient_gas_funds'
      }),
    )
    expect(await paymentRow(payment)).toMatchObject({ attempts: 0, failureCode: null })
    await settleAll(stack, [payment])
  })
})
