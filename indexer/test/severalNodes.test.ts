import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import { createTestDatabase } from '../../test/support/database.ts'
import { settleOne, startTestChain, startTestIndexer, trackRunning } from './harness.ts'
import { readBatches } from './views.ts'

const { track } = trackRunning()

/** Starts a node that answers null to some calls. */
async function startProxy(target: string, hides: (call: { method: string }) => boolean) {
  const server = createServer(async (request, response) => {
    const body = await text(request)
    const call = JSON.parse(body) as { id: number; method: string }
    const answer = hides(call)
      ? JSON.stringify({ jsonrpc: '2.0', id: call.id, result: null })
      : await fetch(target, { method: 'POST', headers: { 'content-type': 'application/json' }, body }).then(
          (reply) => reply.text(),
        )
    response.setHeader('content-type', 'application/json').end(answer)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

describe('several chains', () => {
  test('behavior: one instance indexes two chains, numbers the events of each chain separately, and stores the L1 fee if the chain has one', async () => {
    const [local, base] = await Promise.all([
      track(startTestChain()),
      track(startTestChain({ network: 'base' })),
    ])
    const index = await track(startTestIndexer(await createTestDatabase(), [local, base]))
    await settleOne(local, 100n)
    const onBase = await settleOne(base, 200n)
    const { blockNumber } = await settleOne(local, 300n)
    await index.untilIndexed(31337, blockNumber)
    await index.untilIndexed(8453, onBase.blockNumber)
    expect(await readBatches(index)).toEqual([
      { chain_id: 8453, sequence: 1, provider_total: 200n },
      { chain_id: 31337, sequence: 1, provider_total: 100n },
      { chain_id: 31337, sequence: 2, provider_total: 300n },
    ])
    const { l1Fee } = (await base.client.getTransactionReceipt({ hash: onBase.transactionHash })) as {
      l1Fee?: Hex
    }
    const [row] = await index.sql`select l1_fee from indexer.batch where chain_id = 8453`
    expect(row?.l1_fee).toBe(BigInt(l1Fee ?? -1))
  })
})

test('behavior: a node that is behind causes no index gap while another node has the receipt', async () => {
  const chain = await track(startTestChain())
  const behind = await track(startProxy(chain.url, ({ method }) => method === 'eth_getTransactionReceipt'))
  const nodes = { ...chain, url: `${behind.url},${chain.url}` }
  const index = await track(startTestIndexer(await createTestDatabase(), [nodes]))
  const { blockNumber } = await settleOne(chain, 100n)
  await index.untilIndexed(31337, blockNumber)
  expect(await readBatches(index)).toEqual([{ chain_id: 31337, sequence: 1, provider_total: 100n }])
  expect(await index.sql`select * from indexer.index_gap`).toEqual([])
})
