import { globSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readApiConfig } from '@tollkeeper/api/config'
import { readNetworkSettings } from '@tollkeeper/chain/networkSettings'
import { readIndexerOptions } from '@tollkeeper/indexer/config'
import { readIndependentSettings } from '@tollkeeper/keeper/independent/config'
import { readKeeperEnvironment } from '@tollkeeper/keeper/settings/config'
import type { Environment } from '@tollkeeper/runtime/env'
import { networkVariable, removedVariables, type Variable, variables } from '@tollkeeper/runtime/variables'
import { committedDeployments } from '@tollkeeper/sdk/protocol/deployments'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { describe, expect, onTestFinished, test } from 'vitest'
import { readBuyerSettings } from '../apps/mcp/buy/settings.ts'
import { runCommand } from '../test/support/processes.ts'
import { renderDocs } from './generateDocs.ts'

const root = fileURLToPath(new URL('../', import.meta.url))
const table: [string, Variable][] = Object.entries(variables)

const valid = {
  DATABASE_URL: 'postgres://127.0.0.1/none',
  PLATFORM_WALLET: `0x${'11'.repeat(20)}`,
  MACAROON_SECRETS: `kid:${'00'.repeat(32)}`,
  KEEPER_PRIVATE_KEYS: `0x${'22'.repeat(32)}`,
  KEEPER_GATEWAY_URL: 'https://gateway.example',
  WALLET_PRIVATE_KEY: `0x${'33'.repeat(32)}`,
  NETWORKS: 'localhost',
  RPC_URL_LOCALHOST: 'http://127.0.0.1:8545',
}

const configs = {
  api: readApiConfig,
  keeper: readKeeperEnvironment,
  independent: readIndependentSettings,
  indexer: readIndexerOptions,
  mcp: readBuyerSettings,
} as const
type Process = keyof typeof configs
const processes = Object.keys(configs) as Process[]

/** Returns the variables that a process reads from its environment. */
function namesReadBy(read: (env: Environment) => unknown): Set<string> {
  const names = new Set<string>()
  const recorded = new Proxy(valid as Environment, {
    get: (target, name) => {
      names.add(String(name))
      return target[String(name)]
    },
  })
  read(recorded)
  return names
}

/** Returns the message with which a process rejects an environment, or null if the process accepts the environment. */
function refusalOf(read: (env: Environment) => unknown, env: Environment): string | null {
  try {
    read(env)
    return null
  } catch (error) {
    return (error as Error).message
  }
}

test('default: the generated docs are up to date (npm run generate)', async () => {
  for (const [path, text] of renderDocs()) {
    expect(await readFile(`${root}/${path}`, 'utf8')).toBe(text)
  }
})

test('default: .env.example has at most 85 variables, and api, keeper or indexer reads each of them', async () => {
  const text = await readFile(`${root}/.env.example`, 'utf8')
  const names = [...text.matchAll(/^#?([A-Z0-9_]+)=/gm)].map(([, name = '']) => name)
  const servers = ['api', 'keeper', 'independent', 'indexer'] as const
  const isRead = (name: string) =>
    new Map(table).get(name)?.readers.some((reader) => servers.includes(reader as (typeof servers)[number]))
  expect(names.length).toBeGreaterThan(60)
  expect(names.length).toBeLessThanOrEqual(85)
  expect(names.filter((name) => !isRead(name))).toEqual([])
})

test('behavior: no removed variable is read or documented', async () => {
  const removed = Object.keys(removedVariables)
  expect(table.map(([name]) => name).filter((name) => removed.includes(name))).toEqual([])
  for (const [path, text] of renderDocs()) {
    const named = new Set(text.match(/[A-Z][A-Z0-9_]+/g))
    expect([path, removed.filter((name) => named.has(name))]).toEqual([path, []])
  }
})

test.each(processes)(
  'default: the table of variables lists exactly those that the process “%s” reads',
  (process) => {
    const read = namesReadBy(configs[process])
    const elsewhere = new Set(['KEEPER_GATEWAY_URL', 'RPC_URL_'])
    // A process doesn't read the variables of a network that it doesn't serve.
    const described = table
      .filter(
        ([name, { readers }]) => readers.includes(process) && (name in valid || !name.startsWith('RPC_URL_')),
      )
      .map(([name]) => name)
    expect([...read].filter((name) => !described.includes(name) && !elsewhere.has(name))).toEqual([])
    expect(described.filter((name) => !read.has(name))).toEqual([])
  },
)

const texts = [
  undefined,
  '',
  ' ',
  '0',
  '1',
  '-1',
  '1.5',
  '30000000000',
  'on',
  'true',
  'x',
  'https://a.example',
]
const sharedVariables = table
  .map(([name, { readers }]) => ({ name, readers: processes.filter((process) => readers.includes(process)) }))
  .filter(({ readers }) => readers.length > 1)

describe('behavior: processes that read the same variable read the same value', () => {
  test.each(sharedVariables)(
    'args: all readers of $name accept and reject the same values',
    ({ name, readers }) => {
      for (const text of texts) {
        const answers = readers.map((process) => refusalOf(configs[process], { ...valid, [name]: text }))
        expect([text, ...new Set(answers)]).toEqual([text, answers[0]])
      }
    },
  )

  test('default: each process reads the same values, and treats an empty variable as unset', () => {
    const given = {
      ETH_USD: '1500.5',
      PRIORITY_FEE_WEI: '30000000000',
      TRUSTED_PROXIES: '2',
      LOG_LEVEL: 'debug',
      TRIGGER_COUNT: '7',
      REPLACE_AFTER_MS: '9000',
    }
    const empty = Object.fromEntries(Object.keys(given).map((name) => [name, ' ']))
    for (const [env, expected] of [
      [given, { eth: 1_500_500_000n, tip: 30_000_000_000n, proxies: 2, level: 'debug', count: 7 }],
      [empty, { eth: 3_000_000_000n, tip: null, proxies: 0, level: 'info', count: 100 }],
    ] as const) {
      const { eth, tip, proxies, level, count } = expected
      const api = readApiConfig({ ...valid, ...env })
      const keeper = readKeeperEnvironment({ ...valid, ...env })
      const independent = readIndependentSettings({ ...valid, ...env })
      const sending = { gasTokenUsd: eth, priorityFeePerGas: tip }
      expect(api.gateway).toMatchObject({ ...sending, trustedProxies: proxies, triggers: { count } })
      expect(keeper).toMatchObject({
        trustedProxies: proxies,
        logLevel: level,
        settings: { ...sending, triggers: { count } },
      })
      expect(independent).toMatchObject({ settings: sending, logLevel: level })
      expect(readIndexerOptions({ ...valid, ...env })).toMatchObject({ logLevel: level })
    }
  })

  test.each([...table])('args: each process treats an empty %s as unset', (name) => {
    for (const read of Object.values(configs)) {
      const unset: Environment = { ...valid, [name]: undefined }
      const empty: Environment = { ...valid, [name]: '' }
      expect(refusalOf(read, empty)).toBe(refusalOf(read, unset))
    }
  })
})

test('error: an error message never contains a secret', () => {
  const secrets = table.filter(([, { parser }]) => parser.isSecret)
  expect(secrets.length).toBeGreaterThan(10)
  for (const [name] of secrets) {
    for (const read of Object.values(configs)) {
      expect(refusalOf(read, { ...valid, [name]: 'gopher://hunter2' })).not.toEqual(
        expect.stringContaining('hunter2'),
      )
    }
  }
})

test('behavior: start and deploy read variables through the table in packages/runtime/variables.ts', async () => {
  for (const file of ['apps/devstack/start.ts', 'apps/devstack/deploy.ts'])
    expect(await readFile(`${root}/${file}`, 'utf8')).not.toMatch(/process\.env\.[A-Z]|\} = process\.env/)
})

test.each(globSync('examples/*/main.ts', { cwd: root }))(
  'behavior: %s lists the variables that it reads, and the README has them in its table',
  async (file) => {
    const source = await readFile(`${root}/${file}`, 'utf8')
    const readme = await readFile(`${root}/examples/README.md`, 'utf8')
    const head = source.slice(0, source.indexOf('*/'))
    const [, list = ''] = /\{ ([A-Z0-9_, ]+) \} = process\.env/.exec(source) ?? []
    expect(list).not.toBe('')
    for (const name of list.split(', ')) {
      expect(head).toContain(name)
      expect(readme).toContain(`| \`${name}\``)
    }
  },
)

describe('the networks that a process serves', () => {
  const url = 'https://node.example'
  const everywhere = Object.fromEntries(networkNames.map((name) => [networkVariable('RPC_URL', name), url]))
  const served = (env: Environment) => readNetworkSettings(env).map(({ network }) => network.name)

  test('default: are those in NETWORKS, and otherwise base and base-sepolia if they have an RPC URL', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-networks-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const DEPLOYMENTS_FILE = join(folder, 'deployments.json')
    const deployment = Object.values(committedDeployments)[0]
    await writeFile(
      DEPLOYMENTS_FILE,
      JSON.stringify(Object.fromEntries(networkNames.map((name) => [name, deployment]))),
    )
    const env = { DEPLOYMENTS_FILE, ...everywhere }
    expect(served(env)).toEqual(['base', 'base-sepolia'])
    expect(served({ ...env, NETWORKS: ' ' })).toEqual(['base', 'base-sepolia'])
    expect(served({ ...env, RPC_URL_BASE: '' })).toEqual(['base-sepolia'])
    expect(served({ ...env, NETWORKS: 'polygon,base' })).toEqual(['polygon', 'base'])
  })

  test('error: can’t be determined if neither NETWORKS nor the RPC URL of base or base-sepolia is set', () => {
    const only = { RPC_URL_POLYGON: url }
    expect(() => served(only)).toThrow(
      /^NETWORKS: expected RPC_URL_BASE or RPC_URL_BASE_SEPOLIA, or here names among/,
    )
  })

  test('error: are rejected if our contracts are not deployed there, and the error names the deploy command', () => {
    expect(() => served({ RPC_URL_BASE: url })).toThrow(
      'DEPLOYER_PRIVATE_KEY=0x… RPC_URL_BASE=https://… npx --no-install tollkeeper deploy --network base;',
    )
  })
})

test.each([
  ['api', 'api/main.ts', 'API_PORT', {}],
  ['keeper', 'keeper/main.ts', 'KEEPER_PORT', {}],
  ['keeper without a database', 'keeper/main.ts', 'KEEPER_PORT', { KEEPER_GATEWAY_URL: 'https://a.example' }],
  ['indexer', 'indexer/main.ts', 'INDEXER_PORT', {}],
  ['start', 'apps/devstack/start.ts', 'API_PORT', {}],
])(
  'error: %s exits with one line that explains the error if its port is invalid',
  async (_, main, name, further) => {
    const env = { ...valid, KEEPER_GATEWAY_URL: undefined, ...further, [name]: 'eighty' }
    const running = runCommand([process.execPath, main], env)
    expect(await running.exited).toBe(1)
    const said = `${name}: expected a port number (0: any free one), got "eighty"`
    expect(running.output().replace(/^(api|keeper|indexer): /, '')).toBe(said)
  },
)

test.each([
  ['api', 'api/main.ts', {}],
  ['keeper', 'keeper/main.ts', { KEEPER_GATEWAY_URL: undefined }],
  ['keeper without a database', 'keeper/main.ts', {}],
  ['indexer', 'indexer/main.ts', {}],
])('behavior: %s warns about a removed variable that is set', async (_, main, further) => {
  const env = { ...valid, LOG_LEVEL: 'warn', SUBMIT_RATE_LIMIT: '600', ...further }
  const running = runCommand([process.execPath, main], env)
  onTestFinished(() => void running.child.kill('SIGKILL'))
  const warning = await running.line(/no process reads/)
  expect(warning).toContain('SUBMIT_RATE_LIMIT')
  expect(warning).toContain('removed: the limit is 60 submissions a minute')
})
