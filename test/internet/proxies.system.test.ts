import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { reservePort } from '@tollkeeper/runtime/port'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { describe, expect, onTestFinished, test } from 'vitest'
import { testGatewaySettings } from '../support/gateway.ts'
import { killAll, runCommand } from '../support/processes.ts'
import { useSellers } from './sellers.ts'

// Debian's proxies with a minimal configuration, in front of a seller and of the gateway, because their
// defaults limit headers, bodies and times.

const sellers = useSellers({ upstream: { ...testGatewaySettings.upstream, maxBodyBytes: 10_485_760 } })

type Proxy = {
  /** The command and its Debian package. */
  program: string
  package: string
  file: string
  config: (port: number, upstream: string, folder: string) => string
  command: (path: string) => string[]
}

const proxies: Record<string, Proxy> = {
  nginx: {
    program: 'nginx',
    package: 'nginx-light',
    file: 'nginx.conf',
    config: (port, upstream, folder) => `
      ${process.getuid?.() === 0 ? 'user root;' : ''}
      daemon off; pid ${folder}/pid; error_log ${folder}/error.log;
      events {}
      http {
        access_log off;
        client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy; fastcgi_temp_path ${folder}/fastcgi;
        uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
        server {
          listen 127.0.0.1:${port};
          location / { proxy_pass http://${upstream}; proxy_set_header Host $http_host; }
        }
      }`,
    command: (path) => ['nginx', '-c', path],
  },
  Caddy: {
    program: 'caddy',
    package: 'caddy',
    file: 'Caddyfile',
    config: (port, upstream) =>
      `{\n\tadmin off\n}\nhttp://127.0.0.1:${port} {\n\treverse_proxy ${upstream}\n}\n`,
    command: (path) => ['caddy', 'run', '--adapter', 'caddyfile', '--config', path],
  },
  HAProxy: {
    program: 'haproxy',
    package: 'haproxy',
    file: 'haproxy.cfg',
    config: (port, upstream) => `
defaults
  mode http
  timeout connect 5s
  timeout client 50s
  timeout server 50s
frontend front
  bind 127.0.0.1:${port}
  default_backend back
backend back
  server one ${upstream}
`,
    command: (path) => ['haproxy', '-db', '-f', path],
  },
}

function isMissing({ program, package: name }: Proxy): boolean {
  if (spawnSync('which', [program]).status === 0) return false
  const missing = `no ${program} in the PATH (Debian: apt-get install ${name})`
  if (process.env.CI) throw new Error(`tests behind ${program} can't run: ${missing}`)
  process.stderr.write(`\nLEFT OUT: tests behind ${program}: ${missing}\n\n`)
  return true
}

/** Starts a proxy on a port until the running test ends. */
async function startProxy(proxy: Proxy, port: number, upstreamUrl: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-proxy-'))
  const path = join(folder, proxy.file)
  writeFileSync(path, proxy.config(port, new URL(upstreamUrl).host, folder))
  const env = { HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }
  const running = runCommand(proxy.command(path), env, { cwd: folder })
  onTestFinished(async () => {
    await killAll(running)
    rmSync(folder, { recursive: true })
  })
  await expect
    .poll(() =>
      fetch(`http://127.0.0.1:${port}/`).then(
        () => true,
        () => false,
      ),
    )
    .toBe(true)
}

const properties = Object.fromEntries(
  Array.from({ length: 8 }, (_, index) => [
    `parameter${index}`,
    { type: 'string', description: `What parameter ${index} of this forecast means, in some words.` },
  ]),
)
const inputSchema = { type: 'object', properties }

async function buy(url: string, tabs: boolean, options: { method?: 'POST'; body?: string } = {}) {
  const client = createClient({
    gatewayUrl: sellers.state.url,
    network: 'localhost',
    account: await sellers.gateway.buyer(1_000_000n),
    usdcAddress: sellers.gateway.served.token,
    limits: { perPayment: '1' },
    tabs,
  })
  return client.request(url, options)
}

describe.each(Object.entries(proxies))('behind %s with defaults', (_, proxy) => {
  test.skipIf(isMissing(proxy))(
    'behavior: a shop with an input schema and tabs sells, even if the URL is long or the body is large',
    async () => {
      const port = await reservePort()
      const origin = `http://127.0.0.1:${port}`
      const seller = await sellers.open('hono', {
        publicOrigin: origin,
        gate: { publicUrl: origin },
        endpoint: {
          inputSchema,
          inputExample: Object.fromEntries(Object.keys(properties).map((name) => [name, '1'])),
        },
      })
      await startProxy(proxy, port, seller.url)
      for (const tabs of [true, false]) {
        expect((await buy(`${origin}/weather`, tabs)).receipt).toBeTruthy()
        expect((await buy(`${origin}/weather?q=${'x'.repeat(6_000)}`, tabs)).receipt).toBeTruthy()
        const body = 'x'.repeat(900_000)
        expect((await buy(`${origin}/maps`, tabs, { method: 'POST', body })).receipt).toBeTruthy()
      }
      expect(seller.served.map((request) => request.body.length)).toEqual([0, 0, 900_000, 0, 0, 900_000])
    },
  )

  test.skipIf(isMissing(proxy))(
    'behavior: the gateway behind the proxy sells the answers of a server without code',
    async () => {
      const port = await reservePort()
      const origin = `http://127.0.0.1:${port}`
      await startProxy(proxy, port, sellers.state.url)
      sellers.restart({ issuer: origin })
      onTestFinished(() => sellers.restart())
      const seller = await sellers.open('proxy', { endpoint: { description: 'weather '.repeat(40) } })
      const url = `${origin}/p/${seller.providerId}/weather`
      for (const tabs of [true, false]) {
        const client = createClient({
          gatewayUrl: origin,
          network: 'localhost',
          account: await sellers.gateway.buyer(1_000_000n),
          usdcAddress: sellers.gateway.served.token,
          limits: { perPayment: '1' },
          tabs,
        })
        expect((await client.request(url)).receipt).toBeTruthy()
        const body = 'x'.repeat(900_000)
        expect((await client.request(url, { method: 'POST', body })).receipt).toBeTruthy()
      }
    },
  )
})
