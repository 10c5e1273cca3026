import { describe, expect, test } from 'vitest'
import { createTestDatabase } from '../../test/support/database.ts'
import { batchSettled, transfer } from '../src/receipt.ts'
import { runDocumentedRebuild } from './documentedRebuild.ts'
import {
  platformWallet,
  providerA,
  settleOne,
  startTestChain,
  startTestIndexer,
  trackRunning,
} from './harness.ts'
import { readBatches } from './views.ts'

const { track, end } = trackRunning()

describe('the chain is not the one that was indexed', () => {
  test('error: refuses to start on a public network until the index is rebuilt', async () => {
    const databaseUrl = await createTestDatabase()
    const old = await track(startTestChain({ network: 'base' }))
    await settleOne(old, 100n)
    const direct = await old.signPayment(await old.createBuyer(), providerA, 200n, 1n)
    await old.send(old.usdc, old.encodeTransfer(direct.fee))
    for (let i = 0; i < 35; i++) await old.client.mine({ blocks: 1 })
    const first = await track(startTestIndexer(databaseUrl, [old]))
    expect(await readBatches(first)).toMatchObject([{ provider_total: 100n }])
    expect(await first.sql`select nonce from indexer.authorization where batch_log_index is null`).toEqual([
      { nonce: direct.fee.nonce },
    ])
    // Of a batch's transaction, Ponder stores only the BatchSettled event, and never the calldata.
    expect(
      await first.sql`select l.topic0, t.input from ponder_sync.logs l
        join ponder_sync.transactions t using (chain_id, block_number, transaction_index)
        order by l.block_number, l.log_index`,
    ).toEqual([
      { topic0: batchSettled, input: '0x' },
      { topic0: transfer, input: '0x' },
    ])
    await end(first)
    await end(old)

    const chain = await track(startTestChain({ network: 'base' }))
    for (let i = 0; i < 35; i++) await chain.client.mine({ blocks: 1 })
    await expect(startTestIndexer(databaseUrl, [chain])).rejects.toThrow(/base, ponder_sync: block \d+ is 0x/)
    await runDocumentedRebuild({
      DATABASE_URL: databaseUrl,
      RPC_URL_BASE: chain.url,
      PLATFORM_WALLET: platformWallet,
      DEPLOYMENTS_FILE: await chain.writeDeployments(),
    })
    const index = await track(startTestIndexer(databaseUrl, [chain]))
    expect(await readBatches(index)).toEqual([])
  })

  test('behavior: a new local chain with the same id leaves no rows of the old one', async () => {
    const databaseUrl = await createTestDatabase()
    const old = await track(startTestChain())
    const first = await track(startTestIndexer(databaseUrl, [old]))
    await settleOne(old, 100n)
    const { blockNumber } = await settleOne(old, 200n)
    // Mine more blocks than Ponder's finality, so that Ponder caches what it has read.
    for (let i = 0; i < 35; i++) await old.client.mine({ blocks: 1 })
    await first.untilIndexed(31337, blockNumber + 35n)
    await end(first)
    const again = await track(startTestIndexer(databaseUrl, [old])) // reads the existing blocks, and caches them
    await end(again)
    await end(old)

    const chain = await track(startTestChain())
    for (let i = 0; i < 35; i++) await chain.client.mine({ blocks: 1 })
    const second = await track(startTestIndexer(databaseUrl, [chain]))
    expect(second.schema).not.toBe(first.schema)
    expect(await readBatches(second)).toEqual([])
    const receipt = await settleOne(chain, 300n)
    await second.untilIndexed(31337, receipt.blockNumber)
    expect(await readBatches(second)).toEqual([{ chain_id: 31337, sequence: 1, provider_total: 300n }])
  })
})
