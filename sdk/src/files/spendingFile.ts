import { readFile } from 'node:fs/promises'
import { createDailySums, dayMs, type Spending, type SpendingStore } from '../client/spending.ts'
import { TollkeeperError } from '../protocol/errors.ts'
import { writeAtomically } from './atomicFile.ts'
import { openJsonLinesFile } from './jsonLinesFile.ts'

/** A line of the file: a payment that counts, or the id of a payment that no longer counts. */
type Line = { id: string; at: number; host: string; amount: string } | { released: string }

/** The text with which each line starts. */
const lineStart = '{"'

/** When the file has this many more lines than payments that count, it is rewritten. */
const maxSpareLines = 10_000

/**
 * Opens a file that counts daily sums, as JSON Lines. A payment is on disk before it is signed.
 *
 * @param check called before each write. It throws if this process must not write.
 */
export async function openSpendingFile(
  path: string,
  check: () => Promise<void>,
): Promise<SpendingStore & { close: () => Promise<void> }> {
  const sums = createDailySums()
  for (const [id, spending] of await readCounted(path, Date.now())) sums.claim(id, spending, {})
  await writeCounted(path, sums.counted())
  let file = await openJsonLinesFile(path, lineStart, 0o600)
  let spare = 0
  let ready: Promise<void> = Promise.resolve()
  // Start this process's ids with its start time, because the file may contain ids from earlier processes.
  const prefix = Date.now().toString(36)
  let ids = 0

  /** Removes the lines of payments that no longer count. Other calls wait until it is done. */
  async function compact(): Promise<void> {
    await file.close()
    try {
      await writeCounted(path, sums.counted())
    } finally {
      file = await openJsonLinesFile(path, lineStart, 0o600)
    }
  }

  async function append(line: Line): Promise<void> {
    await file.append(JSON.stringify(line))
    spare += 1
    if (spare <= maxSpareLines + sums.counted().size) return
    spare = 0
    // If the rewrite fails, the longer file is still valid.
    ready = compact().catch(() => {})
  }

  return {
    async check(spending, limits) {
      return sums.findOverrun(spending, limits)
    },
    async reserve(spending, limits) {
      await check()
      await ready
      const id = `${prefix}-${ids++}`
      const overrun = sums.claim(id, spending, limits)
      if (overrun) return { isReserved: false, ...overrun }
      const { at, host, amount } = spending
      try {
        await append({ id, at, host, amount: amount.toString() })
      } catch (error) {
        sums.release(id)
        throw error
      }
      return {
        isReserved: true,
        release: async () => {
          await check()
          await ready
          await append({ released: id })
          sums.release(id)
        },
      }
    },
    async close() {
      await ready
      await file.close()
    },
  }
}

/** Reads the payments that still count. Ignores a last line that a crash cut off. */
async function readCounted(path: string, now: number): Promise<Map<string, Spending>> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return ''
    throw error
  })
  const counted = new Map<string, Spending>()
  const lines = text.split('\n')
  const torn = lines.pop() ?? ''
  if (!lineStart.startsWith(torn.slice(0, lineStart.length))) throw unreadable(path)
  for (const line of lines.map((one) => parseLine(one, path))) {
    if ('released' in line) counted.delete(line.released)
    else if (line.at + dayMs > now)
      counted.set(line.id, { at: line.at, host: line.host, amount: BigInt(line.amount) })
  }
  return counted
}

function parseLine(text: string, path: string): Line {
  try {
    const line = JSON.parse(text) as Line
    if ('released' in line || (/^\d+$/.test(line.amount) && Number.isFinite(line.at))) return line
  } catch {
    // The error is thrown below.
  }
  throw unreadable(path)
}

function unreadable(path: string): TollkeeperError {
  return new TollkeeperError(
    'store_unreadable',
    `${path} has a line that isn't a payment: move the file away, or restore it`,
  )
}

async function writeCounted(path: string, counted: ReadonlyMap<string, Spending>): Promise<void> {
  const lines = [...counted].map(([id, { at, host, amount }]) =>
    JSON.stringify({ id, at, host, amount: amount.toString() }),
  )
  await writeAtomically(path, lines.map((line) => `${line}\n`).join(''))
}
