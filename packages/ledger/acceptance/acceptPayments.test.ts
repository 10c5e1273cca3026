import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { makeCandidate } from '../../../bench/data/makeCandidate.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { seedChainId, seedPayment, seedProvider, seedSettlement } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { bothHalves } from '../facts/halves.ts'
import { endPayments } from '../queue/stages.ts'
import { compositeArray } from '../store/compositeArray.ts'
import { warmSessions } from './acceptance.ts'
import { acceptPayments, type Candidate } from './acceptPayments.ts'

const splitter: Address = randomHex(20)

const database = await useDatabase()
const provider = await seedProvider(database)

async function readHalves(paymentId: string) {
  const [row] = await database<{ provider: string; fee: string | null; feeTx: string | null }[]>`
    select half.provider, half.fee, half.fee_tx as "feeTx" from payment p
    cross join lateral ${bothHalves(database)} half where p.id = ${paymentId}`
  return row
}

test("behavior: one authorization to a splitter carries the provider's part and the fee", async () => {
  const payment = await seedPayment(database, { provider, splitter })
  expect(await readHalves(payment.paymentId)).toEqual({ provider: 'open', fee: 'open', feeTx: null })
  const rows =
    await database`select half, recipient, value from signed_authorization where payment_id = ${payment.paymentId}`
  expect([...rows]).toEqual([{ half: 0, recipient: splitter, value: 50_000n }])

  const txHash = await seedSettlement(database, payment, { halves: [0] })
  expect(await readHalves(payment.paymentId)).toEqual({ provider: 'settled', fee: 'settled', feeTx: txHash })
  const ending = { paymentId: payment.paymentId, kind: 'settled', code: null, isFinal: true } as const
  await endPayments(database, [ending], new Date())
  const [sums] = await database`
    select settled_net, settled_fee from revenue where provider_id = ${provider.providerId} and period = 'day'`
  expect(sums).toEqual({ settled_net: 47_500n, settled_fee: 2_500n })
})

test('error: rejects a splitter payment without a fee', async () => {
  await expect(seedPayment(database, { provider, splitter, feeAmount: 0n })).rejects.toThrow(
    /check constraint/,
  )
})

test('behavior: warming up opens a database session for each group of payments that can be accepted concurrently, and stores nothing', async () => {
  const sessions = async () =>
    (
      await database`select from pg_stat_activity where datname = current_database() and backend_type = 'client backend'`
    ).length
  const payments = async () => (await database`select from payment`).length
  const before = await payments()
  expect(await sessions()).toBe(1)
  await warmSessions(database)
  expect(await sessions()).toBe(3)
  expect(await payments()).toBe(before)
})

test('behavior: stores rows unchanged, whatever characters their texts contain', async () => {
  const texts = ['', 'a b', '"', '\\', '\\"', 'a,b', '(x)', '{y}', 'null', "'", '\n\t', 'é€😀', '"",\\\\"']
  const rows = texts.map((text, index) => [text, index, null, 2n ** 63n, null, null, `${text},`, null, null])
  const read = await database`
    select payment_id, half, recipient, value, nonce
    from unnest(${compositeArray(rows)}::text::candidate_authorization[])`
  expect([...read]).toEqual(
    texts.map((text, half) => ({
      payment_id: text,
      half,
      recipient: null,
      value: 2n ** 63n,
      nonce: `${text},`,
    })),
  )
  const none = await database`select from unnest(${compositeArray([])}::text::candidate[])`
  expect(none).toHaveLength(0)
})

const token = randomHex(20)

function candidate(payer: Address, change: Partial<Candidate> = {}): Candidate {
  const [endpointId = ''] = provider.endpointIds
  const seller = { providerId: provider.providerId, endpointId, payee: provider.wallet }
  return { ...makeCandidate(Date.now(), seller, { payer, chainId: seedChainId, token }), ...change }
}

/** Reads the stored rows of candidates, and the totals of their payers. */
async function readStored(candidates: readonly Candidate[]) {
  const ids = candidates.map(({ id }) => id)
  const rows = await database<
    Record<'payment' | 'queue' | 'presentation' | 'signed_authorization', string>[]
  >`
    select p.id as payment, q.payment_id as queue, s.payment_id as presentation, a.payment_id as signed_authorization
    from payment p
    full join queue q on q.payment_id = p.id
    full join presentation s on s.payment_id = coalesce(p.id, q.payment_id)
    full join (select distinct payment_id from signed_authorization) a on a.payment_id = coalesce(p.id, q.payment_id, s.payment_id)
    where coalesce(p.id, q.payment_id, s.payment_id, a.payment_id) = any(${ids}::text[])`
  const totals = await database<{ address: Address; total: bigint }[]>`
    select address, accepted_total as total from payer where address = any(${candidates.map(({ payer }) => payer)}::text[])`
  return {
    stored: rows.filter((row) => new Set(Object.values(row)).size === 1).map(({ payment }) => payment),
    torn: rows.filter((row) => new Set(Object.values(row)).size > 1),
    totals: new Map(totals.map(({ address, total }) => [address, total])),
  }
}

test("behavior: reserves the amounts of all payers of a group, and refuses only the payments that exceed a payer's limit", async () => {
  const [rich, poor, none] = [randomHex(20), randomHex(20), randomHex(20)]
  const group = [
    candidate(rich),
    candidate(poor, { limit: 120_000n }),
    candidate(rich, { limit: 100_000n }),
    candidate(poor, { limit: 120_000n }),
    candidate(none, { limit: 49_999n }),
    candidate(poor, { limit: 120_000n }),
  ]
  const verdicts = await acceptPayments(database, group)
  const of = (payer: Address) => verdicts.filter((_, index) => group[index]?.payer === payer).toSorted()
  expect(of(rich)).toEqual(['accepted', 'accepted'])
  expect(of(poor)).toEqual(['accepted', 'accepted', 'over_limit'])
  expect(of(none)).toEqual(['over_limit'])
  const { stored, torn, totals } = await readStored(group)
  expect(stored.toSorted()).toEqual(
    group.flatMap(({ id }, index) => (verdicts[index] === 'accepted' ? id : [])).toSorted(),
  )
  expect(torn).toEqual([])
  expect(totals).toEqual(
    new Map([
      [rich, 100_000n],
      [poor, 100_000n],
    ]),
  )
})

test("error: refuses a payment in a group if the payment and the payer's earlier payments together exceed the limit", async () => {
  const payer = randomHex(20)
  const earlier = candidate(payer)
  expect(await acceptPayments(database, [earlier])).toEqual(['accepted'])
  // The two payments cost 100,000 together. The limit of 120,000 would cover them if the earlier payment hadn't used 50,000 of it.
  const group = [candidate(payer, { limit: 120_000n }), candidate(payer, { limit: 120_000n })]
  expect((await acceptPayments(database, group)).toSorted()).toEqual(['accepted', 'over_limit'])
  const { totals } = await readStored([earlier, ...group])
  expect(totals).toEqual(new Map([[payer, 100_000n]]))
})

test('error: accepts a challenge or an authorization only once, whether it is repeated in the same group, in a later group or by another payer', async () => {
  const [first, second, third] = [randomHex(20), randomHex(20), randomHex(20)]
  const known = candidate(first)
  expect(await acceptPayments(database, [known])).toEqual(['accepted'])
  const [provides, fee] = known.authorizations
  const twin = candidate(second)
  const group = [
    known,
    candidate(first, { authorizations: [provides] }),
    // Presents the known payment's fee authorization as the provider's part of another payment.
    candidate(first, { authorizations: fee ? [fee] : [provides] }),
    candidate(third, { requestId: known.requestId }),
    twin,
    candidate(second, { authorizations: twin.authorizations }),
    candidate(third, { requestId: twin.requestId }),
    candidate(third, { authorizations: known.authorizations }),
  ]
  const verdicts = await acceptPayments(database, group)
  expect(verdicts.slice(0, 4)).toEqual(['replayed', 'replayed', 'replayed', 'replayed'])
  // One of the two equal payments in a group is accepted; it doesn't matter which.
  const taken = verdicts.slice(4, 7)
  expect(taken.filter((verdict) => verdict === 'accepted').length).toBeGreaterThanOrEqual(1)
  const { stored, torn, totals } = await readStored([known, ...group])
  expect(torn).toEqual([])
  const nonces = await database`
    select from signed_authorization where token = ${token} group by authorizer, nonce having count(*) > 1`
  expect(nonces).toHaveLength(0)
  const requests = await database`
    select from payment where request_id in ${database([known.requestId ?? '', twin.requestId ?? ''])}`
  expect(requests).toHaveLength(2)
  // The same nonce of another payer is a different authorization. Nothing is reserved for refused payments.
  expect(verdicts[7]).toBe('accepted')
  const sums = (payer: Address) =>
    [known, ...group].filter((one) => stored.includes(one.id) && one.payer === payer).map(({ id }) => id)
  for (const payer of [first, second, third])
    expect(totals.get(payer) ?? 0n).toBe(50_000n * BigInt(new Set(sums(payer)).size))
})

test('behavior: a stored payment stays unchanged if it is presented again together with refused payments', async () => {
  const payer = randomHex(20)
  const stored = candidate(payer)
  expect(await acceptPayments(database, [stored])).toEqual(['accepted'])
  const late = candidate(payer, { deadline: 0 })
  const poor = candidate(randomHex(20), { limit: 0n })
  expect(await acceptPayments(database, [stored, late, poor])).toEqual(['replayed', 'late', 'over_limit'])
  const after = await readStored([stored, late, poor])
  expect(after.stored).toEqual([stored.id])
  expect(after.torn).toEqual([])
  expect(after.totals).toEqual(new Map([[payer, 50_000n]]))
})

test('behavior: if concurrent sessions store the same authorizations, each authorization is stored once, without a deadlock', async () => {
  const payers = Array.from({ length: 4 }, () => randomHex(20))
  const same = Array.from({ length: 40 }, (_, index) => candidate(payers[index % 4] ?? randomHex(20)))
  const sessions = await Promise.all(
    [0, 1, 2].map((turn) =>
      acceptPayments(
        database,
        same
          .map((one) => ({
            ...candidate(one.payer),
            authorizations: one.authorizations,
            requestId: one.requestId,
          }))
          .toSorted((a, b) => (turn === 1 ? 1 : -1) * ((a.requestId ?? '') < (b.requestId ?? '') ? 1 : -1)),
      ),
    ),
  )
  expect(sessions.flat().filter((verdict) => verdict === 'accepted')).toHaveLength(40)
  const rows = await database`
    select sum(accepted_total) as total from payer where address = any(${payers}::text[])`
  expect(rows[0]).toEqual({ total: 40n * 50_000n })
})

test('behavior: deleting a payment deletes all its rows', async () => {
  const one = candidate(randomHex(20))
  await acceptPayments(database, [one])
  await database`delete from payment where id = ${one.id}`
  expect(await readStored([one])).toMatchObject({ stored: [], torn: [] })
})
