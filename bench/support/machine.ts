import { readFile } from 'node:fs/promises'
import { cpuTimeOfTree } from './cpuTime.ts'
import { round2 } from './statistics.ts'

/** Cores that others may take before figures say more about them than about us. */
const maxForeignCores = 0.1

/**
 * Watches what others do on this machine until the result is called. Ours is what this process and everything that it
 * started uses.
 *
 * @returns what tells how many cores other processes and other virtual machines (steal) used meanwhile, and whether that is
 * over 0.1: then the figures are not to be compared with others'.
 */
export async function watchMachine() {
  const before = await look()
  return async () => {
    const after = await look()
    const foreignUs = after.foreignUs - before.foreignUs
    const foreignCores = Math.max(0, foreignUs / 1000 / (after.at - before.at))
    return { foreignCores: round2(foreignCores), disturbed: foreignCores > maxForeignCores }
  }
}

async function look(): Promise<{ at: number; foreignUs: number }> {
  const [stat, ours] = await Promise.all([readFile('/proc/stat', 'latin1'), cpuTimeOfTree(process.pid)])
  const [, user = 0, nice = 0, system = 0, , , , , steal = 0] = stat.split(/\s+/).map(Number)
  // In hundredths of a second. Interrupts are left out: they come with what we send ourselves, and belong to nobody.
  return { at: performance.now(), foreignUs: (user + nice + system + steal) * 10_000 - ours }
}
