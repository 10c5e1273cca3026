import { execFile } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { installPackages } from '../test/support/installed.ts'
import { root } from '../test/support/processes.ts'
import { readPins } from '../tools/build/workspaces.ts'
import { useInstalled } from './install.ts'

// Tests the README's install command with each package manager. We don't own our package names in any registry, so no manager may request them.

const run = promisify(execFile)
const managers = useInstalled('managers')

let registry: Server
let registryUrl: string
/** Names of the packages that a manager requested. */
let asked: string[] = []
let tarballs: string[]
let viem: string

beforeAll(async () => {
  const { stdout } = await run('npm', ['config', 'get', 'registry'], { cwd: managers.path })
  const upstream = stdout.trim().replace(/\/$/, '')
  registry = createServer(async (request, response) => {
    const name = decodeURIComponent(request.url ?? '').slice(1)
    asked.push(name)
    if (/tollkeeper/.test(name)) return void response.writeHead(404).end('{}')
    const headers = { accept: request.headers.accept ?? '*/*' }
    const answer = await fetch(`${upstream}${request.url}`, { headers })
    const type = answer.headers.get('content-type') ?? 'application/json'
    response.writeHead(answer.status, { 'content-type': type }).end(Buffer.from(await answer.arrayBuffer()))
  })
  await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve))
  registryUrl = `http://127.0.0.1:${(registry.address() as AddressInfo).port}/`
  const { sdk } = await installPackages()
  const { version } = JSON.parse(await readFile(join(sdk, 'package.json'), 'utf8')) as { version: string }
  tarballs = ['tollkeeper-sdk', 'tollkeeper'].map((name) => join(dirname(sdk), `${name}-${version}.tgz`))
  viem = `viem@${(await readPins(root)).viem}`
}, 900_000)
afterAll(() => registry?.close())

type Manager = {
  /** Path of the manager's program below node_modules. */
  program: string
  /** The arguments of the install line. */
  install: (tarballs: readonly string[], viem: string, cache: string) => string[]
  /** Configuration files of the project that set the registry. */
  files?: (registryUrl: string, cache: string) => Record<string, string>
  /** The arguments that run a command of the project. */
  run: (...args: string[]) => string[]
  /** The arguments that run Node, if Node alone can't find the packages. */
  node?: (...args: string[]) => string[]
}

const ours = ['@tollkeeper/sdk', 'tollkeeper']
const managerTable: Record<string, Manager> = {
  'pnpm 10': {
    program: 'pnpm/bin/pnpm.cjs',
    install: (tarballs, viem, cache) => ['add', ...tarballs, viem, '--store-dir', cache],
    files: (registryUrl, cache) => ({ '.npmrc': `registry=${registryUrl}\ncache-dir=${cache}\n` }),
    run: (...args) => ['exec', ...args],
  },
  'yarn 1': {
    program: 'yarn/bin/yarn.js',
    install: (tarballs, viem, cache) => [
      ...['add', ...tarballs.map((path) => `file:${path}`), viem],
      ...['--cache-folder', cache, '--ignore-engines', '--no-progress'],
    ],
    files: (registryUrl) => ({
      '.yarnrc': `registry "${registryUrl}"\n`,
      '.npmrc': `registry=${registryUrl}\n`,
    }),
    run: (...args) => ['--silent', 'run', ...args],
  },
  'yarn 4': {
    program: '@yarnpkg/cli-dist/bin/yarn.js',
    install: (tarballs, viem) => ['add', ...tarballs.map((path, i) => `${ours[i]}@file:${path}`), viem],
    files: (registryUrl, cache) => ({
      'yarn.lock': '',
      '.yarnrc.yml': [
        `npmRegistryServer: "${registryUrl}"`,
        'unsafeHttpWhitelist: ["127.0.0.1"]',
        'enableTelemetry: false',
        'enableGlobalCache: false',
        `cacheFolder: "${cache}"`,
      ].join('\n'),
    }),
    run: (...args) => args,
    node: (...args) => ['node', ...args],
  },
  bun: {
    program: '.bin/bun',
    install: (tarballs, viem) => ['add', ...tarballs, viem],
    files: (registryUrl, cache) => ({
      'bunfig.toml': `[install]\nregistry = "${registryUrl}"\n[install.cache]\ndir = "${cache}"\n`,
    }),
    run: (...args) => ['x', '--no-install', ...args],
  },
}

describe.each(Object.entries(managerTable))('%s', (name, manager) => {
  let call: (args: string[]) => Promise<string>
  let project: string
  beforeAll(async () => {
    project = join(managers.path, 'projects', name.replace(' ', '-'))
    const cache = join(managers.path, 'caches', name.replace(' ', '-'))
    await mkdir(project, { recursive: true })
    await writeFile(
      join(project, 'package.json'),
      JSON.stringify({ name: 'project', private: true, type: 'module' }),
    )
    for (const [file, text] of Object.entries(manager.files?.(registryUrl, cache) ?? {})) {
      await writeFile(join(project, file), text)
    }
    const program = join(managers.path, 'node_modules', manager.program)
    const isScript = /\.c?js$/.test(program)
    // Ignore this machine's settings, which may set another registry.
    const env = {
      PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
      HOME: join(project, 'home'),
      NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS,
    }
    call = async (args) => {
      const [file, before] = isScript ? [process.execPath, [program]] : [program, []]
      const options = { cwd: project, env, maxBuffer: 2 ** 24 }
      const { stdout } = await run(file, [...before, ...args], options).catch((error) => {
        throw new Error(`${name} ${args.join(' ')}: ${error.stdout}\n${error.stderr}`)
      })
      return stdout
    }
    asked = []
    await call(manager.install(tarballs, viem, cache))
  }, 600_000)

  test('behavior: installs both packages without requesting them from the registry', () => {
    expect(asked).toContain('viem')
    expect(asked.filter((one) => one.includes('tollkeeper'))).toEqual([])
  })

  test('behavior: runs the tollkeeper command, and a program can import both packages', async () => {
    expect(await call(manager.run('tollkeeper', '--version'))).toMatch(/\d+\.\d+\.\d+/)
    await writeFile(
      join(project, 'imports.js'),
      `import { ClientError } from '@tollkeeper/sdk'
      import { startTollkeeper } from 'tollkeeper/testing'
      console.log(typeof ClientError, typeof startTollkeeper)`,
    )
    const printed = manager.node
      ? await call(manager.node('imports.js'))
      : (await run(process.execPath, ['imports.js'], { cwd: project })).stdout
    expect(printed).toContain('function function')
  })
})
