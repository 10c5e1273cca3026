import type { Hash } from 'viem'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { CheckpointName } from '#keeper/settings/checkpoints'
import { encodePayload } from '#protocol/payload'
import {
  type KeeperStack,
  platformWallet,
  type QueuedPayment,
  startKeeperStack,
  walletKey,
} from '../support/keeperStack.ts'
import { findBreaches, findMisplaced } from '../support/ledger.ts'
import { until } from '../support/until.ts'
import { ofSubmissions } from './checkpoints.ts'
import { death, kill, killAll, portOf, startChild } from './children.ts'
import type { CrashingKeeperOptions, Turn } from './crashingKeeper.ts'

let stack: KeeperStack
beforeAll(async () => {
  stack = await startKeeperStack({ leaseMs: 700, rebroadcastAfterMs: 300 })
})
afterEach(killAll)
afterAll(() => stack?.close())

function startKeeper(crashAt: CheckpointName | null) {
  const { databaseUrl, deploymentsFile, chain, settings } = stack
  const keeper = startChild('crashingKeeper.ts', {
    databaseUrl,
    deploymentsFile,
    settings,
    rpcUrl: chain.url,
    privateKeys: [walletKey(0)],
    platformWallet,
  } satisfies CrashingKeeperOptions)
  keeper.send({ crashAt } satisfies Turn)
  return keeper
}

async function submit(port: number, payment: QueuedPayment): Promise<{ status: number; txHash?: Hash }> {
  const response = await fetch(`http://127.0.0.1:${port}/submit`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${stack.apiKey}` },
    body: JSON.stringify({
      network: 'localhost',
      transfers: [payment.provider, payment.fee].map(encodePayload),
    }),
  })
  // Where each transfer stands changes while it is mined and indexed.
  const { txHash } = (await response.json()) as { txHash?: Hash }
  return { status: response.status, ...(txHash && { txHash }) }
}

async function queueOne(): Promise<QueuedPayment> {
  const [buyer] = await stack.buyers(1, 100_000n)
  if (!buyer) throw new Error('no buyer')
  return stack.queue({ buyer, price: 50_000n })
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
    const dying = startKeeper(checkpoint)
    const died = death(dying)
    const payment = await queueOne()
    const lost = submit(await portOf(dying), payment)
    await expect(lost).rejects.toThrow()
    await died

    const next = startKeeper(null)
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
