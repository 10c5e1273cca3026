import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@tollkeeper/runtime/serve'
import type { Address } from 'viem'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { cliPath } from '../support/cli.ts'
import { createStackGateway } from '../support/keeperGateway.ts'
import {
  expectUnharmed,
  hourAgo,
  mine,
  mineUntil,
  queueDue,
  queueFor,
  startRecording,
  testClient,
} from '../support/keeperScenes.ts'
import { useKeeperStack, walletAccount, walletKey } from '../support/keeperStack.ts'
import { findMisplaced } from '../support/ledger.ts'
import { killAll, type RunningCommand, runCommand } from '../support/processes.ts'
import { closeTab } from '../support/tabs.ts'
import { until } from '../support/until.ts'

// A keeper without a database remembers nothing, so after it is killed only the chain knows which
// transactions it had sent.

const stack = useKeeperStack()
let server: Awaited<ReturnType<typeof serve>>
let recording: ReturnType<typeof startRecording>
let folder: string
const running = new Set<RunningCommand>()
beforeAll(async () => {
  recording = startRecording(stack)
  server = await serve(createStackGateway(stack), { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' })
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-independent-'))
})
afterEach(async () => {
  for (const { child } of running) child.kill('SIGKILL')
  running.clear()
  await testClient(stack).setAutomine(true)
})
afterAll(async () => {
  await server?.close()
  await recording?.stop()
  await rm(folder, { recursive: true, force: true })
})

async function startKeeper(
  change: Record<string, string> = {},
  rpcUrl = stack.chain.url,
): Promise<RunningCommand> {
  const keyFile = join(folder, 'keeper.key')
  await writeFile(keyFile, walletKey(5))
  const keeper = runCommand(
    [
      ...[process.execPath, cliPath, 'keeper', '--gateway', `http://127.0.0.1:${server.port}`],
      ...['--rpc', rpcUrl, '--network', 'localhost', '--key-file', keyFile],
    ],
    {
      DATABASE_URL: undefined,
      DEPLOYMENTS_FILE: stack.deploymentsFile,
      PRIORITY_FEE_WEI: '0',
      KEEPER_POLL_MS: '100',
      ...change,
    },
  )
  running.add(keeper)
  return keeper
}

const address = walletAccount(5).address
const nonceOf = () => stack.served.client.getTransactionCount({ address })

async function waitingTransactions() {
  const { transactions } = await testClient(stack).getBlock({
    blockTag: 'pending',
    includeTransactions: true,
  })
  return transactions.filter(({ from }) => from === address.toLowerCase())
}

test('behavior: a keeper that was killed and restarted waits for the pending transaction instead of sending another', async () => {
  const startBlock = (await stack.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
  const nonce = await nonceOf()
  const buyers = await stack.buyers(3, 50_000n)
  await testClient(stack).setAutomine(false)
  const payments = await queueFor(stack, buyers)
  const first = await startKeeper()
  await first.line(/batch signed/)
  await until('its transaction is out', async () => (await waitingTransactions()).length === 1)
  await killAll(first)
  const [left] = await waitingTransactions()

  const second = await startKeeper()
  await second.line(/waiting for a transaction that this wallet sent/)
  await testClient(stack).mine({ blocks: 1 })
  await testClient(stack).setAutomine(true)
  await until('all are settled', () => stack.isSettled(payments))
  await second.line(/waiting for due payments/)
  expect(await nonceOf()).toBe(nonce + 1)
  expect((await stack.served.client.getTransactionReceipt({ hash: left?.hash ?? '0x' })).status).toBe(
    'success',
  )
  await expectUnharmed(stack, payments)
  expect(await findMisplaced(stack, payments, startBlock)).toEqual([])

  // The keeper continues, and when it stops it reports what it has done.
  const later = await queueDue(stack, 2)
  await until('these are settled as well', () => stack.isSettled(later))
  const count = (what: RegExp) => second.output().match(what)?.length ?? 0
  await until('each batch is recorded', () => {
    return count(/batch mined/g) > 0 && count(/batch mined/g) === count(/batch signed/g)
  })
  second.child.kill('SIGTERM')
  expect(await second.exited).toBe(0)
  // One batch, or two if the keeper read the queue between the two payments.
  const batches = count(/batch mined/g)
  expect(JSON.parse(await second.line(/stopped/))).toMatchObject({ batches, payments: 2, stillOut: [] })
})

test('behavior: the keeper’s page shows what the keeper has settled, spent on gas and earned on tabs', async () => {
  const [buyer] = await stack.buyers(1, 2_000_000n)
  const keeper = await startKeeper({ KEEPER_HOST: '127.0.0.1', KEEPER_PORT: '0' })
  const { port } = JSON.parse(await keeper.line(/health and metrics on/)) as { port: number }
  const before = await stack.balanceOf(address.toLowerCase() as Address)
  const tab = await closeTab(stack, { buyer, lines: [{ amount: 2_000_000n }], closedAt: hourAgo() })
  await until('it is settled', () => stack.isSettled([tab]))
  await keeper.line(/batch mined/)
  const page = await fetch(`http://127.0.0.1:${port}/`)
  const { wallets } = (await page.json()) as { wallets: { spent: string }[] }
  // A tenth of the platform's 5%.
  expect(wallets).toMatchObject([
    { wallet: address.toLowerCase(), network: 'localhost', batches: 1, payments: 1, earned: '0.010000' },
  ])
  expect(Number(wallets[0]?.spent)).toBeGreaterThan(0)
  expect(await stack.balanceOf(address.toLowerCase() as Address)).toBe(before + 10_000n)
})

test('behavior: if a transaction is never mined, the keeper sends another transaction with the same nonce and higher fees', async () => {
  const nonce = await nonceOf()
  const chain = testClient(stack)
  const buyers = await stack.buyers(2, 50_000n)
  await chain.setAutomine(false)
  const payments = await queueFor(stack, buyers)
  const first = await startKeeper()
  await first.line(/batch signed/)
  await until('its transaction is out', async () => (await waitingTransactions()).length === 1)
  await killAll(first)
  const [left] = await waitingTransactions()

  const second = await startKeeper({ REPLACE_AFTER_MS: '1000' })
  await second.line(/reusing its nonce/)
  await until('another transaction has taken its place', async () => {
    const waiting = await waitingTransactions()
    return waiting.length === 1 && waiting[0]?.hash !== left?.hash
  })
  expect((await waitingTransactions())[0]?.nonce).toBe(nonce)
  await chain.mine({ blocks: 1 })
  await chain.setAutomine(true)
  await until('all are settled', () => stack.isSettled(payments))
  expect(await nonceOf()).toBe(nonce + 1)
  await expectUnharmed(stack, payments)
})

test('behavior: if a reorg drops a mined transaction whose nonce precedes that of a pending transaction, the keeper starts again from the freed nonce', async () => {
  const chain = testClient(stack)
  const [one, other] = await stack.buyers(2, 50_000n)
  const snapshot = await chain.snapshot()
  const startBlock = (await chain.getBlockNumber({ cacheTime: 0 })) + 1n
  const nonce = await nonceOf()
  await startKeeper({ REPLACE_AFTER_MS: '1000' })
  const first = await stack.queue({ buyer: one, price: 50_000n, acceptedAt: hourAgo() })
  await until('the first is settled', () => stack.isSettled([first]))
  const head = await chain.getBlockNumber({ cacheTime: 0 })
  await chain.setAutomine(false)
  const second = await stack.queue({ buyer: other, price: 50_000n, acceptedAt: hourAgo() })
  await until('the second is out', async () => (await waitingTransactions()).length === 1)

  await chain.revert({ id: snapshot })
  await chain.setAutomine(true)
  await mine(stack, Number(head - startBlock) + 4)
  await mineUntil(stack, 'both are settled', () => stack.isSettled([first, second]))
  expect(await nonceOf()).toBeGreaterThan(nonce)
  expect(await findMisplaced(stack, [first, second], startBlock)).toEqual([])
  await expectUnharmed(stack, [first, second])
})

test('error: a keeper that can’t start logs the reason, and exits with status 1', async () => {
  const deployments = join(folder, 'sepolia.json')
  await writeFile(deployments, JSON.stringify({ 'base-sepolia': stack.chain.deployments.localhost }))
  const keeper = runCommand([process.execPath, 'keeper/main.ts'], {
    DATABASE_URL: undefined,
    KEEPER_GATEWAY_URL: `http://127.0.0.1:${server.port}`,
    KEEPER_PRIVATE_KEYS: walletKey(5),
    NETWORKS: 'base-sepolia',
    RPC_URL_BASE_SEPOLIA: stack.chain.url,
    DEPLOYMENTS_FILE: deployments,
  })
  running.add(keeper)
  expect(await keeper.exited).toBe(1)
  expect(keeper.output()).toMatch(/^keeper: base-sepolia: .*31337/)
})

test('behavior: the keeper logs which network is down, and waits until that network is back', async () => {
  const keeper = await startKeeper({}, 'http://127.0.0.1:1')
  await keeper.line(/a network is down/)
  await keeper.line(/a step failed and will run again/)
  keeper.child.kill('SIGTERM')
  expect(await keeper.exited).toBe(0)
})
