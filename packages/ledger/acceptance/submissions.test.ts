import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Hex } from 'viem'
import { expect, test } from 'vitest'
import { claimAs, failPayment } from '../../../test/support/claim.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { failPayments, positionOf, voidNow } from '../../../test/support/paymentPosition.ts'
import {
  seedPayment,
  seedPlatform,
  seedProvider,
  seedScope,
  seedTransfer,
  toCandidate,
} from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { type BatchRow, closeBatch, recordOutcomes, setBatchState } from '../batches/batches.ts'
import { insertTransaction, markMined } from '../batches/transactions.ts'
import { readGroups, readSubmission } from '../queue/queue.ts'
import { endPayments } from '../queue/stages.ts'
import type { AcceptedAuthorizations, Candidate, Verdict } from './acceptPayments.ts'
import {
  failTogether,
  findPayments,
  nameOf,
  readLeftOfSubmission,
  SubmissionConflict,
  storeSubmission,
} from './submissions.ts'

const now = new Date()

const sql = await useDatabase()
const provider = await seedProvider(sql)

function transfer(change: Partial<SignedAuthorization> = {}): SignedAuthorization {
  return {
    from: randomHex(20),
    to: randomHex(20),
    value: 1n,
    validAfter: 0n,
    validBefore: 2n ** 39n,
    nonce: randomHex(32),
    signature: randomHex(65),
    ...change,
  }
}

/** Returns a provider's transfer and its fee. */
function pair(): [SignedAuthorization, SignedAuthorization] {
  const first = transfer()
  return [first, transfer({ from: first.from, to: seedPlatform })]
}

/** Returns a payment of a submission with these authorizations. */
function candidateOf(...signed: SignedAuthorization[]): Candidate {
  const halves = signed.map(({ to: recipient, ...one }) => ({ ...one, recipient, acceptedBlock: null }))
  return toCandidate({
    source: 'submission',
    payer: signed[0]?.from ?? randomHex(20),
    acceptedAt: now,
    halves: halves as unknown as AcceptedAuthorizations,
  })
}

const find = (asked: readonly SignedAuthorization[], submission = randomHex(32)) =>
  findPayments(sql, { ...seedScope, submission }, asked)

/** Submits transfers together. Each payment is a transfer, or a transfer with its fee. */
async function askAs(key: Hex, ...asked: SignedAuthorization[][]): Promise<Verdict[]> {
  const found = await find(asked.flat(), key)
  const candidates = asked
    .filter((signed) => signed.every((one) => !found.has(nameOf(one))))
    .map((signed) => candidateOf(...signed))
  const signatures = new Map(asked.flat().map((one) => [nameOf(one), one.signature]))
  const known = [...Map.groupBy(found, ([, { paymentId }]) => paymentId)].map(([paymentId, halves]) => {
    const signatureOf = (half: 0 | 1) =>
      signatures.get(halves.find(([, one]) => one.half === half)?.[0] ?? '') ?? null
    const isFailed = halves.some(([, { ended }]) => ended === 'failed')
    return { paymentId, isFailed, payerHasCode: false, signatures: [signatureOf(0), signatureOf(1)] as const }
  })
  return sql.begin((tx) => storeSubmission(tx, { key, candidates, known }, now)) as Promise<Verdict[]>
}

async function ask(...asked: SignedAuthorization[][]): Promise<Hex> {
  const key = randomHex(32)
  expect(await askAs(key, ...asked)).toEqual(asked.map(() => 'accepted'))
  return key
}

/** Claims the submission that has waited longest, like the keeper. */
async function claim(): Promise<BatchRow | null> {
  const due = await readSubmission(sql, seedScope)
  return due.length === 0 ? null : claimAll(due.map(({ id }) => id))
}

const claimAll = async (paymentIds: string[]) => (await claimAs(sql, 'submission', paymentIds, { now })).batch

/** Closes a batch in which nothing settled, and fails the payments of its submission. */
async function fail(batch: BatchRow | null, code = 'deferred'): Promise<void> {
  if (!batch) throw new Error('nothing was claimed')
  await closeBatch(sql, batch.id, 'nothing_left', now)
  for (const paymentId of await readLeftOfSubmission(sql, batch.id))
    await failPayment(sql, paymentId, { code, now })
}

async function noncesIn(batch: BatchRow | null): Promise<string[]> {
  const rows = await sql<{ nonce: string }[]>`
    select a.nonce from batch_item i join signed_authorization a using (payment_id)
    where i.batch_id = ${batch?.id ?? 0n} order by i.position, a.half`
  return rows.map(({ nonce }) => nonce)
}

async function queued(paymentId: string) {
  const [row] = await sql`
    select stage, submission, due_at is not null as "isDue", attempts from queue where payment_id = ${paymentId}`
  return row
}

async function paymentOf(one: SignedAuthorization): Promise<string> {
  const payment = (await find([one])).get(nameOf(one))
  if (!payment) throw new Error('no payment contains this authorization')
  return payment.paymentId
}

test('default: payments that were submitted together are due immediately and settle together', async () => {
  const [one, other, fee] = [transfer(), ...pair()]
  const key = await ask([one], [other, fee])
  const known = await find([one, other, fee, transfer()], key)
  expect([...known.keys()].sort()).toEqual([one, other, fee].map(nameOf).sort())
  expect(known.get(nameOf(fee))).toEqual({
    paymentId: await paymentOf(other),
    half: 1,
    isPair: true,
    recipient: seedPlatform,
    value: 1n,
    validAfter: 0n,
    validBefore: 2n ** 39n,
    isTriedInVain: false,
    isOut: false,
    maySettle: false,
    isSubmission: true,
    isReserved: false,
    isReleased: false,
    isTaken: false,
    ended: null,
  })
  expect((await find([one])).get(nameOf(one))).toMatchObject({ isReleased: true, isTaken: true })
  const due = await readSubmission(sql, seedScope)
  expect(due.map(({ id }) => id).sort()).toEqual([await paymentOf(one), await paymentOf(other)].sort())
  const batch = await claim()
  expect(batch).toMatchObject({ lane: 'submission', trigger: 'submission' })
  expect((await noncesIn(batch)).sort()).toEqual([one, other, fee].map(({ nonce }) => nonce).sort())
  expect(await claim()).toBeNull()
  await fail(batch)
})

test('error: rejects a transfer that waits in another submission', async () => {
  const [first, fee] = pair()
  const key = await ask([first, fee])
  await expect(ask([fee])).rejects.toThrow(SubmissionConflict)
  await expect(ask([first])).rejects.toThrow(SubmissionConflict)
  // Submitting the same transfers again changes nothing.
  expect(await askAs(key, [first, fee])).toEqual([])
  const batch = await claim()
  expect(await noncesIn(batch)).toHaveLength(2)
  // Submitting a payment that is in a batch changes nothing.
  expect(await askAs(randomHex(32), [fee])).toEqual([])
  expect(await queued(await paymentOf(fee))).toMatchObject({ stage: 'claimed', submission: key })
  await fail(batch)
})

test('error: if one payment is refused, its verdict is returned, and nothing is stored once the caller rolls back', async () => {
  const [one, other] = [transfer(), transfer()]
  const rollBack = new Error('not all accepted')
  const verdicts: Verdict[] = []
  const store = sql.begin(async (tx) => {
    const candidates = [candidateOf(one), { ...candidateOf(other), limit: 0n }]
    verdicts.push(...(await storeSubmission(tx, { key: randomHex(32), candidates, known: [] }, now)))
    throw rollBack
  })
  await expect(store).rejects.toBe(rollBack)
  expect(verdicts).toEqual(['accepted', 'over_limit'])
  expect((await find([one, other])).size).toBe(0)
})

test('behavior: requeues a failed submission as the same payments, with the latest signatures', async () => {
  const [first, fee] = pair()
  const key = await ask([first, fee])
  await fail(await claim(), 'authorization_used')
  const paymentId = await paymentOf(first)
  expect(await positionOf(sql, { paymentId })).toMatchObject({
    stage: null,
    kind: 'failed',
    failureCode: 'authorization_used',
  })

  // A contract may accept several signatures for one authorization.
  const [signedAgain, feeAgain] = [first, fee].map((one) => ({ ...one, signature: randomHex(80) }))
  if (!signedAgain || !feeAgain) throw new Error('expected two signed authorizations')
  expect(await askAs(key, [signedAgain, feeAgain])).toEqual([])
  expect(await paymentOf(first)).toBe(paymentId)
  const again = await claim()
  expect(await noncesIn(again)).toEqual([first.nonce, fee.nonce])
  const [presented] = await sql`
    select '0x' || encode(signature, 'hex') as signature, '0x' || encode(fee_signature, 'hex') as "feeSignature"
    from presentation where payment_id = ${paymentId}`
  expect(presented).toEqual({ signature: signedAgain.signature, feeSignature: feeAgain.signature })
  expect(await positionOf(sql, { paymentId })).toMatchObject({
    stage: 'claimed',
    attempts: 0,
    failureCode: null,
  })
  await fail(again)
})

test('behavior: closing an earlier batch doesn’t fail a payment that was submitted again in the meantime', async () => {
  const one = transfer()
  await ask([one])
  const batch = await claim()
  await fail(batch)
  expect(await askAs(randomHex(32), [one])).toEqual([])
  expect(await readLeftOfSubmission(sql, batch?.id ?? 0n)).toEqual([])
  await fail(await claim())
})

test('behavior: a transfer that is still queued keeps the signature that it was accepted with', async () => {
  const first = transfer()
  const key = await ask([first])
  await askAs(key, [{ ...first, signature: randomHex(80) }])
  const [presented] = await sql`
    select '0x' || encode(signature, 'hex') as signature from presentation where payment_id = ${await paymentOf(first)}`
  expect(presented).toEqual({ signature: first.signature })
  await fail(await claim())
})

test('behavior: requeueing a payment also updates whether its payer has code', async () => {
  const { paymentId } = await seedTransfer(sql, { source: 'submission' })
  await failPayments(sql, [paymentId])
  const known = [
    { paymentId, isFailed: true, payerHasCode: true, signatures: [randomHex(80), null] },
  ] as const
  await sql.begin((tx) => storeSubmission(tx, { key: randomHex(32), candidates: [], known }, now))
  const [row] = await sql`select has_code as "hasCode" from queue where payment_id = ${paymentId}`
  expect(row).toEqual({ hasCode: true })
  await fail(await claim())
})

test.each([
  ['has failed permanently', { kind: 'failed', code: 'authorization_expired', isFinal: true }],
  ['was voided', { kind: 'voided', code: null, isFinal: false }],
] as const)('error: does not requeue a payment that %s in the meantime', async (_, ending) => {
  const one = transfer()
  await ask([one])
  await fail(await claim())
  const paymentId = await paymentOf(one)
  await endPayments(sql, [{ paymentId, ...ending }], now)
  const known = [
    { paymentId, isFailed: true, payerHasCode: false, signatures: [one.signature, null] },
  ] as const
  const store = sql.begin((tx) => storeSubmission(tx, { key: randomHex(32), candidates: [], known }, now))
  await expect(store).rejects.toThrow(SubmissionConflict)
  expect(await positionOf(sql, { paymentId })).toMatchObject({ stage: null, kind: ending.kind })
})

test.each([
  ['failed, but not permanently,', { kind: 'failed', code: 'deferred', isFinal: false }, 'undecided'],
  ['failed permanently', { kind: 'failed', code: 'authorization_expired', isFinal: true }, 'failed'],
  ['was voided', { kind: 'voided', code: null, isFinal: false }, 'voided'],
] as const)('error: reports a conflict if a payment %s after it was read', async (_, ending, reason) => {
  const { paymentId } = await seedTransfer(sql, { source: 'submission' })
  await endPayments(sql, [{ paymentId, ...ending }], now)
  const known = [
    { paymentId, isFailed: false, payerHasCode: false, signatures: [randomHex(65), null] },
  ] as const
  const store = sql.begin((tx) => storeSubmission(tx, { key: randomHex(32), candidates: [], known }, now))
  await expect(store).rejects.toMatchObject({ name: 'SubmissionConflict', reason })
})

test('behavior: claims a submission completely or not at all', async () => {
  const soon = transfer({ validBefore: BigInt(Math.floor(now.getTime() / 1000) + 1) })
  const one = transfer()
  const key = await ask([one], [soon])
  expect(await claim()).toBeNull()
  expect(await queued(await paymentOf(one))).toMatchObject({ stage: 'waiting', submission: key })
  expect(await sql`select from batch_item where payment_id = ${await paymentOf(one)}`).toHaveLength(0)

  // Payments of POST /submit aren't retried: the submitter gets the failure as the answer.
  const ids = [await paymentOf(one), await paymentOf(soon)]
  await failTogether(sql, ids, { code: 'authorization_expired', now })
  expect(await readSubmission(sql, seedScope)).toEqual([])
  for (const paymentId of ids)
    expect(await positionOf(sql, { paymentId })).toMatchObject({ kind: 'failed', attempts: 1 })
})

test('behavior: if a submission fails, its gateway payments stay in the queue separately', async () => {
  const { paymentId, payer, nonces } = await seedPayment(sql, { provider })
  const own = transfer({ from: payer, nonce: nonces[0] })
  const stranger = transfer()
  const key = randomHex(32)
  expect(await askAs(key, [own], [stranger])).toEqual(['accepted'])
  expect(await queued(paymentId)).toEqual({ stage: 'waiting', submission: key, isDue: true, attempts: 0 })
  const batch = await claim()
  expect((await noncesIn(batch)).sort()).toEqual([...nonces, stranger.nonce].sort())
  await setBatchState(sql, batch?.id ?? 0n, 'broadcast')
  await fail(batch)
  expect(await queued(paymentId)).toEqual({ stage: 'waiting', submission: null, isDue: false, attempts: 0 })
  expect(await positionOf(sql, { paymentId: await paymentOf(stranger) })).toMatchObject({ kind: 'failed' })
})

test('behavior: a caller of /settle still waits for its payment after the submission has ended', async () => {
  const facilitated = async () => {
    const signed = transfer()
    const first = { stage: 'due', since: now.getTime() } as const
    const facilitation = { providerId: null, paymentIdentifier: null }
    const halves: AcceptedAuthorizations = [{ ...signed, recipient: signed.to, acceptedBlock: null }]
    const { paymentId } = await seedTransfer(sql, { payer: signed.from, first, facilitation, halves })
    return { id: paymentId, signed }
  }
  const claimed = await facilitated()
  await askAs(randomHex(32), [claimed.signed])
  const batch = await claim()
  await closeBatch(sql, batch?.id ?? 0n, 'released', now)
  expect(await queued(claimed.id)).toMatchObject({ stage: 'waiting', submission: null, isDue: true })

  const dissolved = await facilitated()
  await askAs(randomHex(32), [dissolved.signed])
  await failTogether(sql, [dissolved.id], { code: 'authorization_expired', now })
  expect(await queued(dissolved.id)).toMatchObject({ stage: 'waiting', submission: null, isDue: true })
  await failPayments(sql, [claimed.id, dissolved.id])
})

test('behavior: a failed gateway payment starts with new attempts when it is submitted', async () => {
  const { paymentId, payer, nonces } = await seedPayment(sql, { provider })
  await failPayments(sql, [paymentId])
  await askAs(randomHex(32), [transfer({ from: payer, nonce: nonces[0] })])
  expect(await queued(paymentId)).toMatchObject({ stage: 'waiting', isDue: true, attempts: 0 })
  const batch = await claim()
  expect(await noncesIn(batch)).toEqual(nonces)
  await fail(batch)
  await failPayments(sql, [paymentId])
})

test('behavior: does not settle a payment that was voided after it was submitted', async () => {
  const { paymentId, payer, nonces } = await seedPayment(sql, { provider })
  await askAs(randomHex(32), [transfer({ from: payer, nonce: nonces[0] })])
  await voidNow(sql, { paymentId })
  expect(await claim()).toBeNull()
  expect(await claimAll([paymentId])).toBeNull()
  expect(await positionOf(sql, { paymentId })).toMatchObject({ stage: null, kind: 'voided' })
})

async function findTried(asked: SignedAuthorization[]): Promise<Set<string>> {
  const known = await find(asked)
  return new Set([...known].flatMap(([name, { isTriedInVain }]) => (isTriedInVain ? name : [])))
}

async function revert(batch: BatchRow | null): Promise<void> {
  if (!batch) throw new Error('no batch')
  const { id: batchId, chainId, wallet } = batch
  const [hash, fees] = [randomHex(32), { maxFeePerGas: 1n, maxPriorityFeePerGas: 0n }]
  const signed = { hash, nonce: Number(batchId), kind: 'settle', raw: randomHex(8), gas: 21_000n } as const
  await insertTransaction(sql, { ...signed, ...fees, batchId, chainId, wallet })
  const block = { blockNumber: 1n, blockHash: randomHex(32) }
  await markMined(sql, hash, { ...block, succeeded: false, cost: 0n, now, refused: [] })
  await closeBatch(sql, batchId, 'reverted', now)
}

test('default: reports each half that one of our transactions failed to settle', async () => {
  const [first, fee] = pair()
  const [waiting, reverted] = [transfer(), transfer()]
  await ask([first, fee])
  const batch = await claim()
  expect((await findTried([first, fee])).size).toBe(0)
  // In the contract's results, 3 stands for `failed`.
  await recordOutcomes(sql, batch?.id ?? 0n, 0, { provider: 1, fee: 3 })
  await fail(batch)
  await ask([reverted])
  const lost = await claim()
  await revert(lost)
  await ask([waiting])
  const tried = await findTried([first, fee, waiting, reverted])
  expect([...tried].sort()).toEqual([nameOf(fee), nameOf(reverted)].sort())
  await fail(await claim())
  expect(await readGroups(sql, seedScope)).toHaveLength(1)
})
