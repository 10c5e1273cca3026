import { readdir, readFile } from 'node:fs/promises'

/** Linux counts a process's time in hundredths of a second. */
const microsecondsPerTick = 10_000

/** CPU time that a process has used so far, in µs; waiting doesn't count. Linux only. */
export async function cpuTime(pid: number): Promise<number> {
  const [, , , , , , , , , , , user = 0, system = 0] = await readStat(`${pid}`)
  return (Number(user) + Number(system)) * microsecondsPerTick
}

/** The same of the process's first thread alone: in Node, the one that runs the event loop. */
export async function cpuTimeOfMainThread(pid: number): Promise<number> {
  const [, , , , , , , , , , , user = 0, system = 0] = await readStat(`${pid}/task/${pid}`)
  return (Number(user) + Number(system)) * microsecondsPerTick
}

/** The same of a process and all its children, those that ended included. */
export async function cpuTimeOfGroup(pid: number): Promise<number> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  let total = 0
  for (const one of pids) {
    const fields = await readStat(`${one}`).catch(() => [])
    const isParent = one === pid
    if (!isParent && fields[1] !== String(pid)) continue
    total += (Number(fields[11]) + Number(fields[12])) * microsecondsPerTick
    if (isParent) total += (Number(fields[13]) + Number(fields[14])) * microsecondsPerTick
  }
  return total
}

export async function parentOf(pid: number): Promise<number> {
  return Number((await readStat(`${pid}`))[1])
}

/** The fields of proc_pid_stat(5) from the third on: the second is a name that may hold anything. */
async function readStat(task: string): Promise<string[]> {
  const text = await readFile(`/proc/${task}/stat`, 'latin1')
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}
