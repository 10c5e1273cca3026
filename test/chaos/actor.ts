import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { finalizeMined } from '@tollkeeper/keeper/loops/finalize'
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
 * A keeper with one wallet that a test moves from checkpoint to checkpoint. Anything may happen between two of its
 * steps, including steps of another keeper. To let it die at a checkpoint, the test stops advancing it.
 */
export type Actor = {
  /** Continues to the next checkpoint or to the end of the current step. At the end of a step, starts the next one. */
  advance: () => Promise<void>
  /** Returns the checkpoint at which the actor waits; null between two steps. */
  standsAt: () => CheckpointName | null
}

export async function createActor(
  stack: KeeperStack,
  options: { wallet: number; rpcUrl: string },
): Promise<Actor> {
  // Each actor has separate RPC clients, as separate processes do. The clients don't pause between retries, because with pauses a run would
  // take minutes.
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
  // The steps that a keeper's loops take in parallel, here one after the other.
  const steps = [
    () => worker.step(),
    async () => {
      const record = await readRecordState(context)
      const safeBlock = await recorder.followReorgs(record)
      await finalizeMined(context, safeBlock)
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
        // A step can fail because of an RPC fault, or because another actor has taken the lease. The next advance
        // retries it.
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
