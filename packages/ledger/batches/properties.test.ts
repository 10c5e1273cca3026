import { bumpFees, type Fees, initialFees } from '@tollkeeper/chain/fees'
import {
  batchGasCut,
  batchGasLimit,
  calldataFloor,
  countThatFit,
  estimateBatchGas,
  transactionGasCap,
} from '@tollkeeper/chain/gas'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { judgeRecord } from '../facts/recordState.ts'
import { decideRetry } from '../queue/retry.ts'
import {
  defaultTriggers,
  estimatedSettlement,
  firedTrigger,
  type WaitingPayments,
} from '../queue/triggers.ts'

// Properties that hold for every input. The tables next to each module test the most important inputs. A failure prints the seed and the
// smallest failing input.

const wei = (max: bigint) => fc.bigInt({ min: 0n, max })
const fees = fc
  .record({ maxFeePerGas: wei(10n ** 12n), maxPriorityFeePerGas: wei(10n ** 12n) })
  .filter((one) => one.maxPriorityFeePerGas <= one.maxFeePerGas)

describe('fees', () => {
  test('behavior: each replacement raises both fee fields by at least a tenth, until the cap ends the sequence', () => {
    fc.assert(
      fc.property(wei(10n ** 11n), wei(10n ** 10n), wei(10n ** 12n), (base, tip, cap) => {
        let offer: Fees = initialFees(base, tip, cap)
        expect(offer.maxFeePerGas).toBeLessThanOrEqual(cap)
        for (let replacements = 0; ; replacements++) {
          expect(offer.maxPriorityFeePerGas).toBeLessThanOrEqual(offer.maxFeePerGas)
          const next = bumpFees(offer, initialFees(base, tip, cap), cap)
          if (!next) return
          expect(next.maxFeePerGas * 100n).toBeGreaterThanOrEqual(offer.maxFeePerGas * 110n)
          expect(next.maxPriorityFeePerGas * 100n).toBeGreaterThanOrEqual(offer.maxPriorityFeePerGas * 110n)
          expect(next.maxPriorityFeePerGas).toBeGreaterThan(offer.maxPriorityFeePerGas)
          expect(next.maxFeePerGas).toBeGreaterThan(offer.maxFeePerGas)
          expect(next.maxFeePerGas).toBeLessThanOrEqual(cap)
          // Each replacement raises the fees by at least 13%. Since 1.13^300 is more than 10^15, the cap of at most 10^12 wei ends the sequence
          // earlier.
          expect(replacements).toBeLessThan(300)
          offer = next
        }
      }),
    )
  })

  test('behavior: a replacement outbids the stored transaction, regardless of market changes', () => {
    fc.assert(
      fc.property(fees, fees, wei(10n ** 13n), (stored, market, cap) => {
        const next = bumpFees(stored, market, cap)
        if (!next) return
        expect(next.maxFeePerGas * 100n).toBeGreaterThanOrEqual(stored.maxFeePerGas * 110n)
        expect(next.maxPriorityFeePerGas * 100n).toBeGreaterThanOrEqual(stored.maxPriorityFeePerGas * 110n)
        expect(next.maxFeePerGas).toBeLessThanOrEqual(cap)
      }),
    )
  })
})

describe('retries', () => {
  test('behavior: makes at most six attempts at a payment that always fails, never after its expiry and never two at the same time', () => {
    const start = 1_800_000_000_000
    fc.assert(
      fc.property(
        fc.integer({ min: 60, max: 200_000 }),
        fc.array(fc.integer({ min: 0, max: 7_200_000 }), { minLength: 6, maxLength: 6 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (validForSeconds, lateMs, lead) => {
          const validBefore = BigInt(start / 1000 + validForSeconds)
          const firstFailedAt = new Date(start)
          let now = start
          for (let attempts = 1; ; attempts++) {
            const decision = decideRetry({
              attempts,
              firstFailedAt,
              validBefore,
              urgentAt: validBefore - BigInt(Math.floor(validForSeconds * lead)),
              now: new Date(now),
            })
            if (decision.status === 'failed') return
            expect(attempts).toBeLessThanOrEqual(5)
            const at = decision.at.getTime()
            expect(at - now).toBeGreaterThanOrEqual(60_000)
            expect(at).toBeLessThan(Number(validBefore) * 1000)
            // The keeper may attempt the retry late.
            now = at + (lateMs[attempts] ?? 0)
          }
        },
      ),
    )
  })
})

const now = new Date('2026-11-21T12:00:00Z')
const seconds = BigInt(now.getTime() / 1000)
const waiting: fc.Arbitrary<WaitingPayments> = fc.record({
  paymentCount: fc.integer({ min: 1, max: 400 }),
  amount: wei(20_000_000n),
  largestPayment: wei(20_000_000n),
  firstQueuedAt: fc.integer({ min: 0, max: 7_200_000 }).map((ageMs) => new Date(now.getTime() - ageMs)),
  firstUrgentAt: fc.bigInt({ min: 0n, max: 100_000n }).map((left) => seconds + left),
  retryDue: fc.boolean(),
})

describe('triggers', () => {
  test('behavior: expensive gas only delays payments, by at most an hour or until they are about to expire', () => {
    fc.assert(
      fc.property(waiting, wei(1_000_000n), (queue, cost) => {
        const cheap = firedTrigger(queue, defaultTriggers, 0n, now)
        const dear = firedTrigger(queue, defaultTriggers, cost, now)
        if (dear) expect(cheap).not.toBeNull()
        if (estimatedSettlement(queue, defaultTriggers, 0n, now) <= now) expect(cheap).not.toBeNull()
      }),
    )
  })

  test('behavior: adding payments to a queue never cancels a trigger', () => {
    fc.assert(
      fc.property(waiting, waiting, wei(1_000_000n), (queue, more, cost) => {
        if (!firedTrigger(queue, defaultTriggers, cost, now)) return
        const both: WaitingPayments = {
          paymentCount: queue.paymentCount + more.paymentCount,
          amount: queue.amount + more.amount,
          largestPayment:
            queue.largestPayment > more.largestPayment ? queue.largestPayment : more.largestPayment,
          firstQueuedAt: new Date(Math.min(queue.firstQueuedAt.getTime(), more.firstQueuedAt.getTime())),
          firstUrgentAt: queue.firstUrgentAt < more.firstUrgentAt ? queue.firstUrgentAt : more.firstUrgentAt,
          retryDue: queue.retryDue || more.retryDue,
        }
        expect(firedTrigger(both, defaultTriggers, cost, now)).not.toBeNull()
      }),
    )
  })
})

describe('gas', () => {
  const items = fc.array(
    fc.record({ isPair: fc.boolean(), recipient: fc.nat({ max: 200 }).map((index) => `0x${index}`) }),
    { minLength: 1, maxLength: 400 },
  )
  const shapeOf = (some: { isPair: boolean; recipient: string }[], hasCode: boolean) => ({
    pairs: some.filter((one) => one.isPair).length,
    singles: some.filter((one) => !one.isPair).length,
    payees: new Set(some.map((one) => one.recipient)).size,
    hasCode,
  })

  test('behavior: selects the maximum number of payments that fits into the gas limit', () => {
    fc.assert(
      fc.property(items, fc.boolean(), (all, hasCode) => {
        const fit = countThatFit(all, hasCode)
        expect(fit).toBeGreaterThan(0)
        if (fit > 1) {
          expect(estimateBatchGas(shapeOf(all.slice(0, fit), hasCode))).toBeLessThanOrEqual(batchGasCut)
        }
        if (fit < all.length) {
          expect(estimateBatchGas(shapeOf(all.slice(0, fit + 1), hasCode))).toBeGreaterThan(batchGasCut)
        }
      }),
    )
  })

  test('behavior: a batch’s gas limit covers its estimate and the minimum for its calldata, and stays below the transaction gas cap', () => {
    fc.assert(
      fc.property(items, fc.boolean(), fc.uint8Array({ maxLength: 2_000 }), (all, hasCode, calldata) => {
        const shape = shapeOf(all.slice(0, countThatFit(all, hasCode)), hasCode)
        const limit = batchGasLimit(shape, calldata)
        expect(limit).toBeLessThan(transactionGasCap)
        expect(limit).toBeGreaterThan(estimateBatchGas(shape))
        expect(limit).toBeGreaterThanOrEqual(calldataFloor(calldata))
      }),
    )
  })
})

test('behavior: if providers were notified of the events of a block, never trusts a record that ends before that block', () => {
  fc.assert(
    fc.property(
      fc.option(wei(1_000n), { nil: null }),
      wei(1_000n),
      wei(1_000n),
      wei(50n),
      (recorded, told, head, maxLag) => {
        const state = judgeRecord(
          recorded === null ? null : { blockNumber: 0n, readNumber: recorded, blockTime: 0n },
          told,
          head,
          maxLag,
        )
        if (state.status === 'behind') return
        expect(state.head.readNumber).toBeGreaterThanOrEqual(told)
        expect(head - state.head.readNumber).toBeLessThanOrEqual(maxLag)
      },
    ),
  )
})
