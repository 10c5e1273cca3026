import { beforeEach, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { drawFrom } from '../../../test/support/draw.ts'
import {
  type SeedProvider,
  seedPayment,
  seedProvider,
  seedSettlement,
} from '../../../test/support/seedPayments.ts'
import { type SeededTab, seedOlderState, seedTab, settleTab } from '../../../test/support/seedTabs.ts'
import { endPayments, type PaymentResult, reopenPayments } from '../queue/stages.ts'
import {
  isPeriodClosed,
  readSaleBookings,
  type SaleBooking,
  type SaleBookingPosition,
  sumBookings,
} from './bookings.ts'

const database = await useDatabase()
let provider: SeedProvider
/** Each settlement has a separate block. */
let block = 1_000
beforeEach(async () => {
  provider = await seedProvider(database, 2)
})

const months = ['2026-03', '2026-04', '2026-05', '2026-06']
const startOf = (month: string) => new Date(`${month}-01T00:00:00Z`)
const endOf = (month: string) => {
  const start = startOf(month)
  return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1))
}
const periodOf = (month: string) => ({
  providerId: provider.providerId,
  from: startOf(month),
  to: endOf(month),
})
const minutes = (count: number) => count * 60_000
const days = (count: number) => count * 86_400_000
const later = (time: Date, ms: number) => new Date(time.getTime() + ms)
const at = (time: Date) => ({ blockNumber: block++, blockTime: Math.floor(time.getTime() / 1000) })

async function read(month: string, limit = 3): Promise<SaleBooking[]> {
  const found: SaleBooking[] = []
  for (let after: SaleBookingPosition | null = null; ; ) {
    const page: Awaited<ReturnType<typeof readSaleBookings>> = await readSaleBookings(
      database,
      periodOf(month),
      { after, limit },
    )
    found.push(...page.bookings)
    if (page.next === null) return found
    after = page.next
  }
}

const total = (rows: readonly { gross: bigint; fee: bigint }[]) => ({
  gross: rows.reduce((sum, { gross }) => sum + gross, 0n),
  fee: rows.reduce((sum, { fee }) => sum + fee, 0n),
})

const finalize = (paymentId: string, kind: PaymentResult, now: Date) =>
  endPayments(
    database,
    [{ paymentId, kind, code: kind === 'failed' ? 'authorization_expired' : null, isFinal: true }],
    now,
  )

const endOfMarch = new Date('2026-03-31T23:59:00Z')

test('behavior: books a payment in the month of the block that settled it, not in the month of its acceptance', async () => {
  const payment = await seedPayment(database, { provider, acceptedAt: endOfMarch })
  expect(await read('2026-03')).toEqual([])
  const txHash = await seedSettlement(database, payment, at(later(endOfMarch, minutes(5))))
  expect(await read('2026-03')).toEqual([])
  expect(await read('2026-04')).toEqual([
    {
      kind: 'sale',
      paymentId: payment.paymentId,
      number: 0,
      part: 0,
      acceptedAt: endOfMarch,
      bookedAt: new Date('2026-04-01T00:04:00Z'),
      endpointId: provider.endpointIds[0],
      chainId: 31_337,
      payer: payment.payer,
      payee: provider.wallet,
      tabId: null,
      requests: 1,
      txHash,
      gross: 50_000n,
      fee: 2_500n,
    },
  ])
})

test('behavior: books a settlement whose block has an earlier time than the acceptance', async () => {
  const acceptedAt = new Date('2026-04-01T00:00:01Z')
  const payment = await seedPayment(database, { provider, acceptedAt })
  await seedSettlement(database, payment, at(new Date('2026-03-31T23:59:58Z')))
  expect(await read('2026-03')).toMatchObject([{ gross: 50_000n }])
  expect(await read('2026-04')).toEqual([])
})

test('behavior: if a fee arrives separately, in a later month, books the fee in that month and leaves the closed month unchanged', async () => {
  const payment = await seedPayment(database, { provider, acceptedAt: new Date('2026-03-31T22:00:00Z') })
  await seedSettlement(database, payment, { halves: [0], ...at(endOfMarch) })
  const march = await read('2026-03')
  expect(march).toMatchObject([{ kind: 'sale', part: 0, gross: 47_500n, fee: 0n }])
  await seedSettlement(database, payment, { halves: [1], ...at(later(endOfMarch, minutes(2))) })
  expect(await read('2026-03')).toEqual(march)
  expect(await read('2026-04')).toMatchObject([{ kind: 'fee', part: 1, gross: 2_500n, fee: 2_500n }])
})

test('behavior: books a payment that settled long after its acceptance, once the settlement is final', async () => {
  const acceptedAt = new Date('2026-03-05T00:00:00Z')
  const payment = await seedPayment(database, { provider, acceptedAt, validBefore: 1_800_000_000 })
  const settledAt = new Date('2026-05-20T00:00:00Z')
  await seedSettlement(database, payment, at(settledAt))
  await finalize(payment.paymentId, 'settled', settledAt)
  expect(await read('2026-03')).toEqual([])
  expect(await read('2026-05')).toMatchObject([{ paymentId: payment.paymentId, bookedAt: settledAt }])
  expect(await sumBookings(database, periodOf('2026-03'))).toEqual([])
  expect(await sumBookings(database, periodOf('2026-05'))).toMatchObject([{ payments: 1, gross: 50_000n }])
  await reopenPayments(database, [payment.paymentId])
  expect(
    await database`select from payment_result where late_at is not null and payment_id = ${payment.paymentId}`,
  ).toEqual([])
})

test('behavior: books requests on a tab by endpoint and hour, and only the part that moved if an older state settled', async () => {
  const closedAt = new Date('2026-04-10T12:00:00Z')
  const sales = [
    { provider, requests: 10, acceptedAt: later(closedAt, -minutes(90)) },
    { provider, endpointId: provider.endpointIds[1] as string, requests: 20, acceptedAt: closedAt },
  ]
  const whole = await seedTab(database, { sales, closedAt })
  await settleTab(database, whole, at(later(closedAt, minutes(5))))
  expect(await read('2026-04')).toMatchObject([
    { tabId: whole.tabId, number: 0, requests: 10, gross: 1_000n, fee: 100n },
    { tabId: whole.tabId, number: 1, requests: 20, gross: 2_000n, fee: 200n },
  ])
  const older = await seedTab(database, { sales, closedAt })
  await seedOlderState(database, older, [1_500n], at(later(closedAt, minutes(6))))
  const own = (await read('2026-04')).filter(({ paymentId }) => paymentId === older.paymentId)
  expect(own).toMatchObject([
    { requests: 10, gross: 1_000n },
    { requests: 5, gross: 500n, fee: 50n },
  ])
})

test('behavior: books nothing for payments that failed, were voided, were cancelled or are still queued', async () => {
  const acceptedAt = new Date('2026-04-10T12:00:00Z')
  const [failed, voided, cancelled] = [
    await seedPayment(database, { provider, acceptedAt }),
    await seedPayment(database, { provider, acceptedAt }),
    await seedPayment(database, { provider, acceptedAt }),
  ]
  await seedPayment(database, { provider, acceptedAt })
  await finalize(failed.paymentId, 'failed', acceptedAt)
  await finalize(voided.paymentId, 'voided', acceptedAt)
  await seedSettlement(database, cancelled, at(acceptedAt))
  await database`update authorization_event set state = 'cancelled' where payment_id = ${cancelled.paymentId}`
  expect(await read('2026-04')).toEqual([])
  expect(await sumBookings(database, periodOf('2026-04'))).toEqual([])
})

test('behavior: books every settled sale in exactly one month, and sums bookings without reading each sale', async () => {
  const draw = drawFrom('bookings')
  const pick = <Item>(items: readonly Item[]) => items[Math.floor(draw() * items.length)] as Item
  const begin = startOf('2026-03').getTime()
  const span = endOf('2026-05').getTime() - begin - days(1)
  const delays = [minutes(-0.1), minutes(1), minutes(50), days(1), days(1.9), days(3), days(20)]
  for (let index = 0; index < 60; index++) {
    // Many are near the ends of months.
    const acceptedAt = pick([
      new Date(begin + draw() * span),
      later(endOf(pick(months.slice(0, 2))), -minutes(draw() * 3_000)),
      later(startOf(pick(months.slice(0, 3))), minutes(draw() * 100)),
    ])
    const settledAt = later(acceptedAt, pick(delays))
    const isFinal = draw() < 0.7 || settledAt.getTime() - acceptedAt.getTime() > days(2)
    const endpointId = pick(provider.endpointIds)
    let paymentId: string
    if (draw() < 0.3) {
      const tab: SeededTab = await seedTab(database, {
        closedAt: acceptedAt,
        sales: [
          { provider, endpointId, requests: 10, acceptedAt: later(acceptedAt, -minutes(70)) },
          { provider, requests: 7 },
        ],
      })
      paymentId = tab.paymentId
      if (draw() < 0.3) await seedOlderState(database, tab, [1_200n], at(settledAt))
      else await settleTab(database, tab, at(settledAt))
    } else {
      const payment = await seedPayment(database, {
        provider,
        endpointId,
        acceptedAt,
        validBefore: 1_800_000_000,
      })
      paymentId = payment.paymentId
      const way = draw()
      if (way < 0.6) await seedSettlement(database, payment, at(settledAt))
      else if (way < 0.9) {
        await seedSettlement(database, payment, { halves: [0], ...at(settledAt) })
        await seedSettlement(database, payment, {
          halves: [1],
          ...at(later(settledAt, minutes(draw() * 100))),
        })
      }
    }
    const [event] = await database`select from authorization_event where payment_id = ${paymentId}`
    if (isFinal) await finalize(paymentId, event ? 'settled' : 'failed', later(settledAt, minutes(30)))
  }
  const [arrived] = await database<[{ gross: bigint; fee: bigint }]>`
    select sum(share.settled_net + share.settled_fee) as gross, sum(share.settled_fee) as fee
    from sale s
    cross join lateral settled_halves(s.payment_id, s.fee_half) half
    cross join lateral sale_share(s, false, half.settled) share
    where s.provider_id = ${provider.providerId}`
  const all: SaleBooking[] = []
  for (const month of months) {
    const bookings = await read(month, 7)
    expect(bookings).toEqual(await read(month, 1_000))
    for (const { bookedAt } of bookings) expect(bookedAt.toISOString().slice(0, 7)).toBe(month)
    const sums = await sumBookings(database, periodOf(month))
    expect([month, total(sums)]).toEqual([month, total(bookings)])
    for (const sum of sums) {
      const own = bookings.filter(({ endpointId }) => endpointId === sum.endpointId)
      expect(sum).toMatchObject({ ...total(own), payments: own.reduce((all, one) => all + one.requests, 0) })
    }
    all.push(...bookings)
  }
  expect(all.length).toBeGreaterThan(50)
  expect(total(all)).toEqual(arrived)
  const keys = all.map(({ paymentId, number, part }) => `${paymentId} ${number} ${part}`)
  expect(new Set(keys).size).toBe(keys.length)
})

test('behavior: closes a period once the record is complete beyond the period’s end and each block of the period is final', async () => {
  const chainId = 31_337
  const time = Math.floor(startOf('2026-04').getTime() / 1000)
  const isClosed = () => isPeriodClosed(database, periodOf('2026-03'), [chainId])
  const setHead = (complete: number, read: number, blockTime: number) => database`
    insert into record_head (chain_id, block_number, read_number, block_time) values (${chainId}, ${complete}, ${read}, ${blockTime})
    on conflict (chain_id) do update set block_number = ${complete}, read_number = ${read}, block_time = ${blockTime}`
  await database`update recorded_block set looked = 2`
  await database`delete from record_head`
  expect(await isClosed()).toBe(false)
  await setHead(10, 10, time + 3_599)
  expect(await isClosed()).toBe(false)
  await setHead(9, 10, time + 3_600)
  expect(await isClosed()).toBe(false)
  await setHead(10, 10, time + 3_600)
  expect(await isClosed()).toBe(true)
  await database`insert into recorded_block (chain_id, number, hash, time, looked)
    values (${chainId}, 5, ${`0x${'5'.repeat(64)}`}, ${time - 1}, 1)`
  expect(await isClosed()).toBe(false)
})
