import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { failPayment } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import {
  blockHashOf,
  type SeededPayment,
  seedPayment,
  seedProvider,
  seedScope,
  seedTransfer,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { recordEvents } from '../facts/record.ts'
import { endPayments, type PaymentResult } from '../queue/stages.ts'
import { badDebt } from './badDebt.ts'
import { findDebts, forgiveDebts } from './forgiveDebt.ts'

const database = await useDatabase()
const provider = await seedProvider(database)

type Seen = 'settled' | 'cancelled' | 'foreign_use' | null

type Case = {
  name: string
  /** The recorded events: of the provider's half, then of the fee. */
  seen?: [Seen, Seen]
  /** The payment's stage or result. Default: it waits in the queue. */
  place?: 'retrying' | 'failed' | 'failed and final' | 'settled' | 'voided'
  /** The code of the payment's failure, or of the reason why its fee is missing. */
  code?: string
  /** `half: code` of each half that the payer owes. */
  owed: string[]
}

const cases: Case[] = [
  { name: 'the payment is waiting', owed: [] },
  { name: 'the payment has settled', seen: ['settled', 'settled'], owed: [] },
  {
    name: 'the payment was cancelled, and the cancellation is not final yet',
    seen: ['cancelled', null],
    owed: ['0: authorization_cancelled'],
  },
  {
    name: 'the payment was cancelled and has failed (the fee is also owed, because it is never charged alone)',
    seen: ['cancelled', null],
    place: 'failed',
    code: 'authorization_cancelled',
    owed: ['0: authorization_cancelled', '1: authorization_cancelled'],
  },
  {
    name: 'only the fee was cancelled, and the payment is final',
    seen: ['settled', 'cancelled'],
    place: 'settled',
    code: 'authorization_cancelled',
    owed: ['1: authorization_cancelled'],
  },
  {
    name: 'the nonce was used for something else',
    seen: ['foreign_use', null],
    owed: ['0: authorization_used'],
  },
  { name: 'the payment is to be retried', place: 'retrying', code: 'insufficient_balance', owed: [] },
  {
    name: 'the payment failed for lack of balance',
    place: 'failed',
    code: 'insufficient_balance',
    owed: ['0: insufficient_balance', '1: insufficient_balance'],
  },
  {
    name: 'the failure of the payment is final, and someone else settled one half',
    seen: ['settled', null],
    place: 'failed and final',
    code: 'insufficient_balance',
    owed: ['1: insufficient_balance'],
  },
  {
    name: 'the payment expired without a failed attempt',
    place: 'failed',
    code: 'authorization_expired',
    owed: [],
  },
  { name: 'the payment was voided and cancelled', seen: ['cancelled', null], place: 'voided', owed: [] },
]

/** Records an event of one half. */
async function see({ paymentId, payer, nonces }: SeededPayment, half: 0 | 1, state: Seen): Promise<void> {
  if (state === null) return
  const [signed] = await database<{ recipient: Address; value: bigint }[]>`
    select recipient, value from signed_authorization where payment_id = ${paymentId} and half = ${half}`
  if (!signed) throw new Error('no such half')
  const isUsed = state !== 'cancelled'
  const event = {
    authorizer: payer,
    nonce: nonces[half],
    state: isUsed ? ('used' as const) : ('cancelled' as const),
    recipient: isUsed ? signed.recipient : null,
    value: isUsed ? signed.value - (state === 'foreign_use' ? 1n : 0n) : null,
    txHash: randomHex(32),
    logIndex: half * 2,
    blockNumber: 100n,
    blockHash: blockHashOf(100),
    blockTime: 1_795_262_400n,
  }
  await recordEvents(database, seedScope, [event], 'index')
}

async function place({ paymentId }: SeededPayment, to: Case['place'], code: string | null): Promise<void> {
  const now = new Date()
  const end = (kind: PaymentResult, isFinal: boolean) =>
    endPayments(database, [{ paymentId, kind, code, isFinal }], now)
  if (to === 'retrying') {
    await failPayment(database, paymentId, { code: code ?? '', now })
  } else if (to === 'failed and final') {
    await end('failed', false)
    await end('failed', true)
  } else if (to !== undefined) await end(to, to === 'settled')
}

test.each(cases)(
  'args: returns the halves that the payer owes if $name',
  async ({ seen = [null, null], place: to, code = null, owed }) => {
    const seeded = await seedPayment(database, { provider })
    await see(seeded, 0, seen[0])
    await see(seeded, 1, seen[1])
    await place(seeded, to, code)
    const rows = await database<{ half: number; code: string }[]>`
    select half, code from ${badDebt(database)} debt where payer = ${seeded.payer} order by half`
    expect(rows.map(({ half, code }) => `${half}: ${code}`)).toEqual(owed)
  },
)

test('behavior: nothing is owed for facilitator payments, because their sellers serve only after settlement', async () => {
  const { providerId } = provider
  const seeded = await seedTransfer(database, {
    source: 'facilitator',
    providerId,
    facilitation: { providerId, paymentIdentifier: null },
  })
  await place(seeded, 'failed', 'insufficient_balance')
  expect(await findDebts(database, { payer: seeded.payer }, 10)).toEqual([])
})

test('behavior: debts that the operator forgave are no longer owed', async () => {
  const seeded = await seedPayment(database, { provider })
  await place(seeded, 'failed', 'insufficient_balance')
  const { payer, paymentId } = seeded
  const debt = () => findDebts(database, { payer }, 10)
  expect(await debt()).toMatchObject([{ paymentId, code: 'insufficient_balance', amount: 50_000n }])
  await forgiveDebts(database, { payer }, 'a gift')
  expect(await debt()).toEqual([])
})
