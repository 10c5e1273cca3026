import { once } from 'node:events'
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Worker } from 'node:worker_threads'
import type { SavedPass } from '@tollkeeper/sdk/client/passStore'
import type { SavedTab } from '@tollkeeper/sdk/client/tabStore'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
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

test('default: counts the payments of all processes for 24 hours, except released payments', async () => {
  const [one, other] = [await open(), await open()]
  const limits = { perDay: 10n, perDayAndHost: 7n }
  const first = await one.stores('a').spending.reserve(spend(6n, 0), limits)
  expect(await other.stores('a').spending.reserve(spend(2n, hourMs), limits)).toEqual({
    isReserved: false,
    limit: 'perDayAndHost',
    spent: 6n,
  })
  expect(await other.stores('a').spending.reserve(spend(5n, hourMs, 'b.example'), limits)).toEqual({
    isReserved: false,
    limit: 'perDay',
    spent: 6n,
  })
  expect((await other.stores('a').spending.reserve(spend(4n, hourMs, 'b.example'), limits)).isReserved).toBe(
    true,
  )
  if (first.isReserved) await first.release()
  expect(other.spent(hourMs)).toEqual([{ host: 'b.example', amount: 4n, payments: 1n }])
  await one.close()
  await other.close()
  const again = await open()
  expect(again.spent(25 * hourMs - 1)).toHaveLength(1)
  expect(again.spent(25 * hourMs)).toEqual([])
  expect(
    (await again.stores('a').spending.reserve(spend(10n, 25 * hourMs), { perDay: 10n })).isReserved,
  ).toBe(true)
})

test('behavior: does not exceed the limit if payments are made concurrently', async () => {
  await (await open()).close()
  const reserve = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { module, folder, place } = workerData
    import(module).then(async ({ openWalletFolder }) => {
      const { stores, close } = await openWalletFolder(folder, place)
      const { spending } = stores('a')
      let reserved = 0
      for (let n = 0; n < 100; n++) {
        const one = await spending.reserve({ host: 'a.example', amount: 1n, at: n }, { perDay: 100n })
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

test('behavior: gives each process separate receipts and tabs; when the process has ended, another process continues with both', async () => {
  const tab = { id: 'tab_1', issuer: 'https://gateway.example/', network: 'base' } as SavedTab
  const first = await open()
  await first.stores('fetch').tabs.save(tab)
  const second = await open()
  expect([first.receiptFile, second.receiptFile].map((path) => path.slice(folder.length))).toEqual([
    '/receipts-1.jsonl',
    '/receipts-2.jsonl',
  ])
  expect(await second.stores('fetch').tabs.load()).toEqual([])
  await first.close()
  const third = await open()
  expect(third.receiptFile).toBe(first.receiptFile)
  expect(await third.stores('fetch').tabs.load()).toEqual([tab])
  expect(await third.stores('https://mcp.example/').tabs.load()).toEqual([])
  await third.stores('fetch').tabs.remove(tab.id)
  expect(await third.stores('fetch').tabs.load()).toEqual([])
})

test('behavior: ignores tabs of another gateway, and creates a folder that only its user can read', async () => {
  const tab = { id: 'tab_1', issuer: 'https://gateway.example', network: 'base' } as SavedTab
  const first = await open()
  await first.stores('fetch').tabs.save(tab)
  await first.close()
  const elsewhere = await open({ gatewayUrl: 'https://other.example' })
  expect(await elsewhere.stores('fetch').tabs.load()).toEqual([])
  expect((await stat(folder)).mode & 0o777).toBe(0o700)
})

test('keeps the passes of each client until they are removed, and skips a row that is not JSON', async () => {
  const pass = { id: 'c'.repeat(64), jws: 'a.b.c', expiresAt: 2_000_000_000 } as SavedPass
  const first = await open()
  for (const client of ['fetch', 'https://mcp.example/']) await first.stores(client).passes.save(pass)
  await first.stores('fetch').passes.save({ ...pass, jws: 'd.e.f' })
  await first.close()
  const file = new DatabaseSync(join(folder, 'tabs-1.db'))
  file.exec("insert into pass (id, client, state) values ('0', 'fetch', '{')")
  file.close()

  const again = await open()
  const warn = vi.spyOn(console, 'warn').mockReturnValue()
  onTestFinished(() => warn.mockRestore())
  expect(await again.stores('fetch').passes.load()).toEqual([{ ...pass, jws: 'd.e.f' }])
  expect(warn.mock.calls).toEqual([[expect.stringMatching(/stored pass 0 is not JSON/)]])
  await again.stores('fetch').passes.remove(pass.id)
  expect(await again.stores('fetch').passes.load()).toEqual([])
  expect(await again.stores('https://mcp.example/').passes.load()).toEqual([pass])
})

test('adds the table of passes to a folder of an older version', async () => {
  await (await open()).close()
  const file = new DatabaseSync(join(folder, 'tabs-1.db'))
  file.exec('drop table pass')
  file.close()
  expect(await (await open()).stores('fetch').passes.load()).toEqual([])
})

test('error: rejects a file of another program, before anything is paid', async () => {
  await (await open()).close()
  await writeFile(
    join(folder, 'spending.db'),
    'something else, and long enough to be read as a header. '.repeat(9),
  )
  await expect(open()).rejects.toThrow('file is not a database')
})
