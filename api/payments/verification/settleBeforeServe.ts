import { createSettlementWatch } from '@tollkeeper/ledger/acceptance/settlementWatch'
import { voidPayment } from '@tollkeeper/ledger/results/voids'
import type { Database } from '@tollkeeper/ledger/store/database'
import { errorCodes, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { Hash } from 'viem'
import { Refusal } from '../../http/refusal.ts'
import { findPayment } from '../records/payments.ts'

/** Handles payments that are too expensive to serve before they settle: they are answered once the chain has moved the money. */
export type SettleBeforeServe = {
  /** Returns whether a payment of this price is answered only once it is mined. */
  appliesTo(price: bigint): boolean
  /**
   * Waits until the provider's half is mined and indexed.
   *
   * If the settlement fails, the payment is voided, because nothing was served for it.
   *
   * @returns the transaction that moved the provider's half.
   * @throws {Refusal} the failure's own code or `settlement_failed`; `settlement_pending` if it takes too long: the money may still move,
   * so a caller that presents the same payment again continues waiting. An answer that arrives after the caller has stopped waiting would
   * charge without a service, so this function never waits longer than `waitMs`.
   */
  wait(
    paymentId: string,
    request: { providerId: string; waitMs?: number | undefined },
  ): Promise<Hash | undefined>
  /** Takes over a payment whose first presentation ended with `settlement_pending`; returns true to only one caller. */
  takeOver(paymentId: string, idempotencyKey: string | undefined): Promise<boolean>
}

export type SettleBeforeServeOptions = {
  sql: Database
  /** USDC base units; null: never. */
  fromPrice: bigint | null
  timeoutMs: number
  now: () => number
}

export function createSettleBeforeServe(options: SettleBeforeServeOptions): SettleBeforeServe {
  const { sql, fromPrice, timeoutMs, now } = options
  const watch = createSettlementWatch(sql)

  return {
    appliesTo: (price) => fromPrice !== null && price >= fromPrice,

    async wait(paymentId, { providerId, waitMs = timeoutMs }) {
      const deadline = performance.now() + Math.min(timeoutMs, waitMs)
      while (performance.now() < deadline) {
        await watch.wait(paymentId, deadline, ({ state, attempts, ended }) => {
          return state === 'settled' || attempts > 0 || ended !== null
        })
        const payment = await findPayment(sql, paymentId, new Date(now()))
        if (payment?.provider.state === 'settled') return payment.provider.txHash ?? undefined
        if (payment !== undefined && (payment.attempts > 0 || payment.failedAt !== null)) {
          const time = new Date(now())
          const outcome = await voidPayment(sql, { paymentId, providerId, now: time })
          if (outcome === 'voided') throw failed(paymentId, payment.failureCode)
        }
      }
      await sql`
        update presentation set released_at = ${new Date(now())} where payment_id = ${paymentId}`
      throw new Refusal('settlement_pending', undefined, { details: { paymentId, retryAfter: 2 } })
    },

    async takeOver(paymentId, idempotencyKey) {
      const rows = await sql`
        update presentation set released_at = null, idempotency_key = ${idempotencyKey ?? null}
        where payment_id = ${paymentId} and released_at is not null
        returning payment_id`
      return rows.length === 1
    },
  }
}

function failed(paymentId: string, code: string | null): Refusal {
  const details = { paymentId, reason: code }
  if (isErrorCode(code) && errorCodes[code].status === 402) return new Refusal(code, undefined, { details })
  return new Refusal('settlement_failed', undefined, { details })
}
