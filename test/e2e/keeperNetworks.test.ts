import { writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openServedNetworks } from '#chain/servedNetworks'
import { networks } from '#protocol/networks'
import { startChaosRpc } from '../support/chaosRpc.ts'
import { expectUnharmed, queueDue, whileRunning } from '../support/keeperScenes.ts'
import { type KeeperStack, platformWallet, startKeeperStack, walletKey } from '../support/keeperStack.ts'
import { runCommand } from '../support/processes.ts'
import { until } from '../support/until.ts'

let stack: KeeperStack
beforeAll(async () => {
  stack = await startKeeperStack()
})
afterAll(() => stack?.close())

test('behavior: a first node that answers old heads is put aside, and the healthy second one settles', async () => {
  const { localhost: deployment } = stack.chain.deployments
  if (!deployment) throw new Error('not deployed')
  await using old = await startChaosRpc({ target: stack.chain.url, staleBlocks: 3 })
  old.always('*', 'stale-head')
  const served = await openServedNetworks([
    { network: networks.localhost, deployment, rpcUrls: [old.url, stack.chain.url] },
  ])
  const payments = await queueDue(stack, 2)
  await whileRunning(stack.keeper({ networks: served }), () =>
    until('they are settled', () => stack.isSettled(payments)),
  )
  await expectUnharmed(stack, payments)
})

test('behavior: a network whose node is down keeps the keeper neither from starting nor from settling on another', async () => {
  const { localhost } = stack.chain.deployments
  const file = `${stack.deploymentsFile}.two.json`
  const sepolia = { ...localhost, usdc: networks['base-sepolia'].usdc }
  await writeFile(file, JSON.stringify({ localhost, 'base-sepolia': sepolia }))
  const keeper = runCommand([process.execPath, 'keeper/main.ts'], {
    DATABASE_URL: stack.databaseUrl,
    NETWORKS: 'base-sepolia,localhost',
    RPC_URL_LOCALHOST: stack.chain.url,
    RPC_URL_BASE_SEPOLIA: 'http://127.0.0.1:1/secret',
    DEPLOYMENTS_FILE: file,
    PLATFORM_WALLET: platformWallet,
    KEEPER_PRIVATE_KEYS: walletKey(0),
    KEEPER_PORT: '0',
    PRIORITY_FEE_WEI: '0',
  })
  try {
    const { port } = JSON.parse(await keeper.line(/listening/)) as { port: number }
    const payments = await queueDue(stack, 2)
    await until('they are settled', () => stack.isSettled(payments))
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`)
    expect(ready.status).toBe(200)
    const { status, checks } = (await ready.json()) as {
      status: string
      checks: { name: string; ok: boolean }[]
    }
    expect(status).toBe('degraded')
    expect(checks).toContainEqual(expect.objectContaining({ name: 'rpc base-sepolia', ok: false }))
    expect(checks).toContainEqual(expect.objectContaining({ name: 'rpc localhost', ok: true }))
    expect(keeper.output()).toContain('a network is down')
    expect(keeper.output()).not.toContain('secret')
  } finally {
    keeper.child.kill('SIGTERM')
    await keeper.exited
  }
})
