import { expect, test } from 'vitest'
import { runInterleaving, type Seen } from '../../../test/chaos/buyerMoney/run.ts'
import { createWorld } from '../../../test/chaos/buyerMoney/world.ts'
import { replayable } from '../../../test/chaos/seeds.ts'
import { useDatabase } from '../../../test/support/database.ts'

const world = await createWorld(await useDatabase())
const seen = new Set<Seen>()

/** Together they have all ends: a state that moves money on a line which the ledger lacks is rare. */
const seeds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 35]

// The long form is in test/chaos/buyerMoney.
test.each(seeds)(
  'behavior: what moved is what was charged and what is left as credit, and every closed tab is taken in: seed %i',
  (seed) =>
    replayable(seed, 'buyerMoney', async () => {
      for (const one of await runInterleaving(world, seed)) seen.add(one)
    }),
)

test('behavior: these interleavings have every end of a tab and of a credit in them', () => {
  expect([...seen].toSorted()).toEqual(
    [
      'settled',
      'foreign use',
      'other terms',
      'unknown line',
      'cancelled',
      'expired',
      'credit given',
      'credit used',
      'ended unpaid',
    ].toSorted(),
  )
})
