import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { build } from 'esbuild'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { buildSdk } from '../../tools/buildSdk.ts'
import packageJson from '../package.json' with { type: 'json' }
import { readExports, runSnippets } from './snippets.ts'

// The package as its users get it: packed, unpacked in an empty folder beside nothing but what it says that it needs.

const run = promisify(execFile)
const root = join(import.meta.dirname, '..', '..')
const modules = join(root, 'node_modules')
/** `./*` is for the other packages of this repository, and isn't published. */
const paths = Object.keys(packageJson.exports).filter((path) => path !== './*')
const nameOf = (path: string) => join('@tollkeeper/sdk', path)

/** The client with everything that it needs but viem, which a page that signs has anyway. */
const maxClientBytes = 29_500

let folder: string
let tarball: string
let files: string[]

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-sdk-'))
  await buildSdk(join(folder, 'built'))
  const { stdout } = await run('npm', ['pack', './built', '--json'], { cwd: folder })
  const [packed] = Object.values(JSON.parse(stdout)) as { filename: string }[]
  tarball = join(folder, packed?.filename ?? '')
  const installed = await openConsumer('current', ['jose', 'viem'])
  files = (await readdir(installed, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(installed.length + 1))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

/** An empty package that has the sdk and, by the names it imports them by, these of ours. @returns the sdk's folder. */
async function openConsumer(name: string, dependencies: string[], viem = 'viem'): Promise<string> {
  const installed = join(folder, name, 'node_modules/@tollkeeper/sdk')
  await mkdir(installed, { recursive: true })
  await run('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1'])
  await writeFile(join(folder, name, 'package.json'), '{ "type": "module" }')
  for (const scope of ['@x402', '@modelcontextprotocol'])
    await mkdir(join(folder, name, 'node_modules', scope), { recursive: true })
  for (const dependency of dependencies) {
    const from = join(modules, dependency === 'viem' ? viem : dependency)
    await symlink(from, join(folder, name, 'node_modules', dependency))
  }
  return installed
}

describe('packed', () => {
  test('default: publint finds nothing', async () => {
    const { messages, pkg } = await publint({
      pkgDir: join(folder, 'current/node_modules/@tollkeeper/sdk'),
      pack: false,
      strict: true,
    })
    expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([])
  })

  test('behavior: types are right for every way of resolving that knows ESM', async () => {
    const result = await checkPackage(createPackageFromTarballData(await readFile(tarball)))
    if (!result.types) throw new Error('no types')
    expect(Object.keys(result.entrypoints)).toEqual(paths)
    // ESM only: `require` of it needs a Node that can (20.19, 22.12), and TypeScript's old `node10` doesn't read exports.
    const others = result.problems.filter(
      (problem) =>
        !('resolutionKind' in problem && problem.resolutionKind === 'node10') &&
        problem.kind !== 'CJSResolvesToESM',
    )
    expect(others).toEqual([])
  })

  test('behavior: holds what is run, its types and maps, and nothing of the checkout', async () => {
    const documents = ['LICENSE', 'README.md', 'package.json', 'protocol/deployments.json']
    expect(files.filter((file) => !/\.(js|js\.map|d\.ts)$/.test(file)).sort()).toEqual(documents)
    expect(files.filter((file) => file.includes('.test.'))).toEqual([])
    const {
      private: isPrivate,
      exports,
      dependencies,
      devDependencies,
    } = JSON.parse(await read('package.json'))
    expect(devDependencies).toBeUndefined()
    expect([isPrivate, Object.keys(exports), Object.keys(dependencies)]).toEqual([undefined, paths, ['jose']])
    for (const file of files) {
      const text = await read(file)
      expect(text, file).not.toContain('tollkeeper/source')
      expect(text, file).not.toContain(root)
    }
  })

  test('behavior: a debugger finds each source in its map', async () => {
    for (const file of files.filter((name) => name.endsWith('.js'))) {
      const map = JSON.parse(await read(`${file}.map`))
      const source = file.replace(/js$/, 'ts')
      expect([map.sourceRoot, map.sources]).toEqual(['tollkeeper-sdk:///', [source]])
      expect(map.sourcesContent).toEqual([await readFile(join(root, 'sdk/src', source), 'utf8')])
    }
  })

  const read = (file: string) => readFile(join(folder, 'current/node_modules/@tollkeeper/sdk', file), 'utf8')
})

describe('imported', () => {
  const source = `
    const exported = {}
    for (const name of ${JSON.stringify(paths.map(nameOf))}) exported[name] = Object.keys(await import(name))
    const { createClient } = await import('@tollkeeper/sdk')
    const { requirePayment } = await import('@tollkeeper/sdk/express')
    const { createServer } = await import('node:http')
    const options = { gatewayUrl: 'https://gateway.example', network: 'base', mockPayments: true }
    const paid = requirePayment({ ...options, providerId: 'prov_1', pricing: { usdcPerUnit: '0.05' } })
    const serve = (response) => response.setHeader('content-type', 'text/plain').end('served')
    const server = createServer((request, response) => paid(request, response, () => serve(response)))
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
    const client = createClient({ ...options, walletPrivateKey: '0x' + '1'.repeat(64) })
    const { data, receipt } = await client.request('http://127.0.0.1:' + server.address().port)
    server.closeAllConnections()
    server.close()
    console.log(JSON.stringify({ exported, data, receipt: receipt.split('.').length }))`

  test.each([
    ['the oldest Node that it allows', () => findNode(20)],
    ['this Node', async () => process.execPath],
  ])('behavior: %s imports each entry point, without Hono and Express, and is paid', async (_, find) => {
    const node = await find()
    const cwd = join(folder, 'current')
    const { stdout, stderr } = await run(node, ['--input-type=module', '--eval', source], { cwd })
    const { exported, ...served } = JSON.parse(stdout)
    expect(served).toEqual({ data: 'served', receipt: 3 })
    expect(Object.keys(exported)).toEqual(paths.map(nameOf))
    for (const names of Object.values(exported)) expect((names as string[]).length).toBeGreaterThan(0)
    expect(stderr).toBe('')
  })

  test('behavior: every example prints the same in the oldest Node', async () => {
    const others = ['@x402/core', '@x402/evm', '@x402/fetch', '@modelcontextprotocol/sdk']
    await openConsumer('examples', ['jose', 'viem', 'hono', 'express', ...others])
    const examples = readExports().flatMap((exported) => exported.examples)
    expect(examples.length).toBeGreaterThan(50)
    const place = { node: await findNode(20), cwd: join(folder, 'examples') }
    expect(await runSnippets(examples, place)).toEqual(examples.map(({ expected }) => expected))
  })
})

describe('type-checked', () => {
  const base = { strict: true, noEmit: true, target: 'es2022', lib: ['es2022', 'dom', 'dom.iterable'] }
  const ours = 'typescript/bin/tsc'
  const older = '@arethetypeswrong/core/node_modules/typescript/bin/tsc'
  const buyer = `
    import { createClient, type Client } from '@tollkeeper/sdk'
    import { verifyReceipt } from '@tollkeeper/sdk/audit'
    import { requirePayment } from '@tollkeeper/sdk/fetch'
    import { openReceiptFile } from '@tollkeeper/sdk/files'
    import { parseUsdc } from '@tollkeeper/sdk/protocol'
    import { privateKeyToAccount } from 'viem/accounts'
    const account = privateKeyToAccount('0x')
    export const client: Client = createClient({ gatewayUrl: '', network: 'base', account })
    export const amount: bigint = parseUsdc('1')
    export const paid = requirePayment({ gatewayUrl: '', providerId: '', pricing: { usdcPerUnit: 1 } })
    export const GET = paid((request, { paymentId }, context: { params: string }) =>
      Response.json([request.url, paymentId, context.params]))
    export const total: Promise<string> = verifyReceipt('', '').then(({ totalUsdc }) => totalUsdc)
    export const file = openReceiptFile('')
    // @ts-expect-error: a network that is none
    createClient({ gatewayUrl: '', network: 'solana', account })`
  const x402Buyer = `
    import { keepTabs } from '@tollkeeper/sdk/x402'
    import { x402Client } from '@x402/core/client'
    import { privateKeyToAccount } from 'viem/accounts'
    export const closed: Promise<void> = keepTabs(new x402Client(), privateKeyToAccount('0x')).close()`
  const seller = `
    import { requirePayment } from '@tollkeeper/sdk/express'
    import { requirePayment as requireHonoPayment } from '@tollkeeper/sdk/hono'
    import express from 'express'
    import { Hono } from 'hono'
    const options = { gatewayUrl: '', providerId: '', pricing: { usdcPerUnit: '0.05' } }
    express().get('/', requirePayment(options), (_request, response) => void response.json({}))
    new Hono().get('/', requireHonoPayment(options), (c) => c.text(c.get('payment').paymentId))`

  // Each once, and together every way of resolving, both compilers and the lowest viem of the range. Only the first looks
  // into declarations of others as well, which takes long.
  test.each([
    ['a buyer, nodenext, all declarations', 'viem', ours, 'nodenext', false, buyer],
    ['a buyer, bundler, the lowest viem', 'viem-lowest', ours, 'bundler', true, buyer],
    ['a buyer, nodenext, an older TypeScript', 'viem', older, 'nodenext', true, buyer],
    ['a buyer of @x402, nodenext', 'viem', ours, 'nodenext', true, x402Buyer],
    ['a seller, bundler', 'viem', ours, 'bundler', true, seller],
  ])('behavior: %s', async (name, viem, tsc, moduleResolution, skipLibCheck, source) => {
    const isSeller = source === seller
    const frameworks = isSeller ? ['hono', 'express', '@types/express', '@types/node'] : ['@x402/core']
    await mkdir(join(folder, name, 'node_modules/@types'), { recursive: true })
    await openConsumer(name, ['jose', 'viem', ...frameworks], viem)
    const compilerOptions = {
      ...base,
      skipLibCheck,
      moduleResolution,
      types: isSeller ? ['node'] : [],
      module: moduleResolution === 'bundler' ? 'esnext' : 'nodenext',
    }
    await writeFile(join(folder, name, 'index.ts'), source)
    await writeFile(join(folder, name, 'tsconfig.json'), JSON.stringify({ compilerOptions }))
    const errors = await run(process.execPath, [join(modules, tsc), '-p', join(folder, name)]).then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    )
    expect(errors).toBe('')
  })
})

describe('bundled for a browser', () => {
  const bundle = async (path: string, external: string[] = []) => {
    const { outputFiles, metafile } = await build({
      stdin: { contents: `export * from '${nameOf(path)}'`, resolveDir: join(folder, 'current') },
      bundle: true,
      minify: true,
      format: 'esm',
      platform: 'browser',
      target: 'es2022',
      write: false,
      metafile: true,
      logLevel: 'silent',
      external,
    } as const)
    return { bytes: gzipSync(outputFiles[0]?.contents ?? '').length, inputs: Object.keys(metafile.inputs) }
  }

  test(`default: the client without viem has at most ${maxClientBytes} bytes, gzipped`, async () => {
    const { bytes, inputs } = await bundle('.', ['viem', 'viem/*'])
    console.log(`client: ${bytes} bytes gzipped, without viem`)
    expect(bytes).toBeLessThanOrEqual(maxClientBytes)
    // What is measured is the client with what it needs, and nothing of a seller's.
    expect(inputs.filter((input) => /client\/createClient|jose\/.*remote/.test(input)).length).toBe(2)
    expect(inputs.filter((input) => /middleware\//.test(input))).toEqual([])
  })

  test.each(paths)('behavior: %s imports node: only where it says that it needs Node', async (path) => {
    // Programs of MCP bring its SDK along.
    const refused = await bundle(path, ['@modelcontextprotocol/*']).then(
      () => [],
      ({ errors }: { errors: { text: string }[] }) => errors.map(({ text }) => text),
    )
    const needsNode = path === './files'
    expect(refused.length > 0).toBe(needsNode)
    for (const text of refused) expect(text).toMatch(/^Could not resolve "node:/)
  })
})

/** A source file without its TSDoc, whose examples run in Node and print. */
async function readSources(below: string): Promise<[file: string, code: string][]> {
  const names = await readdir(join(root, 'sdk/src', below), { recursive: true })
  const files = names.filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
  return Promise.all(
    files.map(async (file): Promise<[string, string]> => {
      const text = await readFile(join(root, 'sdk/src', below, file), 'utf8')
      return [file, text.replaceAll(/^ *\/\*\*[\s\S]*?\*\//gm, '')]
    }),
  )
}

test('behavior: nothing but the files takes what only Node has as a global', async () => {
  for (const [file, code] of await readSources('.')) {
    // It asks whether there is a Buffer that knows base64url; its test runs as if there were none, too.
    if (file === 'protocol/bytes.ts') continue
    if (!file.startsWith('files/')) expect(code, file).not.toMatch(/\bprocess\.|\bBuffer\b|\bsetImmediate\b/)
  }
})

test('behavior: the protocol has no clock, no randomness and no I/O', async () => {
  for (const [file, code] of await readSources('protocol')) {
    expect(code, file).not.toMatch(
      /Date\.now|new Date\(\)|Math\.random|crypto\.(?:random|getRandom|subtle)|fetch\(|console\./,
    )
  }
})

/** A Node of this version: of this machine, or from npm. */
async function findNode(major: number): Promise<string> {
  for (const place of (process.env.PATH ?? '').split(delimiter)) {
    const node = join(place, 'node')
    const version = await run(node, ['--version']).catch(() => undefined)
    if (version?.stdout.startsWith(`v${major}.`)) return node
  }
  const print = ['--eval', 'console.log(process.execPath)']
  const { stdout } = await run('npx', ['-y', '-p', `node@${major}`, '--', 'node', ...print])
  return stdout.trim()
}
