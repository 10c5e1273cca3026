import { readdir, readFile } from 'node:fs/promises'

/** Linux counts a process's CPU time in hundredths of a second. */
const microsecondsPerTick = 10_000

/** Returns the CPU time that a process has used so far, in µs, without waiting time. Linux only. */
export async function cpuTime(pid: number, task = `${pid}`): Promise<number> {
  const [, , , , , , , , , , , user = 0, system = 0] = await readStat(task)
  return (Number(user) + Number(system)) * microsecondsPerTick
}

/** Returns the CPU time of a process's first thread, which runs the event loop in Node. */
export const cpuTimeOfMainThread = (pid: number) => cpuTime(pid, `${pid}/task/${pid}`)

/** Returns the CPU time of a process and of everything that it started, including processes that have ended. */
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
    // The fields are utime and stime of the process, and cutime and cstime of the ended children for which it has waited.
    if (isOurs(pid)) ticks += fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
  }
  return ticks * microsecondsPerTick
}

export async function parentOf(pid: number): Promise<number> {
  return Number((await readStat(`${pid}`))[1])
}

/** Reads the fields of proc_pid_stat(5), starting with the third. The second is a name, which may contain any character. */
async function readStat(task: string): Promise<string[]> {
  const text = await readFile(`/proc/${task}/stat`, 'latin1')
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}
