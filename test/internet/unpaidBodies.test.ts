import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { testGatewaySettings } from '../support/gateway.ts'
import { sellerKinds, useSellers } from './sellers.ts'

// A large body without a payment. The response must arrive although the server doesn't read the body.

const sellers = useSellers()
const upstream = { ...testGatewaySettings.upstream, maxBodyBytes: 10_485_760 }
const run = promisify(execFile)
const size = 5_000_000
let folder = ''
let file = ''

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'unpaid-'))
  file = join(folder, 'body')
  await writeFile(file, Buffer.alloc(size, 'x'))
})
afterAll(async () => {
  if (folder !== '') await rm(folder, { recursive: true })
})

async function byCurl(url: string, ...flags: string[]): Promise<number> {
  const given = ['-sS', '-o', '/dev/null', '-w', '%{http_code}', '--data-binary', `@${file}`, ...flags, url]
  return Number((await run('curl', given)).stdout)
}

/** Sends the whole request body before reading any of the response, as simple clients do. */
async function byWriter(url: string, pauseMs: number, head = ''): Promise<number> {
  const { hostname, port, pathname } = new URL(url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  socket.write(`POST ${pathname} HTTP/1.1\r\nHost: ${hostname}\r\nContent-Length: ${size}\r\n${head}\r\n`)
  const chunk = Buffer.alloc(size / 20, 'x')
  for (let sent = 0; sent < size; sent += chunk.length) {
    if (!socket.write(chunk)) await once(socket, 'drain')
    await sleep(pauseMs)
  }
  socket.end()
  return Number((await text(socket)).split(' ')[1])
}

const clients: Record<string, (url: string) => Promise<number>> = {
  undici: async (url) => (await fetch(url, { method: 'POST', body: Buffer.alloc(size) })).status,
  curl: (url) => byCurl(url),
  'curl without Expect': (url) => byCurl(url, '-H', 'Expect:'),
  'curl of HTTP/1.0': (url) => byCurl(url, '--http1.0'),
  'curl on a slow link': (url) => byCurl(url, '-H', 'Expect:', '--limit-rate', '3M'),
  'a client that reads last': (url) => byWriter(url, 1),
  'a slow client that reads last': (url) => byWriter(url, 100),
  'a client that closes': (url) => byWriter(url, 1, 'Connection: close\r\n'),
  'a slow client that closes': (url) => byWriter(url, 100, 'Connection: close\r\n'),
}

test.each(sellerKinds)('behavior: every client receives the 402 of a seller with %s', async (kind) => {
  sellers.restart({ upstream })
  const seller = await sellers.open(kind)
  const asked = Object.entries(clients).map(async ([client, ask]) => [
    client,
    await ask(`${seller.url}/maps`),
  ])
  expect(await Promise.all(asked)).toEqual(Object.keys(clients).map((client) => [client, 402]))
  expect(seller.served).toHaveLength(0)
})

test('behavior: every client receives the gateway’s 413 for a body over its proxy’s limit', async () => {
  sellers.restart({ upstream: { ...upstream, maxBodyBytes: size - 1 } })
  const seller = await sellers.open('proxy')
  const asked = Object.entries(clients).map(async ([client, ask]) => [
    client,
    await ask(`${seller.url}/maps`),
  ])
  expect(await Promise.all(asked)).toEqual(Object.keys(clients).map((client) => [client, 413]))
})
