import { once } from 'node:events'
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { SavedTab } from '@tollkeeper/sdk/client/tabStore'
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest'
import { openWalletFolder } from './walletFolder.ts'

let folder: string
beforeEach(async () => {
  folder = join(await mkdtemp(join(tmpdir(), 'tollkeeper-wallet-')), 'wallet')
})
afterEach(() => rm(join(folder, '..'), { recursive: true }))

const place = { gatewayUrl: 'https://gateway.example', network: 'base' } as const

async function open(at: Partial<typeof place> | { gatewayUrl: string } = {}) {
  const opened = await openWalletFolder(folder, { ...place, ...at })
  let isOpen = true
  const close = async () => {
    if (isOpen) await opened.close()
    isOpen = false
  }
  onTestFinished(close)
  return { ...opened, close }
}

const hourMs = 3_600_000
const spend = (amount: bigint, at: number, host = 'a.example') => ({ host, amount, at })

test('default: one budget for all that have it open, at the time that a payment names; what is released counts no more', async () => {
  const [one, other] = [await open(), await open()]
  const limits = { daily: 10n, dailyPerHost: 7n }
  const first = await one.spending.reserve(spend(6n, 0), limits)
  expect(await other.spending.reserve(spend(2n, hourMs), limits)).toEqual({
    isReserved: false,
    limit: 'dailyPerHost',
    spent: 6n,
  })
  expect(await other.spending.reserve(spend(5n, hourMs, 'b.example'), limits)).toEqual({
    isReserved: false,
    limit: 'daily',
    spent: 6n,
  })
  expect((await other.spending.reserve(spend(4n, hourMs, 'b.example'), limits)).isReserved).toBe(true)
  if (first.isReserved) await first.release()
  expect(other.spent(hourMs)).toEqual([{ host: 'b.example', amount: 4n, payments: 1n }])
  await one.close()
  await other.close()
  const again = await open()
  expect(again.spent(25 * hourMs - 1)).toHaveLength(1)
  expect(again.spent(25 * hourMs)).toEqual([])
  expect((await again.spending.reserve(spend(10n, 25 * hourMs), { daily: 10n })).isReserved).toBe(true)
})

test('behavior: payments that are counted at the same time never exceed the limit together', async () => {
  await (await open()).close()
  const reserve = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { module, folder, place } = workerData
    import(module).then(async ({ openWalletFolder }) => {
      const { spending, close } = await openWalletFolder(folder, place)
      let reserved = 0
      for (let n = 0; n < 100; n++) {
        const one = await spending.reserve({ host: 'a.example', amount: 1n, at: n }, { daily: 100n })
        if (one.isReserved) reserved += 1
      }
      await close()
      parentPort.postMessage(reserved)
    })`
  const workerData = { module: join(import.meta.dirname, 'walletFolder.ts'), folder, place }
  const reserved = await Promise.all(
    Array.from(
      { length: 3 },
      async () => (await once(new Worker(reserve, { eval: true, workerData }), 'message'))[0],
    ),
  )
  expect(reserved.reduce((sum, one) => sum + one, 0)).toBe(100)
})

test('behavior: a seat is one process’s, with its receipts and tabs, and free once that has gone', async () => {
  const tab = { id: 'tab_1', issuer: 'https://gateway.example/', network: 'base' } as SavedTab
  const first = await open()
  await first.tabs('fetch').save(tab)
  const second = await open()
  expect([first.receiptFile, second.receiptFile].map((path) => path.slice(folder.length))).toEqual([
    '/receipts-1.jsonl',
    '/receipts-2.jsonl',
  ])
  expect(await second.tabs('fetch').load()).toEqual([])
  await first.close()
  const third = await open()
  expect(third.receiptFile).toBe(first.receiptFile)
  expect(await third.tabs('fetch').load()).toEqual([tab])
  expect(await third.tabs('https://mcp.example/').load()).toEqual([])
  await third.tabs('fetch').remove(tab.id)
  expect(await third.tabs('fetch').load()).toEqual([])
})

test('behavior: tabs of another gateway are left alone; the folder is its user’s alone', async () => {
  const tab = { id: 'tab_1', issuer: 'https://gateway.example', network: 'base' } as SavedTab
  const first = await open()
  await first.tabs('fetch').save(tab)
  await first.close()
  const elsewhere = await open({ gatewayUrl: 'https://other.example' })
  expect(await elsewhere.tabs('fetch').load()).toEqual([])
  expect((await stat(folder)).mode & 0o777).toBe(0o700)
})

test('error: a file that is none of ours stops it, before anything is paid', async () => {
  await (await open()).close()
  await writeFile(
    join(folder, 'spending.db'),
    'something else, and long enough to be read as a header. '.repeat(9),
  )
  await expect(open()).rejects.toThrow('file is not a database')
})
