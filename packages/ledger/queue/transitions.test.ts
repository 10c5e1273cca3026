import fc from 'fast-check'
import { expect, test } from 'vitest'
import { claimAs, failPayment } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import {
  type SeededPayment,
  type SeedProvider,
  seedPayment,
  seedProvider,
  seedScope,
  seedSettlement,
} from '../../../test/support/seedPayments.ts'
import { closeBatch, setBatchState } from '../batches/batches.ts'
import {
  deferPayments,
  endIsolation,
  endPayments,
  isolatePayments,
  type PaymentResult,
  reopenPayments,
  returnDeferred,
  type Stage,
} from './stages.ts'

// Applies random operations to payments. Each payment must be in exactly one state, the one that a small model predicts, and final payments
// must be in their providers' sums. A failure prints the seed and the shortest sequence that reproduces it.

const now = new Date()
const soon = new Date(now.getTime() + 1_000)

const sql = await useDatabase()

/** A payment in the model. */
type Life = {
  seeded: SeededPayment
  stage: Stage | null
  kind: PaymentResult | null
  attempts: number
  hasFailed: boolean
  /** The halves that arrived, as bits; for a final payment, also the halves that are in the sums. */
  moved: number
  counted: number | null
  /** The lane in which it was claimed, and the batch. */
  batch: { id: bigint; lane: 'shared' | 'isolated' } | null
}

type Step = (lives: Life[]) => Promise<void>

const isUnbatched = ({ stage }: Life) =>
  stage !== null && ['waiting', 'deferred', 'retrying', 'isolated'].includes(stage)
const idOf = ({ seeded }: Life) => seeded.paymentId
const which = fc.nat({ max: 2 })

function at(lives: Life[], index: number): Life {
  const life = lives[index]
  if (!life) throw new Error('no such payment')
  return life
}

function enterQueue(life: Life): void {
  life.stage = life.attempts > 0 ? 'retrying' : 'waiting'
  life.batch = null
}

const defer = which.map(
  (index): Step =>
    async (lives) => {
      const life = at(lives, index)
      await deferPayments(sql, [idOf(life)], soon)
      if (life.stage === 'waiting') life.stage = 'deferred'
    },
)

const returnAll = fc.constant<Step>(async (lives) => {
  await returnDeferred(sql, seedScope, soon)
  for (const life of lives) if (life.stage === 'deferred') life.stage = 'waiting'
})

const fail = which.map(
  (index): Step =>
    async (lives) => {
      const life = at(lives, index)
      const attempts = await failPayment(sql, idOf(life), { now })
      if (life.stage === null && life.kind !== 'spent') {
        expect(attempts).toBeNull()
        return
      }
      life.attempts = Math.min(life.attempts + 1, 6)
      life.hasFailed = true
      expect(attempts).toBe(life.attempts)
      if (life.attempts === 6 && life.batch === null) {
        life.stage = null
        life.kind = 'failed'
      } else if (life.stage === 'waiting' || life.stage === 'deferred') life.stage = 'retrying'
    },
)

const isolation = which.map(
  (index): Step =>
    async (lives) => {
      const life = at(lives, index)
      await isolatePayments(sql, [idOf(life)])
      if (life.stage === null || life.batch !== null) return
      life.stage = 'isolated'
    },
)

const endsIsolation = which.map(
  (index): Step =>
    async (lives) => {
      const life = at(lives, index)
      const returned = await endIsolation(sql, [idOf(life)], now)
      expect(returned).toEqual(life.stage === 'isolated' ? [idOf(life)] : [])
      if (life.stage === 'isolated') enterQueue(life)
    },
)

const claim = fc
  .tuple(fc.subarray([0, 1, 2], { minLength: 1 }), fc.constantFrom('shared' as const, 'isolated' as const))
  .map(
    ([indexes, lane]): Step =>
      async (lives) => {
        const wanted = indexes.map((index) => at(lives, index))
        const { batch } = await claimAs(sql, lane, wanted.map(idOf), { now })
        const chosen = wanted.filter(
          (life) =>
            isUnbatched(life) && (life.stage === 'isolated') === (lane === 'isolated') && life.moved < 3,
        )
        expect(batch !== null).toBe(chosen.length > 0)
        for (const life of chosen) {
          life.stage = 'claimed'
          life.batch = { id: batch?.id ?? 0n, lane }
        }
      },
  )

const send = which.map(
  (index): Step =>
    async (lives) => {
      const { batch } = at(lives, index)
      if (!batch) return
      await setBatchState(sql, batch.id, 'broadcast')
      for (const life of lives) if (life.batch?.id === batch.id) life.stage = 'sent'
    },
)

const close = which.map(
  (index): Step =>
    async (lives) => {
      const { batch } = at(lives, index)
      if (!batch) return
      await closeBatch(sql, batch.id, 'released', now)
      for (const life of lives) {
        if (life.batch?.id !== batch.id) continue
        enterQueue(life)
        if (batch.lane === 'isolated') life.stage = 'isolated'
      }
    },
)

const settle = fc.tuple(which, fc.constantFrom(0 as const, 1 as const)).map(
  ([index, half]): Step =>
    async (lives) => {
      const life = at(lives, index)
      if (life.moved & (1 << half)) return
      await seedSettlement(sql, life.seeded, { halves: [half], blockNumber: 100 + index })
      life.moved |= 1 << half
    },
)

const ends = fc.constantFrom(
  ...([
    { kind: 'spent', isFinal: false },
    { kind: 'settled', isFinal: true },
    { kind: 'failed', isFinal: false },
    { kind: 'failed', isFinal: true },
    { kind: 'voided', isFinal: false },
    { kind: 'voided', isFinal: true },
  ] as const),
)

const end = fc.tuple(which, ends, fc.boolean()).map(
  ([index, { kind, isFinal }, isOfBatch]): Step =>
    async (lives) => {
      const life = at(lives, index)
      const code = kind === 'failed' ? 'insufficient_balance' : null
      const from = isOfBatch ? (life.batch?.id ?? 0n) : undefined
      const ended = await endPayments(sql, [{ paymentId: idOf(life), kind, code, isFinal }], now, from)
      const canEnd =
        isUnbatched(life) ||
        (life.batch !== null && isOfBatch) ||
        (life.stage === null && life.counted === null)
      expect(ended).toEqual(canEnd ? [idOf(life)] : [])
      if (!canEnd) return
      life.stage = null
      life.batch = null
      life.kind = kind
      life.counted = isFinal ? life.moved : null
    },
)

const reopen = fc.tuple(which, fc.constantFrom('kept' as const, 'forgotten' as const)).map(
  ([index, attempts]): Step =>
    async (lives) => {
      const life = at(lives, index)
      const reopened = await reopenPayments(sql, [idOf(life)], attempts)
      expect(reopened).toEqual(life.stage === null ? [idOf(life)] : [])
      if (life.stage !== null) return
      if (attempts === 'forgotten' || !life.hasFailed) life.attempts = 0
      life.kind = null
      life.counted = null
      enterQueue(life)
    },
)

const steps = fc.array(
  fc.oneof(
    ...[defer, returnAll, fail, isolation, endsIsolation, send, close, settle],
    ...[claim, end, reopen].map((arbitrary) => ({ arbitrary: arbitrary as fc.Arbitrary<Step>, weight: 2 })),
  ),
  { minLength: 10, maxLength: 30 },
)

/** Reads the states of payments from the tables. */
async function places(lives: readonly Life[]) {
  const rows = await sql`
    select p.id, q.stage, o.kind, coalesce(q.attempts, o.attempts) as attempts, o.arrived, q.batch_id as batch,
      (q.payment_id is null) <> (o.payment_id is null) as "isInOnePlace"
    from payment p left join queue q on q.payment_id = p.id left join payment_result o on o.payment_id = p.id
    where p.id = any(${lives.map(idOf)}::text[])`
  const byId = new Map(rows.map((row) => [row.id, row]))
  return lives.map((life) => ({ ...byId.get(idOf(life)) }))
}

function expectedPlace(life: Life) {
  const { stage, kind, attempts, counted, batch } = life
  return {
    id: idOf(life),
    stage,
    kind,
    attempts,
    arrived: counted,
    batch: batch?.id ?? null,
    isInOnePlace: true,
  }
}

async function sums({ providerId }: SeedProvider) {
  const [row] = await sql`
    select coalesce(sum(payments), 0)::int as payments, coalesce(sum(voided_payments), 0)::int as voided,
      coalesce(sum(settled_payments), 0)::int as settled, coalesce(sum(failed_payments), 0)::int as failed,
      coalesce(sum(gross), 0)::int as gross, coalesce(sum(settled_net), 0)::int as net,
      coalesce(sum(settled_fee), 0)::int as fee, coalesce(sum(failed_net), 0)::int as lost
    from revenue where provider_id = ${providerId} and period = 'month'`
  return { ...row }
}

function expectedSums(lives: readonly Life[]) {
  const sum = { payments: 0, voided: 0, settled: 0, failed: 0, gross: 0, net: 0, fee: 0, lost: 0 }
  for (const { kind, counted } of lives) {
    if (counted === null) continue
    const isPaid = (counted & 1) !== 0
    if (counted & 2) sum.fee += 2_500
    if (kind === 'voided' && !isPaid) {
      sum.voided++
      continue
    }
    sum.payments++
    sum.gross += 50_000
    sum[isPaid ? 'settled' : 'failed']++
    sum[isPaid ? 'net' : 'lost'] += 47_500
  }
  return sum
}

test('behavior: after any operations, each payment is in exactly one state, and the sums contain exactly the final payments', async () => {
  await fc.assert(
    fc.asyncProperty(steps, async (life) => {
      const provider = await seedProvider(sql)
      const lives: Life[] = []
      for (let index = 0; index < 3; index++) {
        const start = { stage: 'waiting', kind: null, attempts: 0, hasFailed: false, moved: 0 } as const
        lives.push({ ...start, seeded: await seedPayment(sql, { provider }), counted: null, batch: null })
      }
      for (const step of life) {
        await step(lives)
        expect(await places(lives)).toEqual(lives.map(expectedPlace))
        expect(await sums(provider)).toEqual(expectedSums(lives))
      }
    }),
    { numRuns: 25 },
  )
})
