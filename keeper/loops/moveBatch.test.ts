import { closeBatch, setBatchState } from '@tollkeeper/ledger/batches/batches'
import { readBatchItems } from '@tollkeeper/ledger/batches/items'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { LeaseLost, releaseLease } from '@tollkeeper/ledger/batches/leases'
import { createLogger } from '@tollkeeper/runtime/log'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { claimAs, leaseWallet } from '../../test/support/claim.ts'
import { useDatabase } from '../../test/support/database.ts'
import {
  type SeededPayment,
  seedHalf,
  seedPayment,
  seedProvider,
  seedSettlement,
  seedToken,
  seedTransfer,
} from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { type Context, createMemory } from './context.ts'
import { type BatchMove, type ItemResult, moveBatch } from './moveBatch.ts'

const sql = await useDatabase()
const provider = await seedProvider(sql)
const now = new Date(Math.floor(Date.now() / 1000) * 1000)

function openContext() {
  const steps: string[] = []
  const context = {
    sql,
    served: { network: networks.localhost, token: seedToken },
    finalityBlocks: 10n,
    now: () => now,
    checkpoint: (name: string) => void steps.push(name),
    log: createLogger('test', 'silent'),
    metrics: createMetrics(),
    memory: createMemory(),
  } as unknown as Context
  return { context, steps }
}

/** Creates a claimed batch of new payments, and returns its items. */
async function claimBatch(count: number, lease?: Lease) {
  const payments: SeededPayment[] = []
  for (let n = 0; n < count; n++) payments.push(await seedPayment(sql, { provider }))
  const ids = payments.map(({ paymentId }) => paymentId)
  const { batch } = await claimAs(sql, 'shared', ids, lease && { lease })
  if (batch === null) throw new Error('nothing was claimed')
  return { batch, payments, ids, items: await readBatchItems(sql, batch.id) }
}

type Row = {
  stage: string
  isIn: boolean
  seconds: number | null
  heldBy: string | null
  hasCode: boolean
  attempts: number
  isLookedUp: boolean
}

async function read(ids: readonly string[]): Promise<Row[]> {
  return sql<Row[]>`
    select q.stage, q.batch_id is not null as "isIn", extract(epoch from q.next_at - ${now})::float8 as seconds,
      q.held_by as "heldBy", q.has_code as "hasCode", q.attempts,
      exists (select from lookup l where l.payment_id = q.payment_id) as "isLookedUp"
    from queue q where q.payment_id = any(${[...ids]}::text[]) order by array_position(${[...ids]}::text[], q.payment_id)`
}

const stateOf = async ({ id }: { id: bigint }) =>
  (await sql<{ state: string; result: string | null }[]>`select state, result from batch where id = ${id}`)[0]

const free: Row = {
  stage: 'waiting',
  isIn: false,
  seconds: null,
  heldBy: null,
  hasCode: false,
  attempts: 0,
  isLookedUp: false,
}
const failure = { owner: 'payment', code: 'insufficient_balance', detail: '' } as const

type Reason = ItemResult extends infer One ? (One extends ItemResult ? Omit<One, 'item'> : never) : never

test.each<[string, Reason, Partial<Row>]>([
  ['may be claimed again at once', { reason: 'unsettled' }, {}],
  ['is reconciled with the record', { reason: 'already_settled' }, {}],
  [
    'waits until it is known who used its nonce',
    { reason: 'nonce_used' },
    { stage: 'deferred', seconds: 5, isLookedUp: true },
  ],
  ['is deferred, so that other payments go first', { reason: 'deferred' }, { stage: 'deferred', seconds: 5 }],
  ['waits while the token is paused', { reason: 'token_paused' }, { stage: 'deferred', seconds: 60 }],
  ['is isolated', { reason: 'untried' }, { stage: 'isolated' }],
  [
    'is marked as the payment of a payer with code',
    { reason: 'payer_kind_differs', hasCode: true },
    { hasCode: true },
  ],
  [
    'waits for cheaper gas',
    { reason: 'held', by: 'gas_cost' },
    { stage: 'deferred', seconds: 15, heldBy: 'gas_cost' },
  ],
  ['isn’t held if gas is too expensive for all payments', { reason: 'held', by: 'gas_price' }, {}],
  ['is retried later', { reason: 'failed', failure }, { stage: 'retrying', seconds: 60, attempts: 1 }],
  [
    'stays in the batch if only its fee is left out, and the failure counts',
    { reason: 'failed', failure, isPartial: true },
    { stage: 'claimed', isIn: true, seconds: 60, attempts: 1 },
  ],
  [
    'stays in the batch if only its fee has to wait',
    { reason: 'deferred', isPartial: true },
    { stage: 'claimed', isIn: true },
  ],
])('default: depending on the result of its item, a payment %s', async (_, result, expected) => {
  const { context } = openContext()
  const { batch, ids, items } = await claimBatch(2)
  const [item] = items
  if (!item) throw new Error('no item')
  const record = async () => [{ ...result, item } as ItemResult]
  expect(await moveBatch(context, batch, { from: 'claimed', to: null, record, others: 'stay' })).toBe(true)
  expect(await read(ids)).toEqual([
    { ...free, ...expected },
    { ...free, stage: 'claimed', isIn: true },
  ])
  expect(context.memory.token.isPaused).toBe(result.reason === 'token_paused')
})

const released = [free, free]
const stays = (stage: string) => [
  { ...free, stage, isIn: true },
  { ...free, stage, isIn: true },
]

test.each<[string, Pick<BatchMove, 'to' | 'others'>, unknown, Row[]]>([
  ['signed', { to: 'broadcast', others: 'stay' }, { state: 'broadcast', result: null }, stays('sent')],
  ['mined', { to: 'mined', others: 'stay' }, { state: 'mined', result: null }, stays('claimed')],
  [
    'mined and reverted',
    { to: 'mined', others: { failure: 'deferred' } },
    { state: 'mined', result: null },
    released,
  ],
  [
    'closed',
    { to: { result: 'released' }, others: { failure: 'deferred' } },
    { state: 'closed', result: 'released' },
    released,
  ],
  [
    'closed and settled',
    { to: { result: 'settled' }, others: 'settled' },
    { state: 'closed', result: 'settled' },
    [],
  ],
])('default: updates a batch and its payments when the batch is %s', async (_, move, state, expected) => {
  const { context, steps } = openContext()
  const { batch, ids, payments } = await claimBatch(2)
  if (move.others === 'settled') for (const one of payments) await seedSettlement(sql, one)
  expect(await moveBatch(context, batch, { from: 'claimed', ...move })).toBe(true)
  expect(await stateOf(batch)).toEqual(state)
  expect(await read(ids)).toEqual(expected)
  expect(steps).toEqual(typeof move.to === 'object' ? ['before-end', 'after-end'] : [])
})

test('behavior: does not move a batch whose state has changed, and records nothing', async () => {
  const { context } = openContext()
  const { batch } = await claimBatch(1)
  await setBatchState(sql, batch.id, 'broadcast')
  let isRecorded = false
  const isMoved = await moveBatch(context, batch, {
    from: 'claimed',
    to: { result: 'released' },
    async record() {
      isRecorded = true
      return []
    },
    others: { failure: 'deferred' },
  })
  expect([isMoved, isRecorded]).toEqual([false, false])
  expect(await stateOf(batch)).toEqual({ state: 'broadcast', result: null })
})

test('behavior: a batch is not moved if `record` returns null', async () => {
  const { context } = openContext()
  const { batch, ids } = await claimBatch(2)
  const record = async () => null
  const end = { from: 'claimed', to: { result: 'released' }, others: { failure: 'deferred' } } as const
  expect(await moveBatch(context, batch, { ...end, record })).toBe(false)
  expect(await stateOf(batch)).toEqual({ state: 'claimed', result: null })
  expect(await read(ids)).toEqual(stays('claimed'))
})

test('error: a batch is not moved if its wallet’s lease is lost', async () => {
  const { context } = openContext()
  const lease = await leaseWallet(sql)
  const { batch } = await claimBatch(1, lease)
  await releaseLease(sql, lease)
  const move = {
    from: 'claimed',
    to: { result: 'released' },
    others: { failure: 'deferred' },
    lease,
  } as const
  await expect(moveBatch(context, batch, move)).rejects.toThrow(LeaseLost)
  expect(await stateOf(batch)).toEqual({ state: 'claimed', result: null })
})

test('behavior: if a submission leaves its batch, all of its payments fail; a payment without a reason of its own fails for the batch’s reason', async () => {
  const { context } = openContext()
  const key = randomHex(32)
  const ids: string[] = []
  for (let n = 0; n < 3; n++) {
    const first = { stage: 'due', since: now.getTime(), submission: key } as const
    ids.push((await seedTransfer(sql, { source: 'submission', halves: [seedHalf()], first })).paymentId)
  }
  const { batch } = await claimAs(sql, 'submission', ids)
  if (batch === null) throw new Error('nothing was claimed')
  const [used, untried] = await readBatchItems(sql, batch.id)
  if (!used || !untried) throw new Error('no items')
  await moveBatch(context, batch, {
    from: 'claimed',
    to: { result: 'nothing_left' },
    record: async () => [
      { item: used, reason: 'nonce_used' },
      { item: untried, reason: 'untried' },
    ],
    others: { failure: 'gas_not_covered' },
  })
  const ended = await sql`
    select payment_id as id, kind, code from payment_result where payment_id = any(${ids}::text[])
    order by array_position(${ids}::text[], payment_id)`
  expect(ended).toEqual(
    ['authorization_used', 'gas_not_covered', 'gas_not_covered'].map((code, index) => ({
      id: ids[index],
      kind: 'failed',
      code,
    })),
  )
})

test('behavior: a payment that the signed transaction leaves out is marked as dropped', async () => {
  const { context } = openContext()
  const { batch, ids, items } = await claimBatch(2)
  const [item] = items
  if (!item) throw new Error('no item')
  const record = async (): Promise<ItemResult[]> => [{ item, reason: 'deferred' }]
  await moveBatch(context, batch, { from: 'claimed', to: 'broadcast', record, others: 'stay' })
  const dropped =
    await sql`select payment_id as id from batch_item where batch_id = ${batch.id} and is_dropped`
  expect(dropped).toEqual([{ id: ids[0] }])
  await closeBatch(sql, batch.id, 'released', now)
})
