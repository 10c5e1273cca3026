import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import type { Hash } from 'viem'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { CheckpointName } from '#keeper/loops/context'
import { encodePayload } from '#protocol/payload'
import {
  type KeeperStack,
  platformWallet,
  type QueuedPayment,
  startKeeperStack,
  walletKey,
} from '../support/keeperStack.ts'
import { describeState, findBreaches, findMisplaced } from '../support/ledger.ts'
import { until } from '../support/until.ts'
import { ofPushes, ofSubmissions } from './checkpoints.ts'
import { death, kill, killAll, portOf, startChild } from './children.ts'
import type { CrashingKeeperOptions, Turn } from './crashingKeeper.ts'

/** As in keeper.test.ts. */
const runs = Number(process.env.CRASH_RUNS ?? 0)

let stack: KeeperStack
beforeAll(async () => {
  stack = await startKeeperStack({ leaseMs: 700, rebroadcastAfterMs: 300 })
})
afterEach(killAll)
afterAll(() => stack?.close())

function startKeeper(
  { databaseUrl, deploymentsFile, chain, settings }: KeeperStack,
  crashAt: CheckpointName | null,
  change: Partial<CrashingKeeperOptions> = {},
) {
  const keeper = startChild('crashingKeeper.ts', {
    databaseUrl,
    deploymentsFile,
    settings,
    rpcUrl: chain.url,
    privateKeys: [walletKey(0)],
    platformWallet,
    ...change,
  } satisfies CrashingKeeperOptions)
  keeper.send({ crashAt } satisfies Turn)
  return keeper
}

async function submit(
  port: number,
  payment: QueuedPayment,
  apiKey = stack.apiKey,
): Promise<{ status: number; txHash?: Hash }> {
  const response = await fetch(`http://127.0.0.1:${port}/submit`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({
      network: 'localhost',
      transfers: [payment.provider, payment.fee].map(encodePayload),
    }),
  })
  // Where each transfer stands changes while it is mined and indexed.
  const { txHash } = (await response.json()) as { txHash?: Hash }
  return { status: response.status, ...(txHash && { txHash }) }
}

async function queueOne(on: KeeperStack, acceptedAt = new Date()): Promise<QueuedPayment> {
  const [buyer] = await stack.buyers(1, 100_000n)
  if (!buyer) throw new Error('no buyer')
  return on.queue({ buyer, price: 50_000n, acceptedAt })
}

test.each([
  ...ofSubmissions,
  // What it does in between is any keeper's path, with somebody waiting for the answer.
  'after-claim',
  'after-write-ahead',
  'after-broadcast',
] satisfies CheckpointName[])(
  'behavior: a facilitator dies at %s: asked again, it settles once and answers with that transaction',
  async (checkpoint) => {
    const fromBlock = (await stack.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
    const dying = startKeeper(stack, checkpoint)
    const died = death(dying)
    const payment = await queueOne(stack)
    const lost = submit(await portOf(dying), payment)
    await expect(lost).rejects.toThrow()
    await died

    const next = startKeeper(stack, null)
    const port = await portOf(next)
    const answer = await submit(port, payment)
    expect(answer).toMatchObject({ status: 200, txHash: expect.stringMatching(/^0x[0-9a-f]{64}$/) })
    expect(await submit(port, payment)).toEqual(answer)
    await until('it is settled', () => stack.isSettled([payment]))
    expect((await stack.halves(payment)).map((half) => half.txHash)).toEqual([answer.txHash, answer.txHash])
    expect(await submit(port, payment)).toEqual(answer)
    expect(await findMisplaced(stack, [payment], fromBlock)).toEqual([])
    expect(await findBreaches(stack.database)).toEqual([])
    await kill(next)
  },
)

test('behavior: a keeper that pushes dies at each step: the other side settles once', async () => {
  const facilitator = stack.keeper()
  facilitator.start()
  const server = serve({ fetch: facilitator.app.fetch, port: 0, hostname: '127.0.0.1' })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const own = await startKeeperStack(
    { ...stack.settings, facilitatorUrl: `http://127.0.0.1:${port}`, facilitatorKey: stack.grantedKey },
    stack.chain,
  )
  try {
    const alone = runs > 0 ? ofPushes.map((checkpoint) => [checkpoint]) : []
    for (const deaths of [ofPushes, ...alone]) {
      const fromBlock = (await stack.served.client.getBlockNumber({ cacheTime: 0 })) + 1n
      const payment = await queueOne(own, new Date(Date.now() - 3_600_000))
      for (const checkpoint of deaths) {
        await death(startKeeper(own, checkpoint, { privateKeys: [] })).catch(async (error: unknown) => {
          throw new Error(`it was to die at ${checkpoint}: ${await describeState(own, [])}`, { cause: error })
        })
      }
      const last = startKeeper(own, null, { privateKeys: [] })
      await until('it is settled', () => own.isSettled([payment]))
      await kill(last)
      expect(await findMisplaced(own, [payment], fromBlock)).toEqual([])
      expect(await own.database`select 1 from transaction`).toEqual([])
      expect(await own.database`select 1 from batch`).toEqual([])
      expect(await own.database`select 1 from payment where attempts > 0`).toEqual([])
    }
  } finally {
    await killAll()
    await facilitator.stop()
    server.close()
    await own.close()
  }
})

test('behavior: a keeper that pushes dies before it has noted the answer to a submission: asked again, it is the same one', async () => {
  const facilitator = stack.keeper()
  facilitator.start()
  const server = serve({ fetch: facilitator.app.fetch, port: 0, hostname: '127.0.0.1' })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const own = await startKeeperStack(
    { ...stack.settings, facilitatorUrl: `http://127.0.0.1:${port}`, facilitatorKey: stack.grantedKey },
    stack.chain,
  )
  try {
    const payment = await queueOne(own)
    const dying = startKeeper(own, 'after-push', { privateKeys: [] })
    const died = death(dying)
    await expect(submit(await portOf(dying), payment, own.apiKey)).rejects.toThrow()
    await died
    // The next one finds nothing left to settle, and the transaction that did it is still the answer.
    await until('it is settled', () => own.isSettled([payment]))
    const noted = startKeeper(own, 'after-push-recorded', { privateKeys: [] })
    await death(noted)
    const answer = await submit(
      await portOf(startKeeper(own, null, { privateKeys: [] })),
      payment,
      own.apiKey,
    )
    const hashes = (await own.halves(payment)).map((half) => half.txHash)
    expect(answer).toMatchObject({ status: 200, txHash: hashes[0] })
    expect(hashes).toEqual([answer.txHash, answer.txHash])
  } finally {
    await killAll()
    await facilitator.stop()
    server.close()
    await own.close()
  }
})
