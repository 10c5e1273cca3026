import { randomUUID } from 'node:crypto'
import { open, readdir, readFile, readlink, rm, stat, utimes } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { TollkeeperError } from '../protocol/errors.ts'
import { writeAtomically } from './atomicFile.ts'

/** A folder that only this process writes to. */
export type FolderLock = {
  /** Throws if another process has taken over the folder, which can happen while this process is suspended. */
  check: () => Promise<void>
  release: () => Promise<void>
}

/** A process that holds a lock. */
type Holder = {
  pid: number
  /** The scope of process ids: the boot and the process namespace on Linux, the host's name elsewhere. */
  place: string
  /** When the process started (only on Linux). It distinguishes the process from a later one with the same id. */
  startTime?: string
}

const beatMs = 2_000
/** Time in ms after the last heartbeat until a holder counts as gone, if this machine can't look up its process. */
const staleMs = 10_000
const pollMs = 250

/**
 * Locks a folder for this process, until the lock is released or the process ends in any way.
 *
 * Node has no system locks, so a lock is a file with a number, such as `lock-7`. The process that wrote the highest number holds the folder. A new
 * holder creates the file with the next number, which only one process can do, and then removes the older files. So if two processes find the lock of
 * a dead process, only one of the two can replace it.
 *
 * @throws {TollkeeperError} `store_in_use`
 */
export async function lockFolder(folder: string): Promise<FolderLock> {
  const content = JSON.stringify({ ...(await describeSelf()), id: randomUUID() })
  for (;;) {
    const last = await findLast(folder)
    if (last > 0 && (await isHeld(pathOf(folder, last)))) {
      throw new TollkeeperError(
        'store_in_use',
        `${folder} is in use by another process: give each process a separate folder`,
      )
    }
    const number = last + 1
    if (!(await createFile(pathOf(folder, number), content))) continue
    if ((await findLast(folder)) > number) {
      await rm(pathOf(folder, number), { force: true })
      continue
    }
    for (const older of await findNumbers(folder))
      if (older < number) await rm(pathOf(folder, older), { force: true })
    return keepLock(folder, number)
  }
}

function keepLock(folder: string, number: number): FolderLock {
  const path = pathOf(folder, number)
  let lastBeat = Date.now()
  let isReleased = false

  async function beat(): Promise<void> {
    const now = new Date()
    await utimes(path, now, now)
    lastBeat = now.getTime()
  }
  const timer = setInterval(() => void beat().catch(() => {}), beatMs)
  timer.unref()

  return {
    async check() {
      if (isReleased) throw new TollkeeperError('store_closed', `${folder} is closed`)
      if (Date.now() - lastBeat < staleMs / 2) return
      if ((await findLast(folder)) !== number) {
        throw new TollkeeperError('store_in_use', `${folder} was taken over by another process`)
      }
      await beat()
    },
    async release() {
      if (isReleased) return
      isReleased = true
      clearInterval(timer)
      // Empty the file but don't delete it, so that the next holder gets a higher number.
      if ((await findLast(folder)) === number) await writeAtomically(path, '{}')
    },
  }
}

/** Returns whether the process that wrote a lock still holds it. */
async function isHeld(path: string): Promise<boolean> {
  const seen = await beatOf(path)
  const holder = await readHolder(path)
  if (seen === undefined || holder === 'none') return false
  if (holder !== 'unknown' && holder.place === (await describeSelf()).place) {
    if (!isAlive(holder.pid)) return false
    const startTime = await readStartTime(holder.pid)
    if (startTime !== undefined) return startTime === holder.startTime
  }
  // The holder runs on another machine, or another process may now have the holder's id. Only a new heartbeat shows that the holder is alive.
  for (;;) {
    const latest = await beatOf(path)
    if (latest === undefined) return false
    if (latest !== seen) return true
    if (Date.now() - latest > staleMs) return false
    await delay(pollMs)
  }
}

/** @returns the time of a lock's last heartbeat in Unix milliseconds; undefined if the lock is gone. */
async function beatOf(path: string): Promise<number | undefined> {
  return stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => undefined,
  )
}

/** @returns `none` for a released lock; `unknown` if its process died while writing the lock. */
async function readHolder(path: string): Promise<Holder | 'none' | 'unknown'> {
  const text = await readFile(path, 'utf8').catch(() => '{}')
  try {
    const { pid, place, startTime } = JSON.parse(text)
    if (pid === undefined) return 'none'
    return typeof pid === 'number' && typeof place === 'string' ? { pid, place, startTime } : 'unknown'
  } catch {
    return 'unknown'
  }
}

async function describeSelf(): Promise<Holder> {
  const startTime = await readStartTime(process.pid)
  return { pid: process.pid, place: await readPlace(), ...(startTime !== undefined && { startTime }) }
}

async function readPlace(): Promise<string> {
  try {
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
    return `${boot.trim()} ${await readlink('/proc/self/ns/pid')}`
  } catch {
    return hostname()
  }
}

/** @returns the process's start in ticks after boot; undefined if it can't be read. */
async function readStartTime(pid: number): Promise<string | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined)
  // The second field is the program's name in parentheses, which may itself contain parentheses. The start is the twentieth field after it.
  return text?.slice(text.lastIndexOf(')') + 2).split(' ')[19]
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    // The process exists, but belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** @returns false if the file exists. */
async function createFile(path: string, content: string): Promise<boolean> {
  try {
    const file = await open(path, 'wx', 0o600)
    await file.writeFile(content).finally(() => file.close())
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

async function findNumbers(folder: string): Promise<number[]> {
  return (await readdir(folder)).flatMap((name) => {
    const [, number] = /^lock-(\d+)$/.exec(name) ?? []
    return number === undefined ? [] : [Number(number)]
  })
}

async function findLast(folder: string): Promise<number> {
  return Math.max(0, ...(await findNumbers(folder)))
}

function pathOf(folder: string, number: number): string {
  return join(folder, `lock-${number}`)
}
