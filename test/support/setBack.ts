import type { Database } from '@tollkeeper/ledger/store/database'
import { randomHex } from './usdc.ts'

/**
 * Records that providers were notified of a block far ahead, so that the record seems to have been set back.
 *
 * @returns a function that undoes it.
 */
export async function setRecordBack(sql: Database, chainId: number): Promise<() => Promise<void>> {
  const hash = randomHex(32)
  await sql`
    insert into recorded_block (chain_id, number, hash, time, confirmed_at, looked, is_final)
    values (${chainId}, 1000000000, ${hash}, 0, now(), 2, true)`
  return async () => {
    await sql`delete from recorded_block where hash = ${hash}`
  }
}
