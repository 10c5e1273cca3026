import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { clientOf, playProvider, serveReceipt } from '../../test/playProvider.ts'
import type { DailyLimits, Reservation } from '../client/spending.ts'
import { openSpendingFile, type SpendingFile } from './spendingFile.ts'

let folder: string
let path: string
let open: SpendingFile[] = []
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'spending-'))
  path = join(folder, 'spending.jsonl')
})
afterEach(async () => {
  for (const file of open) await file.close()
  open = []
  await rm(folder, { recursive: true, force: true })
})

async function openFile(): Promise<SpendingFile> {
  const file = await openSpendingFile(path)
  open.push(file)
  return file
}

const spend = (file: SpendingFile, amount: bigint, limits: DailyLimits, at = 0) =>
  file.reserve({ host: 'api.example', amount, at }, limits)
const reserved = (reservations: Reservation[]) => reservations.filter(({ isReserved }) => isReserved).length

test('default: a client’s budget lasts over restarts, and what was given back is there again', async () => {
  const { url, paidHeaders } = await playProvider(serveReceipt)
  const limits = { maxDailyUsdc: '0.10' }
  const first = clientOf({ ...limits, spending: await openFile() })
  await expect(
    clientOf({ ...limits, spending: await openFile(), onPayment: () => false }).request(url),
  ).rejects.toMatchObject({ code: 'payment_declined' })
  await first.request(url)
  const restarted = clientOf({ ...limits, spending: await openFile() })
  await restarted.request(url)
  for (const client of [first, restarted]) {
    await expect(client.request(url)).rejects.toMatchObject({ code: 'spending_limit_exceeded' })
  }
  expect(paidHeaders).toHaveLength(2)
})

test('behavior: of 100 at once through one file, opened twice, as many are counted as there is budget for', async () => {
  const files = [await openFile(), await openFile()] as const
  const reservations = await Promise.all(
    Array.from({ length: 100 }, (_, i) => spend(files[i % 2 === 0 ? 0 : 1], 3n, { daily: 32n })),
  )
  expect(reserved(reservations)).toBe(10)
  expect(await spend(await openFile(), 3n, { daily: 32n })).toEqual({
    isReserved: false,
    limit: 'daily',
    spent: 30n,
  })
  expect(await spend(files[0], 2n, { daily: 32n })).toMatchObject({ isReserved: true })
})

/** A process that spends 1 base unit after the other, and writes a line for each that it may sign. */
function startSpender(limit: number, times: number) {
  const source = `
    import { writeSync } from 'node:fs'
    import { openSpendingFile } from '@tollkeeper/sdk/files'
    const file = await openSpendingFile(${JSON.stringify(path)})
    const spend = () => file.reserve({ host: 'a', amount: 1n, at: Date.now() }, { daily: ${limit}n })
    writeSync(1, 'ready\\n')
    await new Promise((resolve) => process.stdin.once('data', resolve))
    for (let n = 0; n < ${times}; n++) {
      for (const { isReserved } of await Promise.all([spend(), spend(), spend()])) if (isReserved) writeSync(1, 'signed\\n')
    }
    process.exit()`
  const args = ['--conditions=@tollkeeper/source', '--input-type=module', '--eval', source]
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  let output = ''
  child.stdout?.on('data', (text) => {
    output += text
  })
  return {
    child,
    ended: once(child, 'close'),
    isReady: () => output.includes('ready'),
    signed: () => output.split('signed').length - 1,
    go: () => child.stdin?.write('go\n'),
  }
}

test('behavior: two processes never spend the same money, and one that is killed takes none with it', async () => {
  // The one that ends by itself asks for 60 at most: however late the other is scheduled, enough is left for it.
  const spenders = [startSpender(200, 20), startSpender(200, 1_000_000)]
  const [whole, killed] = spenders
  if (!whole || !killed) throw new Error('no spenders')
  for (const { isReady } of spenders) await expect.poll(isReady).toBe(true)
  for (const { go } of spenders) go()
  await expect.poll(killed.signed).toBeGreaterThan(10)
  killed.child.kill('SIGKILL')
  await Promise.all(spenders.map(({ ended }) => ended))
  const signed = whole.signed() + killed.signed()
  const left = await openFile()
  let more = 0
  while ((await spend(left, 1n, { daily: 200n }, Date.now())).isReserved) more++
  expect(signed + more).toBeLessThanOrEqual(200)
  // What the killed one had asked for and never signed is counted all the same: three at a time.
  expect(signed + more).toBeGreaterThanOrEqual(197)
})

test.each([
  ['half a line', (line: string) => line.slice(0, line.length / 2)],
  ['the beginning of one', () => '{"sp'],
  ['zeros, after the power failed', () => '\0'.repeat(40)],
  ['nothing', () => ''],
])('behavior: after a crash left %s, what was written before and comes after counts', async (_, tear) => {
  await spend(await openFile(), 4n, { daily: 10n })
  const written = await readFile(path, 'utf8')
  await appendFile(path, tear(written.trim()))
  const files = [await openFile(), await openFile()] as const
  expect(await spend(files[0], 7n, { daily: 10n })).toEqual({ isReserved: false, limit: 'daily', spent: 4n })
  expect(await spend(files[1], 6n, { daily: 10n })).toMatchObject({ isReserved: true })
  expect(await spend(await openFile(), 1n, { daily: 10n })).toMatchObject({ isReserved: false, spent: 10n })
})

test.each([
  '{"keys":[]}',
  '{"receipt":"a"}\n',
  'a\nb',
  '{"spending":"a"}\n',
  '{"spending":"a","at":0,"host":"a","amount":-1}\n',
  '{"spending":"a","at":0,"host":"a","amount":"1","daily":"x"}\n',
  'x'.repeat(100_000),
])('error: a file that holds something else is left as it is: %.60j', async (left) => {
  await writeFile(path, left)
  await expect(openSpendingFile(path)).rejects.toThrow(/holds something else than payments/)
  expect(await readFile(path, 'utf8')).toBe(left)
})

test('error: a file that is cut, or written by something else, while it is open', async () => {
  const file = await openFile()
  await spend(file, 1n, { daily: 10n })
  await appendFile(path, 'something else\n')
  await expect(spend(file, 1n, { daily: 10n })).rejects.toThrow(/holds something else/)
  await expect(spend(file, 1n, { daily: 10n })).rejects.toThrow(/holds something else/)
  await truncate(path)
  await expect(spend(file, 1n, { daily: 10n })).rejects.toThrow(/lost what was appended/)
})

test('behavior: a file longer than what is read at once', async () => {
  const file = await openFile()
  await Promise.all(Array.from({ length: 2_000 }, () => spend(file, 1n, {})))
  expect((await readFile(path)).length).toBeGreaterThan(2 * 65_536)
  expect(await spend(await openFile(), 1n, { daily: 2_000n })).toMatchObject({
    isReserved: false,
    spent: 2_000n,
  })
})
