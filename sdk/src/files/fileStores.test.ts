import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import {
  answerJson,
  clientOf,
  errorOf,
  gatewayUrl,
  playProvider,
  serveReceipt,
} from '../../test/playProvider.ts'
import { payloads } from '../../test/signedPayment.ts'
import type { SavedPass } from '../client/passStore.ts'
import type { SavedPayment } from '../client/paymentStore.ts'
import type { SavedTab } from '../client/tabStore.ts'
import { createFileStores, type FileStores } from './fileStores.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'stores-'))
})
const opened: FileStores[] = []
afterEach(async () => {
  for (const stores of opened.splice(0)) await stores.close()
  await rm(folder, { recursive: true, force: true })
})

async function open(): Promise<FileStores> {
  const stores = await createFileStores(folder)
  opened.push(stores)
  return stores
}

/** Runs code in a new process. The code can use `createFileStores` and `folder`, and prints JSON lines. */
function run(code: string): ChildProcess & { lines: AsyncIterator<string> } {
  const module = new URL('./fileStores.ts', import.meta.url).href
  const client = new URL('../client/createClient.ts', import.meta.url).href
  const source = `
    import { createFileStores } from ${JSON.stringify(module)}
    import { createClient } from ${JSON.stringify(client)}
    const folder = ${JSON.stringify(folder)}
    ${code}`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  return Object.assign(child, { lines: createInterface(child.stdout)[Symbol.asyncIterator]() })
}

async function kill(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
}

const tab = { id: 'tab_1', issuer: gatewayUrl, network: 'base', sequence: 1 } as SavedTab
const payment: SavedPayment = {
  id: 'authorizations-0xa-0xb',
  request: 'a'.repeat(64),
  body: 'b'.repeat(64),
  settlesUntil: 2_000_000_000,
  payment: { requestId: 'req_1', network: 'base', amount: '50000', payloads, macaroon: 'AgEA' },
}
const pass: SavedPass = {
  id: 'c'.repeat(64),
  scope: { payer: `0x${'1'.repeat(40)}`, network: 'base', gatewayUrl },
  origin: 'https://api.example',
  route: 'GET https://api.example/feed',
  expiresAt: 2_000_000_000,
  jws: 'a.b.c',
}
const spend = (amount: bigint, at = Date.now(), host = 'a.example') => ({ host, amount, at })

describe('the folder', () => {
  test('keeps sums, tabs, payments and passes until they are removed', async () => {
    const before = await createFileStores(folder)
    await before.tabs.save(tab)
    await before.tabs.save({ ...tab, sequence: 2 })
    await before.payments.save(payment)
    await before.passes.save(pass)
    await before.spending.reserve(spend(6n), {})
    const other = await before.spending.reserve(spend(3n), {})
    if (other.isReserved) await other.release()
    await before.close()
    const after = await open()
    expect(await after.tabs.load()).toEqual([{ ...tab, sequence: 2 }])
    expect(await after.payments.load()).toEqual([payment])
    expect(await after.passes.load()).toEqual([pass])
    expect(await after.spending.check(spend(5n), { perDay: 10n })).toEqual({ limit: 'perDay', spent: 6n })
    expect(await after.spending.check(spend(4n), { perDay: 10n })).toBeUndefined()
    await after.tabs.remove(tab.id)
    await after.payments.remove(payment.id)
    await after.payments.remove('never-saved')
    await after.passes.remove(pass.id)
    expect([await after.tabs.load(), await after.payments.load(), await after.passes.load()]).toEqual([
      [],
      [],
      [],
    ])
  })

  test('is readable only by its owner, and contains no half-written file', async () => {
    const stores = await open()
    await stores.tabs.save(tab)
    await stores.payments.save(payment)
    await stores.passes.save(pass)
    await stores.spending.reserve(spend(1n), {})
    const names = await readdir(folder)
    expect(names.sort()).toEqual([
      'lock-1',
      `pass-${pass.id}.json`,
      'payment-authorizations-0xa-0xb.json',
      'spending.jsonl',
      'tab-tab_1.json',
    ])
    for (const name of names) expect((await stat(join(folder, name))).mode & 0o777, name).toBe(0o600)
    const made = join(folder, 'made')
    await (await createFileStores(made)).close()
    expect((await stat(made)).mode & 0o777).toBe(0o700)
  })

  test('counts spending of the last 24 hours, including that of earlier processes', async () => {
    const now = Date.now()
    const dayMs = 86_400_000
    const before = await createFileStores(folder)
    await before.spending.reserve(spend(6n, now - dayMs - 1), {})
    await before.spending.reserve(spend(3n, now - dayMs + 60_000), {})
    await before.close()
    const after = await open()
    expect(await after.spending.check(spend(8n, now), { perDay: 10n })).toEqual({
      limit: 'perDay',
      spent: 3n,
    })
    expect((await readFile(join(folder, 'spending.jsonl'), 'utf8')).trim().split('\n')).toHaveLength(1)
  })

  test('keeps the file of daily sums short while payments are counted and released, and loses no payment', async () => {
    const stores = await createFileStores(folder)
    await stores.spending.reserve(spend(7n), {})
    const rounds = Array.from({ length: 6_000 }, async () => {
      const one = await stores.spending.reserve(spend(1n), {})
      if (one.isReserved) await one.release()
    })
    await Promise.all(rounds)
    expect((await stores.spending.reserve(spend(2n), {})).isReserved).toBe(true)
    await stores.close()
    const lines = (await readFile(join(folder, 'spending.jsonl'), 'utf8')).trim().split('\n')
    expect(lines.length).toBeLessThan(6_000)
    const after = await open()
    expect(await after.spending.check(spend(1n), { perDay: 9n })).toEqual({ limit: 'perDay', spent: 9n })
  })

  test.each([
    ['spending.jsonl', 'my shopping list'],
    ['spending.jsonl', 'my shopping list\n'],
    ['spending.jsonl', '{"id":"a","at":1,"host":"h","amount":"all of it"}\n'],
  ])('rejects a %s that another program wrote: %j', async (name, text) => {
    await writeFile(join(folder, name), text)
    await expect(createFileStores(folder)).rejects.toMatchObject({ code: 'store_unreadable' })
    expect(await readFile(join(folder, name), 'utf8')).toBe(text)
  })

  test('skips an unreadable pass file, and warns with its name', async () => {
    const stores = await open()
    await stores.passes.save(pass)
    await writeFile(join(folder, 'pass-1.json'), '{"id":')
    const warn = vi.spyOn(console, 'warn').mockReturnValue()
    onTestFinished(() => warn.mockRestore())
    expect(await stores.passes.load()).toEqual([pass])
    expect(warn.mock.calls).toEqual([[expect.stringMatching(/pass-1\.json is not JSON: move it away/)]])
    expect(await readFile(join(folder, 'pass-1.json'), 'utf8')).toBe('{"id":')
  })

  test('keeps a client from signing if a stored payment can’t be read', async () => {
    await writeFile(join(folder, 'payment-1.json'), '{')
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const error = await errorOf(clientOf({ stores: await open() }).request(url))
    expect(error).toMatchObject({ code: 'payment_store_failed', outcome: 'not_charged' })
    expect(error.cause).toMatchObject({ code: 'store_unreadable' })
    expect(paidHeaders).toEqual([])
  })
})

describe('the lock', () => {
  test('prevents the folder from being opened again, by the same process or another process, until it is closed', async () => {
    const first = await createFileStores(folder)
    await expect(createFileStores(folder)).rejects.toMatchObject({ code: 'store_in_use' })
    const other = run(`console.log(await createFileStores(folder).catch(({ code }) => code))`)
    expect((await other.lines.next()).value).toBe('store_in_use')
    await first.close()
    await expect(first.tabs.save(tab)).rejects.toMatchObject({ code: 'store_closed' })
    await open()
  })

  test('is available immediately after its holder was killed', async () => {
    const other = run(`await createFileStores(folder); console.log('open'); setInterval(() => {}, 1000)`)
    await other.lines.next()
    await expect(createFileStores(folder)).rejects.toMatchObject({ code: 'store_in_use' })
    await kill(other)
    await open()
  })

  test('is taken over by only one of many concurrent callers if its holder is dead', async () => {
    await writeFile(join(folder, 'lock-7'), JSON.stringify({ pid: 2 ** 22 + 1, place: 'elsewhere' }))
    const long = new Date(Date.now() - 60_000)
    await utimes(join(folder, 'lock-7'), long, long)
    const openings = await Promise.allSettled(Array.from({ length: 20 }, () => createFileStores(folder)))
    const held = openings.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    expect(held).toHaveLength(1)
    for (const one of openings)
      if (one.status === 'rejected') expect(one.reason).toMatchObject({ code: 'store_in_use' })
    expect((await readdir(folder)).filter((name) => name.startsWith('lock-'))).toHaveLength(1)
    await held[0]?.close()
  })

  test('stays with a holder on another machine that is still alive', async () => {
    const path = join(folder, 'lock-1')
    await writeFile(path, JSON.stringify({ pid: process.pid, place: 'elsewhere' }))
    const beat = setInterval(() => void utimes(path, new Date(), new Date()).catch(() => {}), 50)
    onTestFinished(() => clearInterval(beat))
    await expect(createFileStores(folder)).rejects.toMatchObject({ code: 'store_in_use' })
  })

  test('rejects writes of a process that was suspended while another process took over the folder', async () => {
    const stores = await open()
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 60_000 })
    onTestFinished(() => void vi.useRealTimers())
    await stores.tabs.save(tab)
    vi.setSystemTime(Date.now() + 60_000)
    await writeFile(join(folder, 'lock-2'), JSON.stringify({ pid: 1, place: 'elsewhere' }))
    await expect(stores.tabs.save(tab)).rejects.toMatchObject({ code: 'store_in_use' })
    await expect(stores.spending.reserve(spend(1n), {})).rejects.toMatchObject({ code: 'store_in_use' })
  })
})

describe('a process that is killed', () => {
  test('leaves everything that it saved, and no half-written file', async () => {
    const saving = `
      const stores = await createFileStores(folder)
      const found = await stores.tabs.load()
      console.log(JSON.stringify(Math.max(0, ...found.map(({ sequence }) => sequence))))
      for (let n = found[0]?.sequence ?? 0; ; n++) {
        const sequence = n + 1
        await Promise.all([
          stores.tabs.save({ id: 'tab_1', sequence, lines: Array(200).fill({ split: '0x' + '1'.repeat(64) }) }),
          stores.payments.save({ id: 'p' + (sequence % 3), sequence, settlesUntil: 9e9 }),
          stores.passes.save({ id: 's' + (sequence % 3), sequence, jws: 'x'.repeat(4_000) }),
          stores.spending.reserve({ host: 'a', amount: 1n, at: Date.now() }, {}),
        ])
        console.log(JSON.stringify(sequence))
      }`
    let saved = 0
    for (let round = 0; round < 6; round++) {
      const child = run(saving)
      const found = Number((await child.lines.next()).value)
      expect([saved, saved + 1]).toContain(found)
      // Each round kills the process at another point of the next save.
      for (let n = 0; n <= round; n++) saved = Number((await child.lines.next()).value)
      await kill(child)
      // Also read the lines that the process printed before it was killed.
      for (let line = await child.lines.next(); !line.done; line = await child.lines.next())
        saved = Number(line.value)
    }
    const stores = await open()
    const [last] = await stores.tabs.load()
    expect([saved, saved + 1]).toContain(last?.sequence)
    expect(last?.lines).toHaveLength(200)
    for (const [kind, ids] of [
      ['payments', ['p0', 'p1', 'p2']],
      ['passes', ['s0', 's1', 's2']],
    ] as const) {
      const kept = (await stores[kind].load()) as unknown as { id: string; sequence: number }[]
      expect(kept.map(({ id }) => id).sort()).toEqual(ids)
      for (const { sequence } of kept) expect(sequence).toBeGreaterThan(saved - 3)
    }
    const overrun = await stores.spending.check(spend(1n), { perDay: 0n })
    expect(Number(overrun?.spent)).toBeGreaterThanOrEqual(saved)
    expect((await readdir(folder)).filter((name) => name.endsWith('.tmp'))).toEqual([])
  })

  test('presents the signed payment again after a restart, and stays within its limit', async () => {
    let requests = 0
    const waiting: (() => void)[] = []
    const provider = await playProvider(
      (request, response, attempt) => {
        // The first process is killed while it waits for the response.
        if (attempt === 1) for (const resolve of waiting.splice(0)) resolve()
        else serveReceipt(request, response, attempt)
      },
      (challenge) => ({ ...challenge, requestId: `req_${String(requests++).padStart(32, '0')}` }),
    )
    const paying = `
      const client = createClient({
        gatewayUrl: ${JSON.stringify(gatewayUrl)},
        network: 'base',
        walletPrivateKey: '0x' + '1'.repeat(64),
        limits: { perDay: '0.05' },
        stores: await createFileStores(folder),
        fetch: (input, init) =>
          String(input).startsWith(${JSON.stringify(gatewayUrl)})
            ? Promise.reject(new Error('offline'))
            : fetch(input, init),
      })
      for (const path of ['/a', '/a'])
        console.log(await client.request(${JSON.stringify(provider.url)} + path).then(({ status }) => status, ({ code }) => code))
      process.exit()`
    const shown = new Promise<void>((resolve) => waiting.push(resolve))
    const first = run(paying)
    await shown
    await kill(first)
    expect(provider.paidHeaders).toHaveLength(1)
    const again = run(paying)
    // The budget covers one payment, which is already counted, so another payment is refused.
    expect([(await again.lines.next()).value, (await again.lines.next()).value]).toEqual([
      '200',
      'spending_limit_exceeded',
    ])
    expect(provider.paidHeaders).toHaveLength(2)
    expect(new Set(provider.paidHeaders).size).toBe(1)
  })
})

describe('payments', () => {
  test('are saved before they are sent, and removed when their response is complete', async () => {
    const stores = await open()
    const kept: number[] = []
    const provider = await playProvider(async (request, response, attempt) => {
      kept.push((await stores.payments.load()).length)
      if (attempt === 1) serveReceipt(request, response, attempt)
      else answerJson(response, 500, { error: 'no' })
    })
    const client = clientOf({ stores })
    await client.request(provider.url)
    expect([kept, await stores.payments.load()]).toEqual([[1], []])
    await errorOf(client.request(`${provider.url}/other`))
    expect(kept).toEqual([1, 1])
    // The payment stays saved after a seller's error response, because the payment may be charged anyway.
    const [saved] = await stores.payments.load()
    expect(saved).toMatchObject({ payment: { amount: '50000', network: 'base' } })
    expect(JSON.stringify(saved)).not.toContain(provider.url)
  })

  test('stay saved until the response’s body is read if client.fetch sent them', async () => {
    const stores = await open()
    let end = () => {}
    const provider = await playProvider((_, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' }).write('first, ')
      end = () => response.end('last')
    })
    const response = await clientOf({ stores }).fetch(provider.url)
    expect(await stores.payments.load()).toHaveLength(1)
    end()
    expect(await response.text()).toBe('first, last')
    expect(await stores.payments.load()).toEqual([])
  })

  test('are neither sent nor counted if they can’t be saved', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const stores = await open()
    const save = vi.fn(() => Promise.reject(new Error('the disk is full')))
    const client = clientOf({
      limits: { perDay: '0.05' },
      stores: { ...stores, payments: { ...stores.payments, save } },
    })
    const error = await errorOf(client.request(url))
    expect(error).toMatchObject({ code: 'payment_store_failed', outcome: 'not_charged' })
    expect(paidHeaders).toEqual([])
    expect(await clientOf({ limits: { perDay: '0.05' }, stores }).request(url)).toMatchObject({ status: 200 })
  })
})
