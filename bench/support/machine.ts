import { readFile } from 'node:fs/promises'
import { cpuTimeOfTree } from './cpuTime.ts'
import { round2 } from './statistics.ts'

/** Maximum number of cores that other processes may use before the figures can't be compared. */
const maxForeignCores = 0.1

/**
 * Measures the CPU time that other processes use on this machine, that is, all except this process and those that it started.
 *
 * @returns a function that returns `foreignCores`, the average number of cores that other processes and other virtual machines (steal) have used
 * since. `disturbed` is true if that is more than 0.1; then the figures can't be compared with those of other runs.
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
  // In hundredths of a second. Interrupts are left out: they also come from our own traffic, and can't be attributed to a process.
  return { at: performance.now(), foreignUs: (user + nice + system + steal) * 10_000 - ours }
}
