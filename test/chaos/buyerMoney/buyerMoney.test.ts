import { test } from 'vitest'
import { useDatabase } from '../../support/database.ts'
import { replayable, seeds } from '../seeds.ts'
import { runInterleaving } from './run.ts'
import { createWorld } from './world.ts'

const world = await createWorld(await useDatabase())

test(
  'behavior: each buyer’s money adds up in any interleaving of buyers, sellers, strangers and reorgs',
  async () => {
    for (const seed of seeds(Array.from({ length: 60 }, (_, index) => 1_000 + index)))
      await replayable(seed, 'buyerMoney', () => runInterleaving(world, seed))
  },
  24 * 3_600_000,
)
