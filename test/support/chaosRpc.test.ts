import { createPublicClient, createWalletClient, defineChain, http, keccak256, parseEther } from 'viem'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { type ChaosRpc, startChaosRpc } from './chaosRpc.ts'

let chain: LocalChain
let chaos: ChaosRpc

beforeAll(async () => {
  chain = await startLocalChain({ bare: true })
})
beforeEach(async () => {
  chaos = await startChaosRpc({ target: chain.url, delayMs: 200 })
  return () => chaos.close()
})
afterAll(() => chain.close())

const transport = (options = {}) => http(chaos.url, { retryCount: 0, ...options })
const reader = (options = {}) => createPublicClient({ transport: transport(options), cacheTime: 0 })

/** A signed transfer of 1 wei, and its hash. */
async function signTransaction() {
  const local = defineChain({
    id: chain.chainId,
    name: 'local chain',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [chain.url] } },
  })
  const wallet = createWalletClient({ account: devAccount(1), chain: local, transport: http(chain.url) })
  const request = await wallet.prepareTransactionRequest({ to: devAccount(2).address, value: 1n })
  const raw = await wallet.signTransaction(request)
  return { raw, hash: keccak256(raw) }
}

const mined = (hash: `0x${string}`) =>
  createPublicClient({ transport: http(chain.url) }).waitForTransactionReceipt({ hash, pollingInterval: 10 })

describe('startChaosRpc', () => {
  test('default: forwards calls and batches, and records them', async () => {
    const client = reader({ batch: true })
    const [balance, chainId] = await Promise.all([
      client.getBalance({ address: devAccount(3).address }),
      client.getChainId(),
    ])
    expect(balance).toBe(parseEther('10000'))
    expect(chainId).toBe(chain.chainId)
    expect(chaos.calls.map((call) => call.method)).toEqual(['eth_getBalance', 'eth_chainId'])
    expect(chaos.calls.every((call) => call.isForwarded && call.fault === undefined)).toBe(true)
  })

  test('args: drop-reply forwards the call to the chain, and never answers the caller', async () => {
    const { raw, hash } = await signTransaction()
    chaos.next('eth_sendRawTransaction', 'drop-reply')
    await expect(reader().sendRawTransaction({ serializedTransaction: raw })).rejects.toThrow()
    expect((await mined(hash)).status).toBe('success')
    expect(chaos.rawTransactions('forwarded')).toEqual([raw])
  })

  test('args: refuse never forwards the call to the chain', async () => {
    const { raw, hash } = await signTransaction()
    chaos.next('eth_sendRawTransaction', 'refuse')
    await expect(reader().sendRawTransaction({ serializedTransaction: raw })).rejects.toThrow()
    await expect(reader().getTransaction({ hash })).rejects.toThrow(/could not be found/)
    expect(chaos.rawTransactions()).toEqual([raw])
    expect(chaos.rawTransactions('forwarded')).toEqual([])
  })

  test('args: duplicate and already-known return a node’s response to the second broadcast', async () => {
    const first = await signTransaction()
    chaos.next('eth_sendRawTransaction', 'duplicate')
    await expect(reader().sendRawTransaction({ serializedTransaction: first.raw })).rejects.toThrow()
    expect((await mined(first.hash)).status).toBe('success')

    const second = await signTransaction()
    chaos.next('eth_sendRawTransaction', 'already-known')
    const refused = reader().sendRawTransaction({ serializedTransaction: second.raw })
    await expect(refused).rejects.toThrow(/already known/)
    expect((await mined(second.hash)).status).toBe('success')
  })

  test('args: delay forwards the call to the chain only after the caller has timed out', async () => {
    const { raw, hash } = await signTransaction()
    chaos.next('eth_sendRawTransaction', 'delay')
    const hasty = reader({ timeout: 50 }).sendRawTransaction({ serializedTransaction: raw })
    await expect(hasty).rejects.toThrow(/took too long/)
    await chaos.waitFor('eth_sendRawTransaction')
    expect((await mined(hash)).status).toBe('success')
  })

  test('args: 429, 500 and a given error reach the caller', async () => {
    const client = reader()
    chaos.next('eth_chainId', '429')
    chaos.next('eth_chainId', '500')
    chaos.next('eth_chainId', { error: { code: -32003, message: 'insufficient funds for gas' } })
    await expect(client.getChainId()).rejects.toMatchObject({ status: 429 })
    await expect(client.getChainId()).rejects.toMatchObject({ status: 500 })
    await expect(client.getChainId()).rejects.toThrow(/insufficient funds/)
    expect(await client.getChainId()).toBe(chain.chainId)
    expect(chaos.calls.map((call) => call.isForwarded)).toEqual([false, false, false, true])
  })

  test('args: null-receipt returns null once, and then the receipt', async () => {
    const { raw, hash } = await signTransaction()
    const client = reader()
    await client.sendRawTransaction({ serializedTransaction: raw })
    await mined(hash)
    chaos.next('eth_getTransactionReceipt', 'null-receipt')
    await expect(client.getTransactionReceipt({ hash })).rejects.toThrow(/could not be found/)
    expect((await client.getTransactionReceipt({ hash })).status).toBe('success')
  })

  test('args: stale-head answers as if the last blocks did not exist yet', async () => {
    const client = reader()
    const before = await client.getTransactionCount({ address: devAccount(1).address })
    const { raw, hash } = await signTransaction()
    await client.sendRawTransaction({ serializedTransaction: raw })
    const { blockNumber } = await mined(hash)
    chaos.always('*', 'stale-head')
    expect(await client.getBlockNumber()).toBe(blockNumber - 3n)
    expect((await client.getBlock()).number).toBe(blockNumber - 3n)
    expect(await client.getTransactionCount({ address: devAccount(1).address })).toBeLessThanOrEqual(before)
    await expect(client.getTransactionReceipt({ hash })).rejects.toThrow(/could not be found/)
    expect(await client.getLogs({ fromBlock: blockNumber })).toEqual([])
    chaos.heal()
    expect(await client.getBlockNumber()).toBe(blockNumber)
  })

  test('behavior: applies a connection fault to the whole batch, and a call fault only to its call', async () => {
    const client = reader({ batch: true })
    const ask = () => Promise.allSettled([client.getChainId(), client.getGasPrice(), client.getBlockNumber()])
    const statuses = async () => (await ask()).map((result) => result.status)
    chaos.next('eth_gasPrice', '429')
    expect(await statuses()).toEqual(['rejected', 'rejected', 'rejected'])
    chaos.next('eth_gasPrice', { error: { code: -32000, message: 'no' } })
    expect(await statuses()).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(await statuses()).toEqual(['fulfilled', 'fulfilled', 'fulfilled'])
  })

  test('behavior: the seed chooses the fault of each call of a method, independently of other calls', async () => {
    const fates = async (seed: number, others: number) => {
      const proxy = await startChaosRpc({ target: chain.url, delayMs: 1 })
      const client = createPublicClient({ transport: http(proxy.url, { retryCount: 0 }) })
      proxy.random({ seed, rate: 0.5, methods: ['eth_chainId'], faults: ['refuse', '500', 'delay'] })
      for (let i = 0; i < 30; i++) {
        await client.getChainId().catch(() => {})
        for (let j = 0; j < others; j++) await client.getGasPrice()
      }
      await proxy.close()
      return proxy.calls.filter((call) => call.method === 'eth_chainId').map((call) => call.fault)
    }
    const first = await fates(1, 0)
    expect(await fates(1, 1)).toEqual(first)
    expect(await fates(2, 0)).not.toEqual(first)
    expect(new Set(first)).toEqual(new Set([undefined, 'refuse', '500', 'delay']))
  })

  test('error: breaks the connection if the chain is unreachable', async () => {
    const orphan = await startChaosRpc({ target: 'http://127.0.0.1:9' })
    const client = createPublicClient({ transport: http(orphan.url, { retryCount: 0 }) })
    await expect(client.getChainId()).rejects.toThrow()
    await orphan.close()
  })
})
