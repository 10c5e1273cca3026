import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer, text } from 'node:stream/consumers'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { cliPath } from '../../test/support/cli.ts'
import { devPrivateKey } from '../devstack/chain/accounts.ts'

let folder: string
let server: Server
let url: string
let asked = 0

/** A body with every byte value, which isn't valid UTF-8. */
const binary = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7 + (i >> 8)) & 0xff))
const bodies: Record<string, [type: string, body: Buffer]> = {
  '/image': ['image/png', binary],
  '/text': ['text/plain; charset=latin1', Buffer.from([0x67, 0xe9, 0x0d, 0x0a])],
  '/json': ['application/json', Buffer.from('{ "price": 1.0,\n  "id": 12345678901234567890 }')],
  '/empty': ['text/plain', Buffer.alloc(0)],
}

/** Terms of a seller that uses x402's own middleware: 0.05 USDC on Base. */
const { caip2, usdc, eip712 } = networks.base
const demand = encodePaymentHeader({
  x402Version: 2,
  resource: { url: 'https://tides.example' },
  accepts: [
    {
      scheme: 'exact',
      network: caip2,
      asset: usdc,
      amount: '50000',
      maxTimeoutSeconds: 60,
      extra: eip712,
      payTo: '0x1000000000000000000000000000000000000001',
    },
  ],
})

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-buy-'))
  server = createServer(({ url = '', headers }, response) => {
    asked += 1
    if (url === '/moved') return void response.writeHead(307, { location: '/sold' }).end()
    if (url === '/sold') {
      const isPaid = headers['payment-signature'] !== undefined
      const report = encodePaymentHeader({ success: true, transaction: `0x${'ab'.repeat(32)}` })
      response
        .writeHead(
          isPaid ? 200 : 402,
          isPaid ? { 'payment-response': report } : { 'payment-required': demand },
        )
        .end(isPaid ? 'low tide' : '')
      return
    }
    const [type, body] = bodies[url] ?? [
      'application/problem+json',
      Buffer.from('{"detail":"no such thing"}'),
    ]
    response.writeHead(url in bodies ? 200 : 404, { 'content-type': type }).end(body)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  server.close()
  await rm(folder, { recursive: true })
})

async function buy(...args: string[]) {
  const { PATH, NODE_COMPILE_CACHE } = process.env
  const env = { PATH, NODE_COMPILE_CACHE, NO_COLOR: '1', WALLET_PRIVATE_KEY: devPrivateKey(3) }
  const child = spawn(process.execPath, [cliPath, 'buy', ...args], {
    cwd: folder,
    env: { ...env, NETWORK: 'base' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [stdout, stderr, [status]] = await Promise.all([
    buffer(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ])
  return { status, stdout, stderr }
}

describe('tollkeeper buy', () => {
  test.each(Object.keys(bodies))('default: writes %s byte for byte', async (path) => {
    const { status, stdout, stderr } = await buy(url + path)
    expect([status, stderr]).toEqual([0, ''])
    expect(stdout.equals(bodies[path]?.[1] as Buffer)).toBe(true)
  })

  test.each(['-o', '--output'])(
    'args: %s writes the response to a file, and replaces an existing file',
    async (flag) => {
      await writeFile(join(folder, 'image.png'), Buffer.alloc(200_000))
      const { status, stdout } = await buy(`${url}/image`, flag, 'image.png')
      expect([status, stdout.length]).toEqual([0, 0])
      expect((await readFile(join(folder, 'image.png'))).equals(binary)).toBe(true)
    },
  )

  test('error: sends no request if the file cannot be written, and reports the file', async () => {
    const before = asked
    const { status, stderr } = await buy(`${url}/image`, '-o', 'nowhere/image.png')
    expect([status, stderr]).toEqual([2, expect.stringMatching(/--output: ENOENT.*\(unwritable_file\)/)])
    expect(asked).toBe(before)
  })

  test('default: pays a plain x402 seller if the price is within --max, and prints the transaction that the seller reports', async () => {
    const { status, stdout, stderr } = await buy(`${url}/sold`)
    expect([status, stdout.toString()]).toEqual([0, 'low tide'])
    expect(stderr).toBe(`paid: to an x402 seller, transaction 0x${'ab'.repeat(32)}\n`)
    const refused = await buy(`${url}/sold`, '--max', '0.049')
    expect([refused.status, refused.stdout.length, refused.stderr]).toEqual([
      2,
      0,
      expect.stringMatching(/0\.05.*\(\w+\)\n$/),
    ])
  })

  test('follows a redirect, and writes the response of the new URL', async () => {
    const { status, stdout, stderr } = await buy(`${url}/moved`)
    expect([status, stdout.toString()]).toEqual([0, 'low tide'])
    expect(stderr).toMatch(/^paid: to an x402 seller/)
  })

  test('error: writes nothing to standard output or files if the request fails', async () => {
    const files = await readdir(folder)
    const { status, stdout, stderr } = await buy(`${url}/nothing`, '-o', 'new.png')
    expect([status, stdout.length]).toEqual([2, 0])
    expect(stderr).toMatch(/status 404: no such thing/)
    expect(await readdir(folder)).toEqual(files)
    expect((await buy('forecast')).stderr).toMatch(
      /<url>: expected an http\(s\) URL like .*, got "forecast" \(invalid_flags\)/,
    )
  })
})
