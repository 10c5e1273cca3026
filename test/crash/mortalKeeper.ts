import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { loopback } from '@tollkeeper/runtime/port'
import { startCutProxy } from '../support/cutProxy.ts'
import { type KeeperStack, platformWallet, walletKey } from '../support/keeperStack.ts'
import { death, kill, killAll as killChildren, portOf, startChild } from './children.ts'
import { createMortal, type MortalOptions } from './createMortal.ts'

export type Mortal = {
  /**
   * Resolves with the port of the keeper's `/submit`, `/verify` and `/settle`. Rejects if the keeper dies before it
   * listens.
   */
  port: Promise<number>
  /** Resolves when the keeper dies at its checkpoint. */
  died: Promise<unknown>
  kill: () => Promise<void>
}

const living = new Set<Mortal>()

/** Kills the keepers that a test left running. */
export async function killAll(): Promise<void> {
  await Promise.all([...living].map((one) => one.kill()))
  living.clear()
  await killChildren()
}

/**
 * Starts a keeper that dies at a checkpoint.
 *
 * @param how `signal`: the keeper is a separate process that kills itself with SIGKILL. `cut`: the keeper is in this
 * process, and at the checkpoint, before its next instruction, all its connections break: to Postgres, to the chain and
 * from its callers.
 */
export async function startKeeper(
  stack: KeeperStack,
  crashAt: CheckpointName | null,
  { how = 'cut', rpcUrl = stack.chain.url }: { how?: 'signal' | 'cut'; rpcUrl?: string } = {},
): Promise<Mortal> {
  const options: MortalOptions = {
    databaseUrl: stack.databaseUrl,
    rpcUrl,
    deployment: stack.served.deployment,
    privateKey: walletKey(0),
    platformWallet,
    settings: stack.settings,
    crashAt,
  }
  const keeper = how === 'cut' ? await startHere(options) : startProcess(options)
  living.add(keeper)
  return keeper
}

function startProcess(options: MortalOptions): Mortal {
  const child = startChild('crashingKeeper.ts', options)
  const port = portOf(child)
  port.catch(() => {})
  const died = death(child)
  died.catch(() => {})
  return { port, died, kill: () => kill(child) }
}

async function startHere(options: MortalOptions): Promise<Mortal> {
  const { crashAt } = options
  const [database, rpc] = [new URL(options.databaseUrl), new URL(options.rpcUrl)]
  const proxies = await Promise.all([database, rpc].map((url) => startCutProxy(loopback, Number(url.port))))
  for (const [index, url] of [database, rpc].entries()) url.port = `${proxies[index]?.port}`
  const { promise: died, resolve, reject } = Promise.withResolvers<void>()
  died.catch(() => {})
  const hang = setTimeout(
    () => reject(new Error(`the keeper keeps running without reaching ${crashAt}`)),
    240_000,
  )
  let isDead = false
  const cut = () => {
    isDead = true
    clearTimeout(hang)
    for (const proxy of proxies) proxy.cut()
    server.close()
    server.closeAllConnections()
  }
  const mortal = await createMortal({ ...options, databaseUrl: database.href, rpcUrl: rpc.href }, (name) => {
    if (!isDead && name === crashAt) {
      cut()
      resolve()
    }
    // The code may still run, but without connections it has no effect.
    if (isDead) throw new Error('dead')
  })
  const server = serve({ fetch: mortal.keeper.app.fetch, port: 0, hostname: loopback }) as Server
  await once(server, 'listening')
  mortal.keeper.start()
  return {
    port: Promise.resolve((server.address() as AddressInfo).port),
    died,
    async kill() {
      if (!isDead) cut()
      await mortal.keeper.stop()
      await mortal.database.end({ timeout: 0 })
      await Promise.all(proxies.map((proxy) => proxy.close()))
    },
  }
}
