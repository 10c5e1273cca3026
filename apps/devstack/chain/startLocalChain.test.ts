import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { reservePort } from '@tollkeeper/runtime/port'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { domainSeparator } from '@tollkeeper/sdk/protocol/eip3009'
import { networkByName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import {
  type Address,
  createPublicClient,
  createTestClient,
  encodeFunctionData,
  type Hash,
  http,
  parseAbiItem,
  parseEther,
  publicActions,
} from 'viem'
import { mnemonicToAccount } from 'viem/accounts'
import { publicActionsL2 } from 'viem/op-stack'
import { expect, onTestFinished, test } from 'vitest'
import committed from '../../../sdk/src/protocol/deployments.json' with { type: 'json' }
import { devAccount } from './accounts.ts'
import { contracts } from './contracts.ts'
import { multicall3Address, prepareChain } from './prepareChain.ts'
import { type LocalChain, startLocalChain } from './startLocalChain.ts'

const clientOf = (chain: LocalChain) =>
  createPublicClient({ transport: http(chain.url), pollingInterval: 20 })

const mintEvent = parseAbiItem('event Mint(address indexed minter, address indexed to, uint256 amount)')

function deploymentOf(chain: LocalChain) {
  const deployment = chain.deployments[chain.network]
  if (deployment === undefined) throw new Error('nothing is deployed')
  return deployment
}

test.each(networkNames)('default: simulates the network %s', async (network) => {
  await using chain = await startLocalChain({ network })
  const client = clientOf(chain)
  const { usdc, startBlock: _, ...addresses } = deploymentOf(chain)
  const chainId = await client.getChainId()

  expect(chainId).toBe(networkByName(network).chainId)
  expect(usdc).toBe(networkByName(network).usdc ?? committed.localhost.usdc)
  const { batchSettlement, splitterFactory, tabSettlement } = committed.base
  expect(addresses).toEqual({ batchSettlement, splitterFactory, tabSettlement })
  for (const { address, runtimeCode } of Object.values(contracts)) {
    expect(await client.getCode({ address })).toBe(runtimeCode)
  }
  const token = { address: usdc, abi: usdcAbi } as const
  expect(await client.readContract({ ...token, functionName: 'decimals' })).toBe(6)
  expect(await client.readContract({ ...token, functionName: 'symbol' })).toBe('USDC')
  expect(await client.readContract({ ...token, functionName: 'DOMAIN_SEPARATOR' })).toBe(
    domainSeparator({ ...networkByName(network).eip712, chainId, verifyingContract: usdc }),
  )
})

test('behavior: funds 600 buyers within a few blocks, without advancing the clock', async () => {
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  const client = clientOf(chain)
  const buyers = Array.from(
    { length: 600 },
    (_, i): Address => `0x${(4096 + i).toString(16).padStart(40, '0')}`,
  )
  const before = await client.getBlockNumber()
  await chain.mintUsdc(buyers, 5_000_000n)

  expect((await client.getBlockNumber({ cacheTime: 0 })) - before).toBe(3n)
  for (const buyer of [buyers[0], buyers[599]] as Address[]) {
    const balance = await client.readContract({
      address: deploymentOf(chain).usdc,
      abi: usdcAbi,
      functionName: 'balanceOf',
      args: [buyer],
    })
    expect(balance).toBe(5_000_000n)
  }
  const { timestamp } = await client.getBlock()
  expect(Number(timestamp)).toBeLessThan(Date.now() / 1000 + 2)
})

test('default: funds the first twenty accounts of the test mnemonic', async () => {
  await using chain = await startLocalChain({ bare: true })
  const accounts = await clientOf(chain).request({ method: 'eth_accounts' } as never)
  expect(accounts).toHaveLength(20)
  for (const index of [0, 19]) {
    const { address } = mnemonicToAccount(`${'test '.repeat(11)}junk`, { addressIndex: index })
    expect(accounts).toHaveProperty([index], address.toLowerCase())
    expect(await clientOf(chain).getBalance({ address })).toBe(parseEther('10000'))
  }
})

test('error: reports a revert as geth does, with the revert’s data', async () => {
  await using chain = await startLocalChain()
  const { usdc } = deploymentOf(chain)
  const data = encodeFunctionData({ abi: usdcAbi, functionName: 'transfer', args: [usdc, 1n] })
  const ask = async (body: unknown) => {
    const answer = await fetch(chain.url, { method: 'POST', body: JSON.stringify(body) })
    return answer.json()
  }
  const call = { id: 'a', method: 'eth_call', params: [{ to: usdc, data }, 'latest'] }
  const [reverted, unknown, invalid] = (await ask([call, { id: 2, method: 'eth_nope' }, 3])) as never[]
  expect(reverted).toMatchObject({
    jsonrpc: '2.0',
    id: 'a',
    error: { code: 3, data: expect.stringMatching(/^0x08c379a0/) },
  })
  expect(unknown).toMatchObject({ id: 2, error: { code: -32004 } })
  expect(invalid).toMatchObject({ id: null, error: { code: -32600 } })
  expect(await ask({ id: 4, method: 'eth_chainId' })).toEqual({ jsonrpc: '2.0', id: 4, result: '0x7a69' })
})

test('behavior: mines blocks at intervals, or with each transaction', async () => {
  await using chain = await startLocalChain({ blockTimeMs: 50 })
  const client = clientOf(chain)
  const start = await client.getBlockNumber({ cacheTime: 0 })
  await new Promise<void>((resolve) => {
    const unwatch = client.watchBlockNumber({
      onBlockNumber: (block) => {
        if (block < start + 3n) return
        unwatch()
        resolve()
      },
    })
  })
  await chain.setMining(0)
  const stopped = await client.getBlockNumber({ cacheTime: 0 })
  await chain.mintUsdc([devAccount(5).address], 1n)
  expect(await client.getBlockNumber({ cacheTime: 0 })).toBe(stopped + 1n)
})

test('behavior: reports the L1 fee on an OP Stack chain', async () => {
  await using chain = await startLocalChain({ network: 'base', blockTimeMs: 0 })
  const client = createPublicClient({ transport: http(chain.url) }).extend(publicActionsL2())
  const { address } = devAccount(1)
  const fee = await client.estimateL1Fee({ account: address, to: address, chain: null })
  expect(fee).toBeTypeOf('bigint')
})

test('behavior: preparing a chain a second time changes nothing', async () => {
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  const client = clientOf(chain)
  const before = await client.getBlockNumber({ cacheTime: 0 })
  const again = await prepareChain({ transport: http(chain.url) })
  expect(again.deployments).toEqual(chain.deployments)
  expect(await client.getBlockNumber({ cacheTime: 0 })).toBe(before)
})

test('behavior: returns a dropped block only by its block hash, like a real node', async () => {
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  const client = createTestClient({ mode: 'hardhat', transport: http(chain.url) }).extend(publicActions)
  const { usdc } = deploymentOf(chain)
  const snapshot = await client.snapshot()
  const stays = await client.getBlock()
  await chain.mintUsdc([devAccount(5).address, devAccount(6).address], 1n)
  const block = await client.getBlock()
  const { hash: blockHash } = block
  const [hash] = block.transactions
  if (!hash) throw new Error('nothing was mined')
  const questions = [
    () => client.getBlock({ blockHash }),
    () => client.getBlock({ blockHash, includeTransactions: true }),
    () => client.getLogs({ blockHash }),
    () => client.getLogs({ blockHash, address: usdc, event: mintEvent, args: { to: devAccount(6).address } }),
    () => client.getLogs({ blockHash, address: multicall3Address }),
    () => client.getBlock({ blockHash: stays.hash }),
  ]
  const before = await Promise.all(questions.map((ask) => ask()))
  expect(before.slice(2, 5).map((logs) => (logs as unknown[]).length)).toEqual([4, 1, 0])

  await client.revert({ id: snapshot })
  await client.mine({ blocks: 1 })
  expect(await Promise.all(questions.map((ask) => ask()))).toEqual(before)
  expect((await client.getBlock({ blockNumber: block.number })).hash).not.toBe(blockHash)
  await expect(client.getTransactionReceipt({ hash })).rejects.toThrow('could not be found')
  await expect(client.getTransaction({ hash })).rejects.toThrow('could not be found')
  await expect(client.getBlock({ blockHash: hash })).rejects.toThrow('could not be found')
})

test('behavior: keeps only the newest dropped blocks, up to a limit', async () => {
  await using chain = await startLocalChain({ bare: true })
  const client = createTestClient({ mode: 'hardhat', transport: http(chain.url) }).extend(publicActions)
  const snapshot = await client.snapshot()
  const hashes: Hash[] = []
  for (let block = 0; block < 258; block++) {
    await client.mine({ blocks: 1 })
    hashes.push((await client.getBlock()).hash)
  }
  await client.revert({ id: snapshot })
  const isKept = (blockHash: Hash) =>
    client.getBlock({ blockHash }).then(
      () => true,
      () => false,
    )
  expect(await Promise.all(hashes.slice(0, 4).map(isKept))).toEqual([false, false, true, true])
  expect(await Promise.all(hashes.slice(-2).map(isKept))).toEqual([true, true])
})

test('behavior: frees the chain’s port when the chain is closed', async () => {
  const port = await reservePort()
  const first = await startLocalChain({ bare: true, port })
  await first.close()
  await first.close()
  await using second = await startLocalChain({ bare: true, port })
  expect(second.port).toBe(port)
})

test('behavior: ends the node when its parent ends in any way', async () => {
  const script = `
    import { startLocalChain } from ${JSON.stringify(join(import.meta.dirname, 'startLocalChain.ts'))}
    const chain = await startLocalChain({ bare: true })
    console.log(chain.pid)
    setInterval(() => {}, 1000)`
  const parent = spawn(process.execPath, ['--input-type=module-typescript', '--eval', script], {
    cwd: join(import.meta.dirname, '../../..'),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [output] = await once(parent.stdout, 'data')
  const pid = Number(output)
  process.kill(pid, 0)
  // The killed parent can't stop the node. The node ends by itself when its channel to the parent closes.
  parent.kill('SIGKILL')
  await expect.poll(() => isAlive(pid)).toBe(false)
})

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

test('behavior: reports how the node ended, and its last output', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-chain-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const logFile = join(folder, 'chain.log')
  const chain = await startLocalChain({ bare: true, logFile })
  // On this signal, Node prints a line about its inspector, whether the inspector's port is free or not.
  process.kill(chain.pid, 'SIGUSR1')
  await expect.poll(() => readFile(logFile, 'utf8').catch(() => '')).toContain('9229')
  process.kill(chain.pid, 'SIGKILL')
  expect(await chain.exited).toMatch(/^signal SIGKILL:\n.*9229/s)
})

test('error: rejects a port that is taken', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  await expect(startLocalChain({ port })).rejects.toThrow(`the local chain didn't start on port ${port}`)
  server.close()
})

test('behavior: responds to programs and pages of this machine, but not to pages of another origin', async () => {
  await using chain = await startLocalChain({ network: 'localhost' })
  const ask = async (headers: Record<string, string>) => {
    const [{ port }, body] = [new URL(chain.url), '{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}']
    const request = httpRequest({ host: '127.0.0.1', port, method: 'POST', headers })
    request.end(body)
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    response.resume()
    return response.statusCode
  }
  expect(await ask({})).toBe(200)
  expect(await ask({ origin: 'http://localhost:3000' })).toBe(200)
  for (const origin of ['https://evil.example', 'null', 'http://localhost.evil.example'])
    expect([origin, await ask({ origin })]).toEqual([origin, 403])
  // A page of evil.example, whose name resolves to this machine (DNS rebinding).
  expect(await ask({ host: 'evil.example' })).toBe(403)
})
