import { createHash } from 'node:crypto'
import { readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'esbuild'

const root = join(import.meta.dirname, '..')
const source = fileURLToPath(new URL('../../', import.meta.resolve('ponder')))
const entries = {
  'bin/ponder': join(source, 'dist/esm/bin/ponder.js'),
  index: join(source, 'dist/esm/index.js'),
  // Our files must have the same instance as Ponder.
  viem: fileURLToPath(import.meta.resolve('viem')),
}

/**
 * Bundles Ponder as it is installed, since Node takes seconds to find and link its 3,800 modules (indexer/DECISIONS.md).
 *
 * @returns a folder that is laid out as the package is. It is built at first use and kept.
 */
export async function bundlePonder(): Promise<string> {
  const folder = join(root, 'node_modules/.cache', `ponder-${await hashSources(source)}`)
  if (await isFolder(folder)) return folder

  const unfinished = `${folder}-${process.pid}`
  await writeBundle(unfinished)
  // Several processes built it at once, and another one was first.
  await rename(unfinished, folder).catch(async (error) => {
    await rm(unfinished, { recursive: true })
    if (!(await isFolder(folder))) throw error
  })
  return folder
}

/** Hash of what a bundle is made of: the locked versions, our own files, and Ponder's files as they are, patched or not. */
export async function hashSources(ponder: string): Promise<string> {
  const own = ['package-lock.json', 'indexer/bundlePonder.ts', 'indexer/loadByNode.ts'].map((path) =>
    join(root, path),
  )
  const dist = join(ponder, 'dist/esm')
  const files = (await readdir(dist, { recursive: true })).filter((path) => path.endsWith('.js')).sort()
  const hash = createHash('sha256')
  for (const path of [...own, ...files.map((file) => join(dist, file))]) hash.update(await readFile(path))
  return hash.digest('hex').slice(0, 16)
}

/**
 * @param folder is made.
 * @returns the bundled packages, as paths below node_modules.
 */
export async function writeBundle(folder: string): Promise<string[]> {
  const { build } = await import('esbuild')
  const { metafile } = await build({
    entryPoints: entries,
    outdir: join(folder, 'dist/esm'),
    absWorkingDir: root,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node22',
    mainFields: ['module', 'main'],
    external: ['pg-native'],
    plugins: [replaceUnused, allowFewerChains],
    banner: {
      js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
    },
    legalComments: 'none',
    metafile: true,
    logLevel: 'error',
  })
  const { name, version } = JSON.parse(await readFile(join(source, 'package.json'), 'utf8'))
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name, version, type: 'module' }))
  const paths = Object.keys(metafile.inputs).flatMap(
    (path) => /^node_modules\/((?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
  )
  return [...new Set(paths)].sort()
}

/**
 * Replaces what Ponder doesn't need here: vite, the database for when there is no Postgres, and the writing of
 * `ponder-env.d.ts`, which only an editor reads and an installation may not allow.
 */
const replaceUnused: Plugin = {
  name: 'replaceUnused',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^vite($|-node\/|-tsconfig-paths$)/ }, () => ({
      path: join(import.meta.dirname, 'loadByNode.ts'),
    }))
    onResolve({ filter: /^@electric-sql\/pglite$/ }, () => ({ path: 'pglite', namespace: 'none' }))
    onResolve({ filter: /\/utils\/codegen\.js$/ }, () => ({ path: 'codegen', namespace: 'none' }))
    onLoad({ filter: /^codegen$/, namespace: 'none' }, () => ({
      contents: 'export function runCodegen() {}',
    }))
    onLoad({ filter: /^pglite$/, namespace: 'none' }, () => ({
      contents:
        "export const types = {}\nexport class PGlite { constructor() { throw new Error('no PGlite') } }",
    }))
  },
}

const oneCheckpoint = 'for (const { chainId, finalizedCheckpoint } of checkpoints) {'

/** Lets a schema have a chain that this start of Ponder leaves out (launch.ts), for which there is no block to compare. */
const allowFewerChains: Plugin = {
  name: 'allowFewerChains',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]ponder[\\/]dist[\\/]esm[\\/]database[\\/]index\.js$/ }, async ({ path }) => {
      const code = await readFile(path, 'utf8')
      if (code.split(oneCheckpoint).length !== 2)
        throw new Error(`${path} is not the Ponder that is known here`)
      const skip = `${oneCheckpoint} if (!chains.some((one) => one.id === chainId)) continue;`
      return { contents: code.replace(oneCheckpoint, skip) }
    })
  },
}

async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )
}

if (import.meta.main) await bundlePonder()
