import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { build, type Plugin } from 'esbuild'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { beforeAll, describe, expect, test } from 'vitest'
import packageJson from '../package.json' with { type: 'json' }
import { openConsumer, usePackedSdk } from './packed.ts'
import { readExports, runSnippets } from './snippets.ts'

// Tests the package as its users get it: packed, then unpacked in an empty folder with only the dependencies that it declares.

const run = promisify(execFile)
const root = join(import.meta.dirname, '..', '..')
/** The exported paths. `./*` is only for the other packages of this repository, and isn't published. */
const paths = Object.keys(packageJson.exports).filter((path) => path !== './*')
const nameOf = (path: string) => join('@tollkeeper/sdk', path)

/** Maximum gzipped size in bytes of the client with everything that it needs, except viem. A page that signs contains viem anyway. */
const maxClientBytes = 35_200

const packed = usePackedSdk()
let folder: string
let tarball: string
let files: string[]

beforeAll(async () => {
  ;({ folder, tarball } = packed)
  const installed = await openConsumer(packed, 'current', ['viem'])
  files = (await readdir(installed, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(installed.length + 1))
})

describe('the packed SDK', () => {
  test('default: passes publint', async () => {
    const { messages, pkg } = await publint({
      pkgDir: join(folder, 'current/node_modules/@tollkeeper/sdk'),
      pack: false,
      strict: true,
    })
    expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([])
  })

  test('behavior: has correct types for every kind of module resolution, including node10', async () => {
    const result = await checkPackage(createPackageFromTarballData(await readFile(tarball)))
    if (!result.types) throw new Error('no types')
    expect(Object.keys(result.entrypoints)).toEqual(paths)
    // The package is ESM only. `require` works only in Node versions that support it for ESM (20.19, 22.12).
    const others = result.problems.filter((problem) => problem.kind !== 'CJSResolvesToESM')
    expect(others).toEqual([])
  })

  test('behavior: contains the executed code, its types and maps, and nothing else of the checkout', async () => {
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
    expect([isPrivate, Object.keys(exports), Object.keys(dependencies)]).toEqual([
      undefined,
      paths,
      ['jose', 'uqr'],
    ])
    for (const file of files) {
      const text = await read(file)
      expect(text, file).not.toContain('tollkeeper/source')
      expect(text, file).not.toContain(root)
    }
  })

  test('behavior: contains the source of each source map', async () => {
    for (const file of files.filter((name) => name.endsWith('.js'))) {
      const map = JSON.parse(await read(`${file}.map`))
      const source = file.replace(/js$/, 'ts')
      expect([map.sourceRoot, map.sources]).toEqual(['tollkeeper-sdk:///', [source]])
      expect(map.sourcesContent).toEqual([await readFile(join(root, 'sdk/src', source), 'utf8')])
    }
  })

  const read = (file: string) => readFile(join(folder, 'current/node_modules/@tollkeeper/sdk', file), 'utf8')
})

describe('the imported SDK', () => {
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
    ['the oldest supported Node', () => findNode(20)],
    ['this Node', async () => process.execPath],
  ])(
    'behavior: %s imports each entry point without Hono and Express, and serves a paid request',
    async (_, find) => {
      const node = await find()
      const cwd = join(folder, 'current')
      const { stdout, stderr } = await run(node, ['--input-type=module', '--eval', source], { cwd })
      const { exported, ...served } = JSON.parse(stdout)
      expect(served).toEqual({ data: 'served', receipt: 3 })
      expect(Object.keys(exported)).toEqual(paths.map(nameOf))
      for (const names of Object.values(exported)) expect((names as string[]).length).toBeGreaterThan(0)
      expect(stderr).toBe('')
    },
  )

  test('behavior: every example prints its documented output in the oldest supported Node', async () => {
    const others = ['@x402/core', '@x402/evm', '@x402/fetch', '@modelcontextprotocol/sdk']
    await openConsumer(packed, 'examples', ['viem', 'hono', 'express', 'fastify', ...others])
    const examples = readExports().flatMap((exported) => exported.examples)
    expect(examples.length).toBeGreaterThan(50)
    const place = { node: await findNode(20), cwd: join(folder, 'examples') }
    expect(await runSnippets(examples, place)).toEqual(examples.map(({ expected }) => expected))
  })
})

/**
 * Excludes code that is loaded with `import()`. Bundlers put such code into separate files, which a page loads only when needed.
 */
const importedLater: Plugin = {
  name: 'imported later',
  setup: ({ onResolve }) =>
    onResolve({ filter: /^\./ }, ({ kind, path }) =>
      kind === 'dynamic-import' ? { path, external: true } : undefined,
    ),
}

describe('the SDK bundled for a browser', () => {
  const bundle = async (path: string, external: string[] = [], plugins: Plugin[] = []) => {
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
      plugins,
    } as const)
    return { bytes: gzipSync(outputFiles[0]?.contents ?? '').length, inputs: Object.keys(metafile.inputs) }
  }

  test(`default: the client without viem has at most ${maxClientBytes} bytes, gzipped`, async () => {
    const { bytes, inputs } = await bundle('.', ['viem', 'viem/*'], [importedLater])
    console.log(`client: ${bytes} bytes gzipped, without viem`)
    expect(bytes).toBeLessThanOrEqual(maxClientBytes)
    // Measures only the code that every buyer loads, without the middleware and without the code that pays non-Tollkeeper sellers.
    expect(inputs.filter((input) => /client\/createClient|jose\/.*remote/.test(input)).length).toBe(2)
    expect(
      inputs.filter((input) => /middleware\/|otherSellers|exactOffers|client\/quote/.test(input)),
    ).toEqual([])
  })

  test.each(paths)(
    'behavior: %s imports node: modules only if it is documented to need Node',
    async (path) => {
      // Programs that use MCP already include the MCP SDK.
      const refused = await bundle(path, ['@modelcontextprotocol/*']).then(
        () => [],
        ({ errors }: { errors: { text: string }[] }) => errors.map(({ text }) => text),
      )
      const needsNode = path === './files'
      expect(refused.length > 0).toBe(needsNode)
      for (const text of refused) expect(text).toMatch(/^Could not resolve "node:/)
    },
  )
})

/** Reads the source files without their TSDoc comments, because the examples in these comments may use Node's globals. */
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

test('behavior: the SDK uses Node’s globals only in the folder src/files', async () => {
  for (const [file, code] of await readSources('.')) {
    // This file checks whether there is a Buffer that supports base64url. The file's test also runs without such a Buffer.
    if (file === 'protocol/bytes.ts') continue
    if (!file.startsWith('files/')) expect(code, file).not.toMatch(/\bprocess\.|\bBuffer\b|\bsetImmediate\b/)
  }
})

test('behavior: the code in protocol/ uses no clock, no randomness and no I/O', async () => {
  for (const [file, code] of await readSources('protocol')) {
    expect(code, file).not.toMatch(
      /Date\.now|new Date\(\)|Math\.random|crypto\.(?:random|getRandom|subtle)|fetch\(|console\./,
    )
  }
})

/** Returns a Node binary of this version: the one on this machine, or one from npm. */
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
