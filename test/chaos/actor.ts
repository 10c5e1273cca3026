import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { concludeMined } from '@tollkeeper/keeper/loops/conclude'
import { createVoidWatch, lookUpRequested } from '@tollkeeper/keeper/loops/lookups'
import { reconcilePayments } from '@tollkeeper/keeper/loops/reconcile'
import { createKeeperRecorder } from '@tollkeeper/keeper/loops/recorder'
import { readRecordState } from '@tollkeeper/keeper/loops/recordState'
import { createWorker } from '@tollkeeper/keeper/loops/worker'
import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { createKeeperContext } from '../support/keeperContext.ts'
import { type KeeperStack, walletAccount } from '../support/keeperStack.ts'
import { randomHex } from '../support/usdc.ts'

/**
 * One keeper process of one wallet that goes no further than it's told: from checkpoint to checkpoint. Between two of
 * its steps anything may happen, another keeper included. One that is never told to go on has died there.
 */
export type Actor = {
  /** Goes on to its next checkpoint, or to the end of its step; from there, into the next one. */
  advance: () => Promise<void>
  /** Where it stands; null between two steps. */
  standsAt: () => CheckpointName | null
}

export async function createActor(
  stack: KeeperStack,
  options: { wallet: number; rpcUrl: string },
): Promise<Actor> {
  // A process of its own has RPC clients of its own; none waits between its tries, or a run would take minutes.
  const [served] = await openServedNetworks(
    [{ network: stack.served.network, deployment: stack.served.deployment, rpcUrls: [options.rpcUrl] }],
    { timeoutMs: 2_000 },
  )
  if (!served) throw new Error('the local chain is not served')
  let standsAt: CheckpointName | null = null
  let goOn: (() => void) | null = null
  let arrive = () => {}
  let fail = (_error: unknown) => {}
  const context = createKeeperContext(
    { ...stack, served },
    (name) =>
      new Promise((resolve) => {
        standsAt = name
        goOn = resolve
        arrive()
      }),
  )
  const account = walletAccount(options.wallet)
  const worker = createWorker(context, randomHex(8), {
    address: account.address.toLowerCase() as `0x${string}`,
    sign: (transaction) => account.signTransaction({ ...transaction, type: 'eip1559' }),
  })
  const recorder = createKeeperRecorder(context)
  const watchVoided = createVoidWatch(context)
  // What a keeper's loops do side by side, one after the other.
  const steps = [
    () => worker.step(),
    async () => {
      const record = await readRecordState(context)
      const safeBlock = await recorder.followReorgs(record)
      await concludeMined(context, safeBlock)
      context.memory.isFollowed = safeBlock !== null && record.status === 'current'
      if (safeBlock !== null) await recorder.record()
      if (context.memory.isFollowed) await lookUpRequested(context)
    },
    async () => {
      const record = await readRecordState(context)
      if (record.status !== 'current' || !context.memory.isFollowed) return
      await watchVoided()
      await reconcilePayments(context)
    },
  ]
  let next = 0

  return {
    standsAt: () => standsAt,
    async advance() {
      const arrived = new Promise<void>((resolve, reject) => {
        arrive = resolve
        fail = reject
      })
      if (goOn) {
        const go = goOn
        goOn = null
        standsAt = null
        go()
      } else {
        const step = steps[next++ % steps.length]
        // A step that fails is taken again: an RPC fault, or a lease that another one has by now.
        step?.().then(
          () => arrive(),
          (error: unknown) => {
            context.log.warn({ err: error }, 'a step failed')
            if (error instanceof TypeError) fail(error)
            else arrive()
          },
        )
      }
      await arrived
    },
  }
}
