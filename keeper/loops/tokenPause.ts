import { isPaused } from '@tollkeeper/chain/simulate'
import type { Probe } from '@tollkeeper/runtime/health'
import type { Context } from './context.ts'

// Circle can pause USDC. Then nothing settles, and the gateway accepts no payments that would have to settle.

const lookEveryMs = 15_000

type TokenContext = Pick<Context, 'memory' | 'now' | 'log' | 'metrics' | 'served'>

/** Records that a batch found the token paused. */
export function noteTokenPaused(context: TokenContext): void {
  context.memory.token.lookAt = context.now().getTime() + lookEveryMs
  setPaused(context, true)
}

/** Checks whether the token is paused, at most once in 15 seconds. */
export async function watchToken(context: TokenContext): Promise<void> {
  const { served, memory, now } = context
  const at = now().getTime()
  if (at < memory.token.lookAt) return
  // The time is set before the read, so that the process's other wallets don't read the chain at the same time.
  memory.token.lookAt = at + lookEveryMs
  setPaused(context, await isPaused(served.client, served.token))
}

/** Whether the token is paused. Reads the chain only if the token was paused at the last read. */
export async function isTokenPaused(context: TokenContext): Promise<boolean> {
  if (context.memory.token.isPaused) await watchToken(context)
  return context.memory.token.isPaused
}

/** Returns a probe for `/readyz`. It is optional, because a pause doesn't make the keeper unready: no other keeper could settle either. */
export function probeToken({ memory, served: { network } }: TokenContext): Probe {
  return {
    name: `token ${network.name}`,
    network: network.name,
    optional: true,
    async ask() {
      if (memory.token.isPaused) throw new Error('USDC is paused: nothing settles until Circle unpauses it')
    },
  }
}

function setPaused({ memory, metrics, log, served }: TokenContext, isNowPaused: boolean): void {
  metrics.tokenPaused.set({ network: served.network.name }, isNowPaused ? 1 : 0)
  if (isNowPaused === memory.token.isPaused) return
  memory.token.isPaused = isNowPaused
  if (isNowPaused)
    log.warn({ token: served.token }, 'USDC is paused: nothing settles until Circle unpauses it')
  else log.info({ token: served.token }, 'USDC is no longer paused')
}
