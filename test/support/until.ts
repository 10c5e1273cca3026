import { setTimeout as wait } from 'node:timers/promises'

/** Polls until the condition holds. If it doesn't hold in time, throws an error that names `what`. The limit catches a hang. */
export async function until(
  what: string,
  holds: () => Promise<boolean> | boolean,
  timeoutMs = 240_000,
): Promise<void> {
  const end = Date.now() + timeoutMs
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`timed out after ${timeoutMs} ms, waiting until ${what}`)
    await wait(50)
  }
}
