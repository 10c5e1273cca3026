import { createLogger } from '@tollkeeper/runtime/log'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterEach, expect, test } from 'vitest'
import { refuseWrites } from '../../test/support/badRows.ts'
import { useDatabase } from '../../test/support/database.ts'
import { seedChainId, seedPlatform, seedToken } from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { adoptAbandoned } from './adopt.ts'
import { type Context, createMemory } from './context.ts'

const sql = await useDatabase()
const wallet = randomHex(20)

afterEach(async () => {
  await sql`truncate batch, wallet_lease cascade`
})

/** Creates batches without a transaction, of a wallet whose keeper is gone. */
async function seedAbandoned(count: number): Promise<string[]> {
  await sql`
    insert into wallet_lease (chain_id, address, holder, expires_at)
    values (${seedChainId}, ${wallet}, 'gone', now() - interval '1 hour')`
  const ids = Array.from({ length: count }, () => randomHex(32))
  for (const id of ids)
    await sql`
      insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence, state)
      values (${id}, ${seedChainId}, ${seedToken}, ${seedPlatform}, 'time', 'shared', ${wallet}, 1, 'reorged')`
  return ids
}

const context = {
  sql,
  served: { network: networks.localhost, token: seedToken },
  settings: { leaseMs: 60_000, triggers: {} },
  now: () => new Date(),
  checkpoint: async () => {},
  log: createLogger('test', 'silent'),
  metrics: createMetrics(),
  memory: createMemory(),
} as unknown as Context

async function readReleased(): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select batch_id as id from batch where result = 'released' order by batch.id`
  return rows.map(({ id }) => id)
}

test.each(['query_canceled', 'check_violation', 'too_many_connections'])(
  'behavior: a batch whose release fails (%s) does not delay the wallet’s later batches',
  async (code) => {
    const [bad, ...others] = await seedAbandoned(3)
    const allow = await refuseWrites(sql, 'batch', 'update', `new.batch_id = '${bad}'`, code)
    // If the database or a node is at fault, the step still fails in the end.
    await adoptAbandoned(context, 'here', []).catch(() => {})
    expect(await readReleased()).toEqual(others)
    await allow()
  },
)

test('behavior: renews the lease before each batch, so that a batch is released even if the batch before it took longer than the lease lasts', async () => {
  const batches = await seedAbandoned(3)
  // Simulates that each release took longer than the lease lasts.
  await sql.unsafe(`
    create function let_lapse() returns trigger language plpgsql as $$
      begin update wallet_lease set expires_at = now() - interval '1 second'; return new; end $$;
    create trigger let_lapse after update on batch for each row execute function let_lapse()`)
  await adoptAbandoned(context, 'here', [])
  expect(await readReleased()).toEqual(batches)
  await sql.unsafe('drop trigger let_lapse on batch')
})
