import { isPaused } from '@tollkeeper/chain/simulate'
import type { Context } from './context.ts'

const lookEveryMs = 15_000

/** Notes that a batch found the token paused. */
export function noteTokenPaused({ memory, now }: Pick<Context, 'memory' | 'now'>): void {
  memory.tokenLookAt = now().getTime() + lookEveryMs
}

/** Whether the token is still paused: one call each look, however many payments wait. */
export async function isTokenPaused(context: Context): Promise<boolean> {
  const { served, memory, now, log } = context
  if (memory.tokenLookAt === null) return false
  if (now().getTime() < memory.tokenLookAt) return true
  noteTokenPaused(context) // the other wallets needn't ask, too
  if (await isPaused(served.client, served.token)) return true
  memory.tokenLookAt = null
  log.info('the token moves again')
  return false
}
