import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runCliHere } from '../../../test/support/cli.ts'
import { seedPayment, seedSettlement } from '../../../test/support/seedPayments.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway)
let folder: string
let env: Record<string, string>
let close: () => Promise<unknown>

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-books-'))
  const server = serve({ fetch: gateway.app.fetch, hostname: '127.0.0.1', port: 0 })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  close = () => {
    server.close()
    return once(server, 'close')
  }
  env = {
    TOLLKEEPER_GATEWAY_URL: `http://127.0.0.1:${port}`,
    TOLLKEEPER_API_KEY: shop.key,
    TOLLKEEPER_PROVIDER_ID: shop.providerId,
  }
  const payment = await seedPayment(gateway.database, {
    provider: { ...shop, endpointIds: [shop.endpointId] },
    acceptedAt: new Date('2026-04-10T10:00:00Z'),
  })
  const blockTime = Date.UTC(2026, 3, 10, 10, 5) / 1000
  await seedSettlement(gateway.database, payment, { blockNumber: 7_000, blockTime })
})
afterAll(async () => {
  await close()
  await rm(folder, { recursive: true })
})

const run = (...args: string[]) => runCliHere(args, { cwd: folder, env })

test('behavior: writes the bookkeeping of a month to a file, and prints whether the bookkeeping is preliminary or final', async () => {
  const { status, stdout, stderr } = await run('bookkeeping', '--month', '2026-04', '--file', 'april.csv')
  expect([status, stdout]).toEqual([0, ''])
  expect(stderr).toBe(
    'Bookkeeping of 2026-04 in april.csv: preliminary. Export it again once the month has ended and all of it is final.\n',
  )
  const lines = (await readFile(join(folder, 'april.csv'), 'utf8')).trimEnd().split('\r\n')
  expect(lines).toHaveLength(3)
  expect(lines[1]).toMatch(/^2026-04-000001,2026-04-10,.*,0\.050000,0\.002500,0\.047500,USDC/)
  expect(lines[2]).toMatch(/^total,/)
})

test('behavior: shows the fees of a month in three lines, as JSON, or as a page', async () => {
  const { status, stdout } = await run('fee-document', '--month', '2026-04')
  expect(status).toBe(0)
  expect(stdout).toMatch(/^Fees of 2026-04 so far \(preliminary\)\ndocument/)
  expect(stdout).toMatch(
    /F-2026-04-localhost-\w{8} +localhost +1 +0\.050000 +0\.050000 +0\.002500 +0\.047500/,
  )
  const { stdout: json } = await run('fee-document', '--month', '2026-04', '--json')
  expect(JSON.parse(json)).toMatchObject({ documents: [{ fee_usdc: '0.002500' }] })
  expect((await run('fee-document', '--month', '2026-04', '--file', 'fees.html')).status).toBe(0)
  expect(await readFile(join(folder, 'fees.html'), 'utf8')).toMatch(/^<!doctype html>/)
  expect((await run('fee-document', '--month', '2026-03')).stdout).toContain('No fees were booked.')
})

test('behavior: runs the commands of docs/bookkeeping.md', async () => {
  const docs = await readFile(new URL('../../../docs/bookkeeping.md', import.meta.url), 'utf8')
  const [, block = ''] = /```sh\n(.*?)```/s.exec(docs) ?? []
  const commands = block.trim().split('\n')
  expect(commands).toHaveLength(4)
  for (const command of commands) {
    const [start, ...args] = command.replace('npx --no-install tollkeeper', 'tollkeeper').split(' ')
    expect([start, (await run(...args)).status]).toEqual(['tollkeeper', 0])
  }
})

test.each([
  [['bookkeeping'], /--month/],
  [['bookkeeping', '--month', 'April'], /--month: expected a month like 2026-11/],
  [['bookkeeping', '--month', '2199-01'], /has not begun \(invalid_date_range\)/],
  [
    ['fee-document', '--month', '2026-04', '--file', 'nowhere/fees.html'],
    /can't be written \(unreadable_file\)/,
  ],
])('error: rejects %j with exit status 2', async (args, message) => {
  const { status, stderr } = await run(...args)
  expect([status, stderr]).toEqual([2, expect.stringMatching(message)])
})
