import type { Mined } from '@tollkeeper/chain/receipts'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { expect, test } from 'vitest'
import { randomHex } from '../../test/support/usdc.ts'
import type { GasControl } from '../settler/gasControl.ts'
import type { MinedVerdict } from '../settler/journal.ts'
import type { Drop, PlannedBatch } from '../settler/plan.ts'
import { createBudget } from './budget.ts'
import { createMemoryJournal } from './memoryJournal.ts'

function createItem(): BatchItem {
  const authorization = {
    from: randomHex(20),
    to: randomHex(20),
    value: 1n,
    validAfter: 0n,
    validBefore: 2n ** 39n,
    nonce: randomHex(32),
    signature: randomHex(65),
  }
  return {
    position: 0,
    paymentId: null,
    provider: { authorization, state: 'open' },
    fee: null,
  }
}

function openJournal(now: () => Date) {
  const { openAccount } = createBudget(now)
  return createMemoryJournal({ openAccount, createGas: () => ({}) as GasControl, now })
}

const planned: PlannedBatch = {
  batchId: randomHex(32),
  token: randomHex(20),
  feeRecipient: randomHex(20),
  trigger: 'count',
  lane: 'shared',
}

test('behavior: if a batch finds that the token is paused, no batch starts for a while, as in a keeper with a database', async () => {
  let time = 1_800_000_000_000
  const now = () => new Date(time)
  const journal = openJournal(now)
  const item = createItem()
  const close = (drop: Drop) =>
    journal.begin(planned, [item]).close({ result: 'nothing_left', failure: 'deferred', drops: [drop] })

  await close({ item, reason: 'nonce_used' })
  expect(journal.pausedUntil()).toBeLessThanOrEqual(time)
  await close({ item, reason: 'token_paused' })
  expect(journal.pausedUntil()).toBeGreaterThan(time)
  time += 15_000
  expect(journal.pausedUntil()).toBeLessThanOrEqual(time)
})

test('behavior: an item that a transaction leaves out is removed from the batch, and not counted as settled', async () => {
  const now = () => new Date(1_800_000_000_000)
  const journal = openJournal(now)
  const [settledBefore, feeSpent, good] = [createItem(), createItem(), createItem()]
  const open = journal.begin(planned, [settledBefore, feeSpent, good])
  const hash = randomHex(32)
  await open.save(
    {
      hash,
      raw: '0x',
      nonce: 0,
      gas: 1n,
      kind: 'settle',
      maxFeePerGas: 1n,
      maxPriorityFeePerGas: 1n,
    },
    [
      { item: settledBefore, reason: 'nonce_used' },
      { item: feeSpent, reason: 'nonce_used', isPartial: true },
    ],
  )
  expect(await open.readItems()).toEqual([feeSpent, good])
  const verdict: MinedVerdict = { failed: [], spent: [], untried: [], ranOut: false }
  await open.markMined({ hash, receipt: { status: 'success' } } as Mined, verdict, { cost: 3n, reward: 5n })
  expect(journal.report()).toEqual({ batches: 1, payments: 2, spent: 3n, earned: 5n, stillOut: [] })
})

test('behavior: an authorization that was used already is skipped until a reorg undoes its use', async () => {
  const now = () => new Date(1_800_000_000_000)
  const journal = openJournal(now)
  const item = createItem()
  const begun = () => journal.begin(planned, [item])
  await begun().close({
    result: 'nothing_left',
    failure: 'deferred',
    drops: [{ item, reason: 'nonce_used' }],
  })
  expect(journal.standing(item)).toBeNull()
  await begun().close({ result: 'lost', failure: 'deferred' })
  expect(journal.standing(item)).toBe('good')
})

test('behavior: a payer is blocked after two of its payments failed on chain', async () => {
  let time = 1_800_000_000_000
  const now = () => new Date(time)
  const journal = openJournal(now)
  const item = createItem()
  const standings: (string | null)[] = []
  for (let n = 0; n < 3; n++) {
    standings.push(journal.standing(item))
    const verdict = { failed: [{ item }], spent: [], untried: [], ranOut: false } as unknown as MinedVerdict
    const mined = { hash: randomHex(32), receipt: { status: 'success' } } as Mined
    await journal.begin(planned, [item]).markMined(mined, verdict, { cost: 0n, reward: 0n })
    // Waits until the journal no longer skips the item because of its failure.
    time += 60_001
  }
  expect(standings).toEqual(['good', 'isolated', 'blocked'])
})

test('behavior: several failed payments of a payer in one transaction count as one failure', async () => {
  let time = 1_800_000_000_000
  const now = () => new Date(time)
  const journal = openJournal(now)
  const [item, other] = [createItem(), createItem()]
  other.provider.authorization.from = item.provider.authorization.from
  const failed = [{ item }, { item: other }]
  const verdict = { failed, spent: [], untried: [], ranOut: false } as unknown as MinedVerdict
  const mined = { hash: randomHex(32), receipt: { status: 'success' } } as Mined
  await journal.begin(planned, [item, other]).markMined(mined, verdict, { cost: 0n, reward: 0n })
  time += 60_001
  expect([journal.standing(item), journal.standing(other)]).toEqual(['isolated', 'isolated'])
})
