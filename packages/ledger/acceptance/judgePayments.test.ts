import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'

const sql = await useDatabase()

/** A candidate's results of reserving, storing and drawing gas, the time until which its caller waits, and whether sales are stopped. */
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
  ['it is stored', { isStored: true }, 'accepted'],
  ['it is stored before its deadline', { isStored: true, deadline: now }, 'accepted'],
  ['its deadline has passed', { isStored: true, deadline: now - 1 }, 'late'],
  ['its gas is not covered', { isStored: true, isUncovered: true }, 'gas_not_covered'],
  [
    'its gas is not covered, and it is late',
    { isStored: true, isUncovered: true, deadline: 0 },
    'gas_not_covered',
  ],
  ['it was not stored', {}, 'replayed'],
  ['it was not stored, and it is late', { deadline: 0 }, 'replayed'],
  ['sales are stopped', { isStored: true, stoppedSource: 'gateway' }, 'stopped'],
  ['the facilitator’s sales are stopped', { isStored: true, stoppedSource: 'facilitator' }, 'stopped'],
  [
    'submissions are stopped, and its gas is not covered',
    { isStored: true, isUncovered: true, stoppedSource: 'submission' },
    'stopped',
  ],
  ['sales are stopped, and it was not stored', { stoppedSource: 'gateway' }, 'replayed'],
  ['sales are stopped, but it is a refund', { isStored: true, stoppedSource: 'refund' }, 'accepted'],
  ['sales are stopped, but it is a closed tab', { isStored: true, stoppedSource: 'tab' }, 'accepted'],
  ['it exceeds the limit', { isOverLimit: true }, 'over_limit'],
  ['it exceeds the limit, and it is late', { isOverLimit: true, deadline: 0 }, 'over_limit'],
])('behavior: judges a candidate if %s', async (_, facts, expected) => {
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
  ['only unused nonces', [['fresh'], ['fresh']], []],
  ['a stored nonce', [['stored'], ['fresh']], ['pay_0']],
  ['a stored nonce in a second authorization', [['fresh'], ['fresh', 'stored']], ['pay_1']],
  ['the same nonce in two candidates', [['shared'], ['fresh'], ['shared']], ['pay_2']],
])('behavior: finds the replays in a group that contains %s', async (_, groups, expected) => {
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
