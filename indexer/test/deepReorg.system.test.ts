import { expect, test } from 'vitest'
import { createTestDatabase } from '../../test/support/database.ts'
import { runDocumentedRebuild } from './documentedRebuild.ts'
import {
  platformWallet,
  providerA,
  settleOne,
  startTestChain,
  startTestIndexer,
  trackRunning,
} from './harness.ts'
import { readBatches, readPaid } from './views.ts'

const { track, forget } = trackRunning()

test('error: a reorg deeper than Ponder’s finality ends Ponder and prevents each start until the documented rebuild', async () => {
  const databaseUrl = await createTestDatabase()
  const chain = await track(startTestChain({ network: 'base' }))
  const kept = await settleOne(chain, 100n)
  const buyer = await chain.createBuyer()
  const twice = await chain.signPayment(buyer, providerA, 200n, 1n)
  const gone = await chain.signPayment(buyer, providerA, 300n, 1n)
  const index = await track(startTestIndexer(databaseUrl, [chain]))
  await index.untilIndexed(8453, kept.blockNumber)
  const snapshot = await chain.client.snapshot()

  const { blockNumber } = await chain.settle([twice, gone])
  for (let i = 0; i < 65; i++) await chain.client.mine({ blocks: 1 }) // Ponder considers a block final after 60 more blocks
  await index.untilIndexed(8453, blockNumber + 65n)
  expect(await readBatches(index)).toMatchObject([{ provider_total: 100n }, { provider_total: 500n }])
  await chain.client.revert({ id: snapshot })
  const again = await chain.settle([twice])
  for (let i = 0; i < 70; i++) await chain.client.mine({ blocks: 1 })
  await index.exited
  forget(index)
  await index.sql.end()

  await expect(startTestIndexer(databaseUrl, [chain])).rejects.toThrow(
    /deeper than Ponder's finality:\nbase, /,
  )
  await runDocumentedRebuild({
    DATABASE_URL: databaseUrl,
    RPC_URL_BASE: chain.url,
    PLATFORM_WALLET: platformWallet,
    DEPLOYMENTS_FILE: await chain.writeDeployments(),
  })
  const rebuilt = await track(startTestIndexer(databaseUrl, [chain]))
  await rebuilt.untilIndexed(8453, again.blockNumber)
  expect(await readBatches(rebuilt)).toEqual([
    { chain_id: 8453, sequence: 1, provider_total: 100n },
    { chain_id: 8453, sequence: 2, provider_total: 200n },
  ])
  expect(await readPaid(rebuilt)).toEqual([100n, 200n])
})
