import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer, text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { cliPath } from '../../test/support/cli.ts'
import { devPrivateKey } from '../devstack/chain/accounts.ts'

let folder: string
let server: Server
let url: string
let asked = 0

/** All bytes, which aren't valid UTF-8. */
const binary = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7 + (i >> 8)) & 0xff))
const bodies: Record<string, [type: string, body: Buffer]> = {
  '/image': ['image/png', binary],
  '/text': ['text/plain; charset=latin1', Buffer.from([0x67, 0xe9, 0x0d, 0x0a])],
  '/json': ['application/json', Buffer.from('{ "price": 1.0,\n  "id": 12345678901234567890 }')],
  '/empty': ['text/plain', Buffer.alloc(0)],
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-buy-'))
  server = createServer(({ url = '' }, response) => {
    asked += 1
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
  test.each(Object.keys(bodies))('default: %s comes out byte for byte', async (path) => {
    const { status, stdout, stderr } = await buy(url + path)
    expect([status, stderr]).toEqual([0, ''])
    expect(stdout.equals(bodies[path]?.[1] as Buffer)).toBe(true)
  })

  test.each(['-o', '--output'])('args: %s writes it to a file, and replaces what was there', async (flag) => {
    await writeFile(join(folder, 'image.png'), Buffer.alloc(200_000))
    const { status, stdout } = await buy(`${url}/image`, flag, 'image.png')
    expect([status, stdout.length]).toEqual([0, 0])
    expect((await readFile(join(folder, 'image.png'))).equals(binary)).toBe(true)
  })

  test('error: a file that cannot be written is told before anything is asked for', async () => {
    const before = asked
    const { status, stderr } = await buy(`${url}/image`, '-o', 'nowhere/image.png')
    expect([status, stderr]).toEqual([2, expect.stringMatching(/--output: ENOENT.*\(unwritable_file\)/)])
    expect(asked).toBe(before)
  })

  test('error: what failed leaves standard output and files alone', async () => {
    const files = await readdir(folder)
    const { status, stdout, stderr } = await buy(`${url}/nothing`, '-o', 'new.png')
    expect([status, stdout.length]).toEqual([2, 0])
    expect(stderr).toMatch(/status 404: no such thing/)
    expect(await readdir(folder)).toEqual(files)
    expect((await buy('forecast')).stderr).toMatch(/expected an http\(s\) URL, got forecast \(invalid_url\)/)
  })
})
