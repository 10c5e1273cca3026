import { isPaused } from '@tollkeeper/chain/simulate'
import type { Probe } from '@tollkeeper/runtime/health'
import type { Context } from './context.ts'

// Circle can pause USDC. Then nothing settles, and no payment is accepted that would have to.

const lookEveryMs = 15_000

type TokenContext = Pick<Context, 'memory' | 'now' | 'log' | 'metrics' | 'served'>

/** Notes that a batch found the token paused. */
export function noteTokenPaused(context: TokenContext): void {
  context.memory.token.lookAt = context.now().getTime() + lookEveryMs
  setPaused(context, true)
}

/** Looks whether the token is paused, at most once in 15 seconds, however many payments wait. */
export async function watchToken(context: TokenContext): Promise<void> {
  const { served, memory, now } = context
  const at = now().getTime()
  if (at < memory.token.lookAt) return
  memory.token.lookAt = at + lookEveryMs // the other wallets needn't ask as well
  setPaused(context, await isPaused(served.client, served.token))
}

/** Whether the token is still paused. Asks the chain only while it is. */
export async function isTokenPaused(context: TokenContext): Promise<boolean> {
  if (context.memory.token.isPaused) await watchToken(context)
  return context.memory.token.isPaused
}

/** For `/readyz`. It doesn't make the keeper unready: another one couldn't settle either. */
export function probeToken({ memory, served: { network } }: TokenContext): Probe {
  return {
    name: `token ${network.name}`,
    network: network.name,
    optional: true,
    async ask() {
      if (memory.token.isPaused) throw new Error('USDC is paused: nothing settles until it moves again')
    },
  }
}

function setPaused({ memory, metrics, log, served }: TokenContext, isNowPaused: boolean): void {
  metrics.tokenPaused.set({ network: served.network.name }, isNowPaused ? 1 : 0)
  if (isNowPaused === memory.token.isPaused) return
  memory.token.isPaused = isNowPaused
  if (isNowPaused) log.warn({ token: served.token }, 'USDC is paused: nothing settles until it moves again')
  else log.info({ token: served.token }, 'USDC moves again')
}
