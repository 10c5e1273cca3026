import type { Database } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import type { Hex } from 'viem'
import {
  type SeededPayment,
  type SeedProvider,
  seedHalf,
  seedSettlement,
  storePayments,
} from './seedPayments.ts'

/** Stores an accepted refund of a payment, and records the block that settled it. */
export async function seedRefund(
  sql: Database,
  payment: SeededPayment,
  {
    provider,
    number = 1,
    value = 50_000n,
    acceptedAt,
    settled,
  }: {
    provider: SeedProvider
    number?: number
    value?: bigint
    acceptedAt: Date
    /** Default: it is not settled. */
    settled?: { blockNumber: number; blockTime: number }
  },
): Promise<Hex | null> {
  const id = newId('pay')
  const half = seedHalf({ recipient: payment.payer, value })
  await storePayments(sql, [
    { id, source: 'refund', payer: provider.wallet, acceptedAt, halves: [half], payee: payment.payer },
  ])
  await sql`
    insert into refund (payment_id, of_payment_id, number, provider_id, accepted_at)
    values (${id}, ${payment.paymentId}, ${number}, ${provider.providerId}, ${acceptedAt})`
  const seeded = { paymentId: id, payer: provider.wallet, nonces: [half.nonce, half.nonce] as [Hex, Hex] }
  return settled ? seedSettlement(sql, seeded, { halves: [0], ...settled }) : null
}
