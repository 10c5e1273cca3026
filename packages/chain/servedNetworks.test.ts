import { failedDependency } from '@tollkeeper/runtime/dependencies'
import { toCodedError } from '@tollkeeper/runtime/problem'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { startChaosRpc } from '../../test/support/chaosRpc.ts'
import { until } from '../../test/support/until.ts'
import { openServedNetworks, type ServedNetwork } from './servedNetworks.ts'

let chain: LocalChain
beforeAll(async () => {
  chain = await startLocalChain({ network: 'localhost', blockTimeMs: 0 })
  for (let i = 0; i < 10; i++) await chain.mintUsdc(['0x00000000000000000000000000000000000000aa'], 1n)
})
afterAll(() => chain?.close())

/** Starts two nodes of the chain. The first one can return old heads. */
async function startNodes() {
  const first = await startChaosRpc({ target: chain.url, staleBlocks: 3 })
  const second = await startChaosRpc({ target: chain.url })
  const close = async () => void (await Promise.all([first.close(), second.close()]))
  return { first, second, [Symbol.asyncDispose]: close }
}

async function open(rpcUrls: string[], onUnreachable?: (network: Network) => void): Promise<ServedNetwork> {
  const deployment = chain.deployments.localhost
  if (!deployment) throw new Error('not deployed')
  const [served] = await openServedNetworks([{ network: networks.localhost, deployment, rpcUrls }], {
    probeTimeoutMs: 60_000,
    ...(onUnreachable && { onUnreachable }),
  })
  return served as ServedNetwork
}

const headOf = ({ client }: ServedNetwork) => client.getBlockNumber({ cacheTime: 0 })

// Each test waits for checks, which are sent every two seconds, so the tests run concurrently.
describe.concurrent('the check of the nodes’ heads', () => {
  test('behavior: prefers another node while the first node returns old heads', async () => {
    await using nodes = await startNodes()
    const { first, second } = nodes
    const served = await open([first.url, second.url])
    const head = await headOf(served)
    first.always('*', 'stale-head')
    await until('the healthy node is asked', async () => (await headOf(served)) === head)
    const before = first.calls.filter(({ method }) => method === 'eth_call').length
    await served.client.call({ to: served.token, data: '0x06fdde03' })
    expect(first.calls.filter(({ method }) => method === 'eth_call')).toHaveLength(before)
    expect(served.clients).toHaveLength(2)

    first.heal()
    await until('the first node is asked again', async () => {
      const seen = first.calls.length
      await served.client.call({ to: served.token, data: '0x06fdde03' })
      return first.calls.slice(seen).some(({ method }) => method === 'eth_call')
    })
  })

  test('behavior: detects the first node’s old head at startup, before anything is read from that node', async () => {
    await using nodes = await startNodes()
    const { first, second } = nodes
    first.always('*', 'stale-head')
    const served = await open([first.url, second.url])
    expect(await headOf(served)).toBe(await headOf(await open([second.url])))
  })

  test('behavior: omits an unreachable node from calls to all nodes until the node recovers', async () => {
    await using nodes = await startNodes()
    const { first, second } = nodes
    const served = await open([first.url, second.url])
    expect(served.clients).toHaveLength(2)
    first.always('*', 'refuse')
    await until('the unreachable node is left out', async () => {
      await headOf(served)
      return served.clients.length === 1
    })
    first.heal()
    await until('the recovered node is asked again', async () => {
      await headOf(served)
      return served.clients.length === 2
    })
  })

  test('behavior: ignores a very high head that no other node confirms, and doesn’t treat the other nodes as behind', async () => {
    await using nodes = await startNodes()
    const { first, second } = nodes
    const served = await open([first.url, second.url])
    const head = await headOf(served)
    second.always('eth_blockNumber', { result: '0xffffffff' })
    const seen = second.calls.length
    const judged = () => second.calls.slice(seen).filter(({ method }) => method === 'eth_chainId').length
    await until('the second node was checked twice more', async () => {
      expect(await headOf(served)).toBe(head)
      return judged() >= 2
    })
  })

  test('behavior: does not use a node of another chain, even if its head is higher', async () => {
    await using other = await startLocalChain({ network: 'base-sepolia', blockTimeMs: 0 })
    for (let i = 0; i < 30; i++) await other.mintUsdc(['0x00000000000000000000000000000000000000aa'], 1n)
    const served = await open([other.url, chain.url])
    expect(await served.client.getChainId()).toBe(31337)
    expect(served.clients).toHaveLength(1)
  })

  test('behavior: sends no checks if there is a single node', async () => {
    await using nodes = await startNodes()
    const { second } = nodes
    const served = await open([second.url])
    const before = second.calls.length
    for (let i = 0; i < 5; i++) await headOf(served)
    expect(second.calls.length - before).toBe(5)
  })
})

describe.concurrent('a network that is down at the start', () => {
  test('error: is rejected by default', async () => {
    await using nodes = await startNodes()
    const { first } = nodes
    first.always('*', 'refuse')
    await expect(open([first.url])).rejects.toThrow(/^localhost: could not read the chain/)
  })

  test('behavior: is served if the caller passes onUnreachable, and can be read once its node recovers', async () => {
    await using nodes = await startNodes()
    const { first, second } = nodes
    first.always('*', 'refuse')
    const down: string[] = []
    const served = await open([first.url], ({ name }) => down.push(name))
    expect(down).toEqual(['localhost'])
    await expect(headOf(served)).rejects.toThrow('could not read the chain')
    first.heal()
    expect(await headOf(served)).toBe(await headOf(await open([second.url])))
  })

  test.each<[string, (served: ServedNetwork) => Promise<unknown>]>([
    ['a read of its head', ({ client }) => client.getBlockNumber()],
    ['a call to it', ({ client, token }) => client.call({ to: token, data: '0x06fdde03' })],
    ['a gas estimate on it', ({ client, token }) => client.estimateGas({ to: token, account: token })],
    [
      'a read of a contract on it',
      ({ client, token }) => client.readContract({ address: token, abi: usdcAbi, functionName: 'name' }),
    ],
    [
      'a simulation on it',
      ({ client, token }) =>
        client.simulateContract({
          address: token,
          abi: usdcAbi,
          functionName: 'transfer',
          args: [token, 1n],
          account: token,
        }),
    ],
  ])(
    'error: %s throws an error to which the API responds with a 503 that names the node as the cause',
    async (_, ask) => {
      await using nodes = await startNodes()
      const { first } = nodes
      first.always('*', 'refuse')
      const served = await open([first.url], () => {})
      const error = await ask(served).catch((error: unknown) => error)
      expect(failedDependency(error)).toBe('rpc')
      expect(toCodedError(error)).toMatchObject({ status: 503, details: { dependency: 'rpc' } })
    },
  )

  test('behavior: is never read if its node turns out to serve another chain', async () => {
    await using other = await startLocalChain({ network: 'base-sepolia', blockTimeMs: 0 })
    await using proxy = await startChaosRpc({ target: other.url })
    proxy.always('*', 'refuse')
    const served = await open([proxy.url], () => {})
    proxy.heal()
    await expect(headOf(served)).rejects.toThrow(/localhost: /)
    await expect(served.clients[0]?.getBlockNumber()).rejects.toThrow(/localhost: /)
  })

  test('error: is rejected immediately if its node serves another chain', async () => {
    await using other = await startLocalChain({ network: 'base-sepolia', blockTimeMs: 0 })
    await expect(open([other.url], () => {})).rejects.toThrow(/localhost: /)
  })
})
