import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import { countStatements } from '../../../test/support/countStatements.ts'
import { useDatabase } from '../../../test/support/database.ts'
import { blockHashOf, seedChainId } from '../../../test/support/seedPayments.ts'
import { moveRecordHead, recordBlock, setConfirmed } from './record.ts'
import { judgeRecord, readRecordState } from './recordState.ts'

const sql = await useDatabase()

// A gap in the index doesn't stop settlement, because a keeper simulates every batch.
const at = (readNumber: bigint) => ({ blockNumber: 0n, readNumber, blockTime: 1_800_000_000n })

test.each([
  ['missing', null, 0n, 100n, 'missing'],
  ['at the head', at(100n), 90n, 100n, 'current'],
  ['at the maximum lag', at(90n), 90n, 100n, 'current'],
  ['one block beyond the maximum lag', at(89n), 80n, 100n, 'stale'],
  ['below the highest notified block', at(95n), 96n, 100n, 'below_acted_block'],
  ['ahead of the queried node', at(101n), 90n, 100n, 'current'],
] as const)('args: returns the status of a record that is %s', (_name, recorded, told, head, expected) => {
  const state = judgeRecord(recorded, told, head, 10n)
  expect(state.status === 'current' ? 'current' : state.reason).toBe(expected)
})

test('behavior: reads the state in one statement', async () => {
  const served = {
    network: networks.localhost,
    client: { getBlockNumber: async () => 100n },
  } as unknown as ServedNetwork
  const read = async () => {
    const counted = countStatements(sql)
    const state = await readRecordState(counted.sql, served, 10n)
    return { state, statements: counted.count() }
  }
  expect(await read()).toEqual({
    state: { status: 'behind', reason: 'missing', head: null },
    statements: 1,
  })
  const head = { blockNumber: 94n, readNumber: 95n, blockTime: 1_800_000_000n }
  await moveRecordHead(sql, seedChainId, head)
  expect(await read()).toEqual({ state: { status: 'current', head }, statements: 1 })
  const told = { blockNumber: 96n, blockHash: blockHashOf(96), blockTime: head.blockTime }
  await recordBlock(sql, seedChainId, told)
  await setConfirmed(sql, seedChainId, told, new Date())
  expect((await read()).state).toEqual({ status: 'behind', reason: 'below_acted_block', head })
})
