import { setTimeout as wait } from 'node:timers/promises'

/** Looks until it holds; says what was waited for when it doesn't. The limit catches a hang. */
export async function until(
  what: string,
  holds: () => Promise<boolean> | boolean,
  timeoutMs = 240_000,
): Promise<void> {
  const end = Date.now() + timeoutMs
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`waited ${timeoutMs} ms in vain until ${what}`)
    await wait(50)
  }
}
