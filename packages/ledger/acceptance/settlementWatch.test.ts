import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { createSettlementWatch, pauseOf } from './settlementWatch.ts'

const sql = await useDatabase()
const isNever = () => false

test.each([
  ['is new', undefined, 0, 0],
  ['has been in the queue for a second', { txHash: null }, 1_000, 125],
  ['has been in the queue for a minute', { txHash: null }, 60_000, 500],
  ['was sent, even if its caller has waited for a minute', { txHash: randomHex(32) }, 60_000, 0],
] as const)(
  'args: returns the pause before the next read of a settlement that %s',
  (_, progress, waitedMs, pauseMs) => {
    expect(pauseOf(progress, waitedMs)).toBe(pauseMs)
  },
)

test('behavior: answers each wait by its time limit, even if callers wait for more settlements than one query reads', async () => {
  const watch = createSettlementWatch(sql, new AbortController().signal)
  const { paymentId } = await seedPayment(sql, { provider: await seedProvider(sql) })
  const until = performance.now() + 300
  const waits = Array.from({ length: 1_200 }, () => watch.wait(paymentId, until, isNever))
  const unknown = watch.wait('pay_unknown', until, isNever)
  const answers = await Promise.all(waits)
  expect(answers.every((one) => one?.paymentId === paymentId && one.state === 'open')).toBe(true)
  expect(await unknown).toBeUndefined()
  const isEnough = () => true
  expect(await watch.wait(paymentId, Number.POSITIVE_INFINITY, isEnough)).toMatchObject({ paymentId })
})

test('behavior: ends all waits with the latest known progress when the process stops', async () => {
  const stopping = new AbortController()
  const watch = createSettlementWatch(sql, stopping.signal)
  const { paymentId } = await seedPayment(sql, { provider: await seedProvider(sql) })
  const read = Promise.withResolvers<void>()
  const waits = [
    watch.wait(paymentId, Number.POSITIVE_INFINITY, () => {
      read.resolve()
      return false
    }),
    watch.wait('pay_unknown', Number.POSITIVE_INFINITY, isNever),
  ]
  await read.promise
  stopping.abort()
  expect(await Promise.all(waits)).toEqual([expect.objectContaining({ paymentId, state: 'open' }), undefined])
  expect(await watch.wait(paymentId, Number.POSITIVE_INFINITY, isNever)).toMatchObject({ paymentId })
})
