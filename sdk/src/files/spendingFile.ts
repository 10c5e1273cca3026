import { randomUUID } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import {
  createDailySums,
  type DailyLimits,
  type Overrun,
  type Spending,
  type SpendingStore,
} from '../client/spending.ts'

/** A file that a budget is counted in. Fits the option `spending` as it is. */
export type SpendingFile = SpendingStore & { close: () => Promise<void> }

/** What the lines begin with. */
const starts = ['{"spending":"', '{"released":"']

const lineBreak = 10
const chunkBytes = 65_536

type Claim = Spending & { spending: string; limits: DailyLimits }
type Line = Claim | { released: string }

/**
 * Opens a file in which a budget is counted, so that it lasts over restarts and is shared by processes of one machine.
 *
 * The file only grows, and its order decides: a process appends what it wants to spend, reads what stands before, and pays
 * only if all of that leaves room. All processes read the same verdict from the same lines, so none needs a lock that a crash
 * would leave behind. A line that a crash cut short was never paid for, and counts nothing.
 *
 * @param path of the file, on a local disk: a network's file system may not append in one step. It is made where there is
 * none. Delete it only while nobody has it open, and a day after its last line: sooner, what was spent would be forgotten.
 * @throws Error where the file holds something else.
 * @example
 * import { createClient } from '@tollkeeper/sdk'
 * import { openSpendingFile } from '@tollkeeper/sdk/files'
 *
 * export async function createBudgetedClient() {
 *   return createClient({
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     maxDailyUsdc: '5',
 *     spending: await openSpendingFile('spending.jsonl'),
 *   })
 * }
 */
export async function openSpendingFile(path: string): Promise<SpendingFile> {
  const file = await open(path, 'a+')
  const readVerdicts = createReader(file, path)
  try {
    await syncFolder(path)
    await readVerdicts()
  } catch (error) {
    await file.close()
    throw error
  }

  let waiting: string[] = []
  let coming: Promise<Map<string, Overrun | undefined>> | null = null
  let underWay: Promise<unknown> = Promise.resolve()

  /** What was asked for while the write before it was under way goes to the disk together. */
  async function write(): Promise<Map<string, Overrun | undefined>> {
    // The break in front ends what a crash may have left of a line.
    const bytes = Buffer.from(waiting.map((line) => `\n${line}\n`).join(''))
    waiting = []
    underWay = coming ?? underWay
    coming = null
    // In one step, or other processes' lines could come between.
    const { bytesWritten } = await file.write(bytes)
    if (bytesWritten < bytes.length) throw new Error(`${path} took only part of what was written`)
    await file.datasync()
    return readVerdicts()
  }

  function append(line: object): Promise<Map<string, Overrun | undefined>> {
    waiting.push(JSON.stringify(line))
    coming ??= underWay.catch(() => {}).then(write)
    return coming
  }

  return {
    async reserve({ at, host, amount }, { daily, dailyPerHost }) {
      const id = randomUUID()
      const verdicts = await append({
        ...{ spending: id, at, host, amount: amount.toString() },
        ...{ daily: daily?.toString(), dailyPerHost: dailyPerHost?.toString() },
      })
      if (!verdicts.has(id)) throw new Error(`${path} lost what was appended to it`)
      const overrun = verdicts.get(id)
      if (overrun) return { isReserved: false, ...overrun }
      return {
        isReserved: true,
        release: async () => {
          await append({ released: id })
        },
      }
    },
    async close() {
      await (coming ?? underWay).catch(() => {})
      await file.close()
    },
  }
}

/** Reads the lines that came since the last time, and tells the verdicts on what they ask for. */
function createReader(file: FileHandle, path: string) {
  const sums = createDailySums()
  const chunk = Buffer.alloc(chunkBytes)
  let position = 0

  return async function readVerdicts(): Promise<Map<string, Overrun | undefined>> {
    const verdicts = new Map<string, Overrun | undefined>()
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, chunkBytes, position)
      const end = chunk.subarray(0, bytesRead).lastIndexOf(lineBreak) + 1
      // Of a line that is still being written, or that a crash cut short.
      const rest = chunk.toString('utf8', end, bytesRead)
      if (!isOurs(rest) || (end === 0 && bytesRead === chunkBytes)) throw somethingElse(path, rest)
      if (end === 0) return verdicts
      for (const text of chunk.toString('utf8', 0, end).split('\n')) {
        const line = parseLine(text, path)
        if (!line) continue
        if ('released' in line) sums.release(line.released)
        else verdicts.set(line.spending, sums.claim(line.spending, line, line.limits))
      }
      position += end
    }
  }
}

/** Whether a text is a line of ours, or how one begins. */
function isOurs(text: string): boolean {
  // A file system may fill with zeros what was not written before the power failed.
  return /^\0*$/.test(text) || starts.some((start) => text.startsWith(start) || start.startsWith(text))
}

/** @returns undefined for what a crash left of a line. */
function parseLine(text: string, path: string): Line | undefined {
  if (!isOurs(text)) throw somethingElse(path, text)
  let line: Record<string, unknown>
  try {
    line = JSON.parse(text)
  } catch {
    return undefined
  }
  if (typeof line.released === 'string') return { released: line.released }
  const { spending, at, host, amount, daily, dailyPerHost } = line
  if (typeof spending !== 'string' || typeof at !== 'number' || typeof host !== 'string') {
    throw somethingElse(path, text)
  }
  const limits = {
    ...(daily !== undefined && { daily: readAmount(daily) }),
    ...(dailyPerHost !== undefined && { dailyPerHost: readAmount(dailyPerHost) }),
  }
  return { spending, at, host, amount: readAmount(amount), limits }

  function readAmount(value: unknown): bigint {
    if (typeof value !== 'string' || !/^\d+$/.test(value)) throw somethingElse(path, text)
    return BigInt(value)
  }
}

function somethingElse(path: string, text: string): Error {
  return new Error(`${path} holds something else than payments: ${JSON.stringify(text.slice(0, 60))}`)
}

/** Makes a new file's name outlast a crash of the machine, where the system can. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(dirname(path), 'r').catch(() => undefined)
  await folder?.sync().catch(() => {})
  await folder?.close()
}
