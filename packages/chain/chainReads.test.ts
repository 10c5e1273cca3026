import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { type Address, numberToHex } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  openShop,
  settleDirectly,
  signedBody,
  startGateway,
  type TestGateway,
} from '../../test/support/gateway.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createChainReads } from './chainReads.ts'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
})
afterAll(() => gateway.close())

const fresh = { balance: 0n, hasCode: false, isBlacklisted: false, isPaused: false, isUsed: [false, false] }

test('default: reads many payers in two calls, and returns their states in order', async () => {
  const { served, chain } = gateway
  const payers = Array.from({ length: 300 }, (_, i) => numberToHex(2n ** 100n + BigInt(i), { size: 20 }))
  const rich = [payers[0], payers[77], payers[299]] as Address[]
  await chain.mintUsdc(rich, 2n ** 63n - 1n)
  payers[100] = served.token
  let calls = 0
  const client = {
    ...served.client,
    readContract: ((...args: Parameters<typeof served.client.readContract>) => {
      calls++
      return served.client.readContract(...args)
    }) as typeof served.client.readContract,
  }
  const { read } = createChainReads({ ...served, client })
  const blockNumber = await served.client.getBlockNumber()
  expect(await Promise.all(payers.map((payer) => read({ payer })))).toEqual(
    payers.map((payer, i) => ({
      ...fresh,
      blockNumber,
      balance: rich.includes(payer) ? 2n ** 63n - 1n : 0n,
      // The payer at index 100 is USDC itself, which has code, and which has blacklisted its own address.
      hasCode: i === 100,
      isBlacklisted: i === 100,
    })),
  )
  expect(calls).toBe(2)
})

test('default: returns which nonces were used', async () => {
  const shop = await openShop(gateway.app)
  const { payloads } = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
  await settleDirectly(gateway, payloads[1])
  const [provider, fee] = payloads.map(parsePayload)
  if (!provider || !fee) throw new Error('no payloads')
  const { read } = createChainReads(gateway.served)
  const { isUsed } = await read({ payer: provider.from, nonces: [provider.nonce, fee.nonce] })
  expect(isUsed).toEqual([false, true])
  const alone = await read({ payer: provider.from, nonces: [fee.nonce] })
  expect(alone.isUsed).toEqual([true, false])
})

test('behavior: reads all payers of one decision at the same block, even if this takes several calls', async () => {
  const { served } = gateway
  const asked: bigint[] = []
  const client = {
    ...served.client,
    readContract: (async (...args: Parameters<typeof served.client.readContract>) => {
      asked.push((args[0] as unknown as { blockNumber: bigint }).blockNumber)
      return served.client.readContract(...args)
    }) as typeof served.client.readContract,
    // Each call is answered by another node, whose head is one block behind the previous node's head.
    getBlockNumber: () => Promise.resolve(heads.shift() ?? 0n),
  }
  const head = await served.client.getBlockNumber()
  const heads = [head, head - 1n, head - 2n]
  const { readTogether } = createChainReads({ ...served, client })
  const states = await readTogether(Array.from({ length: 301 }, () => ({ payer: randomHex(20) })))
  expect(states).toHaveLength(301)
  expect(asked).toEqual([head, head, head])
  expect(new Set(states.map(({ blockNumber }) => blockNumber))).toEqual(new Set([head]))
})

test('error: rejects a contract that is not a token', async () => {
  const reads = createChainReads({ ...gateway.served, token: randomHex(20) })
  await expect(reads.read({ payer: randomHex(20) })).rejects.toThrow()
})
