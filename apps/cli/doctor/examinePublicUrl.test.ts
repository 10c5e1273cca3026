import { once } from 'node:events'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import { type ReceiptKeyFile, rotateReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { reservePort } from '@tollkeeper/runtime/port'
import { describe, expect, onTestFinished, test } from 'vitest'
import { startTlsProxy, trustAuthority } from '../../../test/support/tlsProxy.ts'
import { useGateway } from '../../../test/support/useGateway.ts'
import { examinePublicUrl, type PublicUrlOptions } from './examinePublicUrl.ts'
import { examineReceiptKeys, readLocalKeys } from './examineReceiptKeys.ts'

const gateway = useGateway()

/** Serves a gateway that knows its public address, behind TLS. */
async function startFront() {
  const port = await reservePort()
  const proxy = await startTlsProxy(`http://127.0.0.1:${port}`)
  onTestFinished(proxy.close)
  const url = proxy.url.replace('127.0.0.1', 'localhost')
  const server = serve({ fetch: gateway.another({ issuer: url }).fetch, hostname: '127.0.0.1', port })
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { keys } = (await (
    await fetch(`http://127.0.0.1:${port}/.well-known/jwks.json`)
  ).json()) as ReceiptKeyFile
  return { url, plain: `http://127.0.0.1:${port}`, kids: keys.map(({ kid }) => kid) }
}

/** Serves something that isn't a gateway. */
async function startServer(answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** With these options, the check treats every address as reachable from the internet. */
const outside: PublicUrlOptions = { isPublic: () => true }
const look = async (url: string, kids: readonly string[] | null = null, options: PublicUrlOptions = {}) =>
  (await examinePublicUrl({ PUBLIC_URL: url }, kids, options)).check

describe('the public URL', () => {
  test('default: accepts a gateway that uses https and publishes the receipt keys of this environment', async () => {
    onTestFinished(await trustAuthority())
    const { url, kids } = await startFront()
    const check = await look(url, kids, outside)
    expect(check).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(
        /this gateway answers.*certificate valid for \d+ days, as seen from this host$/,
      ),
    })
    expect((await look(url, null, outside)).found).toMatch(
      /a gateway answers \(no receipt keys here to compare\)/,
    )
  })

  test('behavior: warns of a private address, of http at a private address, and of a certificate that expires soon', async () => {
    onTestFinished(await trustAuthority())
    const { url, kids } = await startFront()
    expect(await look(url, kids)).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/^localhost resolves to (127\.0\.0\.1|::1), a private address; /),
    })
    const late = Date.parse('2126-10-20T00:00:00Z')
    expect(await look(url, kids, { ...outside, now: () => late })).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/^its certificate expires in 9 days/),
      advice: expect.stringMatching(/renewal/),
    })
    const port = await reservePort()
    const own = `http://127.0.0.1:${port}`
    const server = serve({ fetch: gateway.another({ issuer: own }).fetch, hostname: '127.0.0.1', port })
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    expect(await look(own)).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/private address; http; /),
    })
  })

  test('error: reports a certificate that buyers reject', async () => {
    const { url, kids } = await startFront()
    expect(await look(url, kids, outside)).toMatchObject({
      status: 'fail',
      advice: expect.stringMatching(/from a public authority/),
    })
  })

  test('error: distinguishes another gateway, a gateway with another URL, other servers, and redirects', async () => {
    onTestFinished(await trustAuthority())
    const { url, plain } = await startFront()
    expect(await look(url, ['receipt-other'], outside)).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/answers with other receipt keys \(\S+\)/),
    })
    expect(await look(plain)).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/calls itself https:\/\/localhost:/),
    })
    const other = await startServer((_, response) => void response.end('<html>'))
    expect(await look(other)).toMatchObject({
      found: expect.stringMatching(/answers 200, and not as a gateway/),
    })
    const away = await startServer((_, response) => {
      response.writeHead(308, { location: 'https://gateway.example/' }).end()
    })
    expect(await look(away)).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/redirects to https:\/\/gateway\.example\//),
    })
    const endless = await startServer((_, response) => {
      const part = 'x'.repeat(50_000)
      const more = () => void (response.writable && response.write(part, more))
      more()
    })
    expect(await look(endless)).toMatchObject({ found: expect.stringMatching(/more than 200000 bytes/) })
  })

  test('error: reports http at a public address, names that do not resolve, and addresses without a server', async () => {
    expect(await look('http://127.0.0.1:1', null, outside)).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/^http: anyone on the network path/),
    })
    const none = async () => {
      throw Object.assign(new Error('getaddrinfo ENOTFOUND gateway.example'), { code: 'ENOTFOUND' })
    }
    expect(await look('https://gateway.example', null, { resolve: none })).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/^gateway\.example doesn't resolve: .*ENOTFOUND/),
    })
    const port = await reservePort()
    expect(await look(`http://127.0.0.1:${port}`)).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/no answer: .*ECONNREFUSED/),
    })
    const { check } = await examinePublicUrl({ PUBLIC_URL: 'gateway' }, null)
    expect(check).toMatchObject({ status: 'fail', found: expect.stringMatching(/^PUBLIC_URL: expected/) })
  })

  test('behavior: times out on a server and on a name server that never respond', async () => {
    const silent = await startServer(() => {})
    const never = () => new Promise<never>(() => {})
    const began = performance.now()
    const [one, other] = await Promise.all([
      look(silent, null, { timeoutMs: 200 }),
      look('https://gateway.example', null, { resolve: never, timeoutMs: 200 }),
    ])
    expect(performance.now() - began).toBeLessThan(5_000)
    expect([one.status, other.status]).toEqual(['fail', 'fail'])
    expect(other.found).toMatch(/no response within 0.2 s/)
  })
})

describe('receipt keys', () => {
  async function write(file: ReceiptKeyFile | string, mode = 0o400): Promise<NodeJS.ProcessEnv> {
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-keys-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const path = join(folder, 'keys.json')
    await writeFile(path, typeof file === 'string' ? file : JSON.stringify(file))
    await chmod(path, mode)
    return { RECEIPT_KEY_FILE: path }
  }
  const publish = (file: ReceiptKeyFile) => ({
    keys: file.keys.map((key) => ({ ...key, use: 'sig', alg: 'ES256' }) as const),
  })
  const second = 1_800_000_000
  const first = rotateReceiptKeys(undefined, second)
  const rotated = rotateReceiptKeys(first, second)
  const [next, current] = rotated.keys.map(({ kid }) => kid)

  test('default: accepts a file whose current and next signing keys are published', async () => {
    const local = await readLocalKeys(await write(rotated))
    expect(examineReceiptKeys(local, publish(rotated), second)).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(
        new RegExp(
          `^${current} signs; .* has 2 public keys, ${next} signs from \\S+Z, and PUBLIC_URL publishes all of them$`,
        ),
      ),
    })
    expect(examineReceiptKeys(local, undefined, second).status).toBe('ok')
  })

  test('behavior: warns if the next key is not published, and fails shortly before that key signs', async () => {
    const local = await readLocalKeys(await write(rotated))
    const check = (at: number) => examineReceiptKeys(local, publish(first), at)
    expect(check(second)).toMatchObject({
      status: 'warn',
      found: expect.stringContaining(`doesn't publish ${next}`),
    })
    expect(check(second + 400)).toMatchObject({
      status: 'fail',
      advice: expect.stringMatching(/RECEIPT_KEY_FILE/),
    })
  })

  test('error: fails if the current signing key is not published', async () => {
    const local = await readLocalKeys(await write(first))
    const other = publish(rotateReceiptKeys(undefined))
    expect(examineReceiptKeys(local, other)).toMatchObject({
      status: 'fail',
      found: expect.stringContaining(`doesn't publish ${current}`),
    })
  })

  test('behavior: warns if other users of this host can read the key file', async () => {
    for (const mode of [0o440, 0o404]) {
      const local = await readLocalKeys(await write(first, mode))
      expect(examineReceiptKeys(local, undefined)).toMatchObject({
        status: 'warn',
        advice: expect.stringMatching(/^chmod 400 /),
      })
    }
  })

  test('error: reports a configured file that is missing or has no keys, but skips a file that is not configured', async () => {
    const check = async (env: NodeJS.ProcessEnv) => examineReceiptKeys(await readLocalKeys(env), undefined)
    expect(await check({ RECEIPT_KEY_FILE: '/none/keys.json' })).toMatchObject({ status: 'fail' })
    expect(await check(await write('{"keys":[]}'))).toMatchObject({ status: 'fail' })
    const retired = { keys: first.keys.map(({ d: _, ...key }) => key) }
    expect(await check(await write(retired))).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/none of its keys has a private part/),
    })
  })
})
