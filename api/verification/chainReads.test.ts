import { type Address, numberToHex } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parsePayload } from '#protocol/payload'
import {
  openShop,
  settleDirectly,
  signedBody,
  startGateway,
  type TestGateway,
} from '../../test/support/gateway.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { createChainReads, maxReadsAtOnce } from './chainReads.ts'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
})
afterAll(() => gateway.close())

test('default: balances and codes of as many accounts as one call takes, in order', async () => {
  const { served, chain } = gateway
  const accounts = Array.from({ length: maxReadsAtOnce }, (_, i) =>
    numberToHex(2n ** 100n + BigInt(i), { size: 20 }),
  )
  const rich = [accounts[0], accounts[77], accounts[maxReadsAtOnce - 1]] as Address[]
  await chain.mintUsdc(rich, 2n ** 63n - 1n)
  accounts[100] = served.token
  const answers = await createChainReads(served).accounts(accounts, await served.client.getBlockNumber())
  expect(answers).toEqual(
    accounts.map((account, i) => ({
      balance: rich.includes(account) ? 2n ** 63n - 1n : 0n,
      hasCode: i === 100,
    })),
  )
})

test('behavior: a balance is the one of the block that was asked for', async () => {
  const { served, chain } = gateway
  const account = randomHex(20)
  const before = await served.client.getBlockNumber()
  await chain.mintUsdc([account], 5n)
  const reads = createChainReads(served)
  const at = async (block: bigint) => (await reads.accounts([account], block))[0]?.balance
  expect([await at(before), await at(await served.client.getBlockNumber())]).toEqual([0n, 5n])
})

test('default: which nonces were used', async () => {
  const shop = await openShop(gateway.app)
  const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
  await settleDirectly(gateway, body.payloads[1])
  const reads = createChainReads(gateway.served)
  const asked = body.payloads.map(parsePayload).map(({ from, nonce }) => reads.useOf(from, nonce))
  expect((await Promise.all(asked)).map(({ isUsed }) => isUsed)).toEqual([false, true])
})

test('error: a token that is none', async () => {
  const reads = createChainReads({ ...gateway.served, token: randomHex(20) })
  await expect(reads.accounts([randomHex(20)], 1n)).rejects.toThrow()
})
