import { readdir, readFile } from 'node:fs/promises'

/** Linux counts a process's time in hundredths of a second. */
const microsecondsPerTick = 10_000

/** CPU time that a process has used so far, in µs; waiting doesn't count. Linux only. */
export async function cpuTime(pid: number, task = `${pid}`): Promise<number> {
  const [, , , , , , , , , , , user = 0, system = 0] = await readStat(task)
  return (Number(user) + Number(system)) * microsecondsPerTick
}

/** The same of the process's first thread alone: in Node, the one that runs the event loop. */
export const cpuTimeOfMainThread = (pid: number) => cpuTime(pid, `${pid}/task/${pid}`)

/** The same of a process and everything that it started, what has ended included. */
export async function cpuTimeOfTree(root: number): Promise<number> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const stats = new Map<number, string[]>()
  for (const pid of pids) {
    const fields = await readStat(`${pid}`).catch(() => undefined)
    if (fields !== undefined) stats.set(pid, fields)
  }
  const isOurs = (pid: number): boolean => {
    const parent = Number(stats.get(pid)?.[1] ?? 0)
    return pid === root || (parent > 1 && isOurs(parent))
  }
  let ticks = 0
  for (const [pid, fields] of stats) {
    // utime, stime, and of the children that it has waited for cutime and cstime.
    if (isOurs(pid)) ticks += fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
  }
  return ticks * microsecondsPerTick
}

export async function parentOf(pid: number): Promise<number> {
  return Number((await readStat(`${pid}`))[1])
}

/** The fields of proc_pid_stat(5) from the third on: the second is a name that may hold anything. */
async function readStat(task: string): Promise<string[]> {
  const text = await readFile(`/proc/${task}/stat`, 'latin1')
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}
