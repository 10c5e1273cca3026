import { expect, test } from 'vitest'
import { randomHex } from '../../test/support/usdc.ts'
import { createBudget } from '../independent/budget.ts'
import { createMemoryJournal } from './memoryJournal.ts'
import type { Drop } from './plan.ts'

test('behavior: a batch that finds the token paused closes the queue for a while, as it does where there is a database', async () => {
  let time = 1_800_000_000_000
  const now = () => new Date(time)
  const journal = createMemoryJournal(createBudget(now), now)
  const authorization = {
    ...{ from: randomHex(20), to: randomHex(20), value: 1n, validAfter: 0n, validBefore: 2n ** 39n },
    ...{ nonce: randomHex(32), signature: randomHex(65) },
  }
  const provider = { authorization, state: 'open' } as const
  const item = { position: 0, paymentId: null, transferId: null, provider, fee: null }
  const planned = {
    ...{ batchId: randomHex(32), token: randomHex(20), feeRecipient: randomHex(20) },
    trigger: 'count',
    isSubmission: false,
  } as const
  const close = (drop: Drop) =>
    journal.begin(planned, [item]).close({ outcome: 'nothing_left', failure: 'deferred', drops: [drop] })

  await close({ item, reason: 'nonce_used' })
  expect(journal.pausedUntil()).toBeLessThanOrEqual(time)
  await close({ item, reason: 'token_paused' })
  expect(journal.pausedUntil()).toBeGreaterThan(time)
  time += 15_000
  expect(journal.pausedUntil()).toBeLessThanOrEqual(time)
})
