import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'

const sql = await useDatabase()

/** The facts by which judge_payments judges a candidate: results of earlier steps, the caller's deadline, and whether sales are stopped. */
type Facts = {
  isOverLimit?: true
  isStored?: true
  isUncovered?: true
  deadline?: number
  /** The payment's source, while the operator has stopped sales. */
  stoppedSource?: 'gateway' | 'facilitator' | 'submission' | 'refund' | 'tab'
}

const now = 1_000

test.each<[string, Facts, string]>([
  ['accepts a stored candidate', { isStored: true }, 'accepted'],
  ['accepts a candidate that is stored at its deadline', { isStored: true, deadline: now }, 'accepted'],
  ['returns `late` if the deadline has passed', { isStored: true, deadline: now - 1 }, 'late'],
  [
    'returns `gas_not_covered` if no allowance covers the gas',
    { isStored: true, isUncovered: true },
    'gas_not_covered',
  ],
  [
    'returns `gas_not_covered`, not `late`, if both apply',
    { isStored: true, isUncovered: true, deadline: 0 },
    'gas_not_covered',
  ],
  ['returns `replayed` for a candidate that was not stored', {}, 'replayed'],
  ['returns `replayed`, not `late`, if both apply', { deadline: 0 }, 'replayed'],
  [
    'returns `stopped` for a gateway payment while sales are stopped',
    { isStored: true, stoppedSource: 'gateway' },
    'stopped',
  ],
  [
    'returns `stopped` for a facilitator payment while sales are stopped',
    { isStored: true, stoppedSource: 'facilitator' },
    'stopped',
  ],
  [
    'returns `stopped`, not `gas_not_covered`, for a submission if both apply',
    { isStored: true, isUncovered: true, stoppedSource: 'submission' },
    'stopped',
  ],
  ['returns `replayed`, not `stopped`, if both apply', { stoppedSource: 'gateway' }, 'replayed'],
  ['accepts a refund while sales are stopped', { isStored: true, stoppedSource: 'refund' }, 'accepted'],
  ['accepts a closed tab while sales are stopped', { isStored: true, stoppedSource: 'tab' }, 'accepted'],
  ['returns `over_limit` if the amount exceeds the limit', { isOverLimit: true }, 'over_limit'],
  ['returns `over_limit`, not `late`, if both apply', { isOverLimit: true, deadline: 0 }, 'over_limit'],
])('behavior: %s', async (_, facts, expected) => {
  const [row] = await judge([facts])
  expect(row).toEqual({ id: 'pay_0', verdict: expected })
})

test('behavior: judges each candidate of a group separately', async () => {
  const rows = await judge([{ isStored: true }, {}, { isStored: true, deadline: 0 }, { isOverLimit: true }])
  expect(rows).toEqual([
    { id: 'pay_0', verdict: 'accepted' },
    { id: 'pay_1', verdict: 'replayed' },
    { id: 'pay_2', verdict: 'late' },
    { id: 'pay_3', verdict: 'over_limit' },
  ])
})

test.each<[string, ('stored' | 'fresh' | 'shared')[][], string[]]>([
  ['finds no replay among unused nonces', [['fresh'], ['fresh']], []],
  ['finds a candidate with a stored nonce', [['stored'], ['fresh']], ['pay_0']],
  [
    'finds a candidate whose second authorization has a stored nonce',
    [['fresh'], ['fresh', 'stored']],
    ['pay_1'],
  ],
  ['finds the later of two candidates with the same nonce', [['shared'], ['fresh'], ['shared']], ['pay_2']],
])('behavior: %s', async (_, groups, expected) => {
  const provider = await seedProvider(sql)
  const { paymentId } = await seedPayment(sql, { provider })
  const [stored] = await sql<[{ chainId: number; token: string; payer: string; nonce: string }]>`
    select chain_id as "chainId", token, authorizer as payer, nonce from signed_authorization
    where payment_id = ${paymentId} and half = 0`
  const shared = randomHex(32)
  const { chainId, token, payer } = stored
  const nonces = { stored: () => stored.nonce, fresh: () => randomHex(32), shared: () => shared }
  const candidates = groups.map((_, at) => ({ id: `pay_${at}`, chain_id: chainId, token, payer }))
  const authorizations = groups.flatMap((kinds, at) =>
    kinds.map((kind, half) => ({ payment_id: `pay_${at}`, half, nonce: nonces[kind]() })),
  )
  const find = async (overLimit: string[]) => {
    const [row] = await sql<[{ found: string[] }]>`
      select find_replays(
        array(select jsonb_populate_recordset(null::candidate, ${sql.json(candidates)})),
        array(select jsonb_populate_recordset(null::candidate_authorization, ${sql.json(authorizations)})),
        ${overLimit}) as found`
    return row.found.sort()
  }
  expect(await find([])).toEqual(expected)
  expect(await find(candidates.map(({ id }) => id))).toEqual([])
})

async function judge(all: readonly Facts[]) {
  const id = (at: number) => `pay_${at}`
  const idsOf = (has: (facts: Facts) => boolean | undefined) =>
    all.flatMap((facts, at) => (has(facts) ? [id(at)] : []))
  const candidates = all.map(({ deadline, stoppedSource }, at) => ({
    id: id(at),
    deadline: deadline ?? null,
    source: stoppedSource ?? 'gateway',
  }))
  const isStopped = all.some(({ stoppedSource }) => stoppedSource !== undefined)
  const rows = await sql`
    select id, verdict from judge_payments(
      array(select jsonb_populate_recordset(null::candidate, ${sql.json(candidates)})),
      ${idsOf(({ isOverLimit }) => isOverLimit)}, ${idsOf(({ isStored }) => isStored)},
      ${idsOf(({ isUncovered }) => isUncovered)}, ${isStopped}, ${now})`
  return [...rows]
}
