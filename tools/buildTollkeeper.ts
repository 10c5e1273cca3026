import { execFile } from 'node:child_process'
import { cp, glob, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Bundle, bundleDashboard } from '@tollkeeper/api/dashboard/bundle'
import { writeBundle } from '@tollkeeper/indexer/bundlePonder'
import { bundleProcesses } from './build/bundleProcesses.ts'
import { createManifest, nameOwnDeclarations } from './build/manifest.ts'
import { collectNotices } from './build/notices.ts'
import { readPins } from './build/workspaces.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '..')

/**
 * Builds the package `tollkeeper` as it is published: `npm publish ./dist/tollkeeper`.
 *
 * @returns the dashboard's bundle, the packages in Ponder's bundle (`indexer`), and the packages in our programs' bundles (`processes`)
 */
export async function buildTollkeeper(
  folder: string = join(root, 'dist/tollkeeper'),
): Promise<{ dashboard: Bundle; indexer: string[]; processes: string[] }> {
  await rm(folder, { recursive: true, force: true })
  // Declarations for `tollkeeper/testing`, the only part that users import. `npm run check` checks the types.
  const args = ['-p', join(root, 'tools/build/tsconfig.types.json'), '--outDir', join(folder, 'types')]
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  await run(process.execPath, [tsc, ...args]).catch(({ stdout }: { stdout: string }) => {
    throw new Error(`tsc: ${stdout}`)
  })
  for await (const path of glob('types/**/*.d.ts', { cwd: folder })) {
    const declaration = await readFile(join(folder, path), 'utf8')
    await writeFile(join(folder, path), nameOwnDeclarations(declaration))
  }
  // Copy Ponder's schema and handlers as TypeScript, because Ponder's build id is a hash of these files' bytes.
  for (const path of [
    'LICENSE',
    'README.md',
    '.env.example',
    'apps/cli/tollkeeper.js',
    'indexer/ponder.schema.ts',
    'ponder.config.ts',
  ])
    await cp(join(root, path), join(folder, path))
  for await (const path of glob(
    ['packages/ledger/{,tabs/}{migrations,functions,functions/stored}/*.sql', 'indexer/src/**/*.ts'],
    { cwd: root },
  ))
    if (!path.endsWith('.test.ts')) await cp(join(root, path), join(folder, path))

  const { dashboard, indexer, processes, imported } = await writeBundles(folder)
  const bundles = { dashboard: dashboard.packages, indexer, processes }
  await writeFile(join(folder, 'THIRD_PARTY_NOTICES.md'), collectNotices(root, bundles))
  const rootManifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  const manifest = createManifest(
    rootManifest,
    [...new Set([...imported, ...(await readHandlersImports())])].sort(),
    await readPins(root),
  )
  await writeFile(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return { dashboard, indexer, processes }
}

/** Returns the packages that Ponder's handlers import, except Ponder and the packages in its bundle. The handlers aren't bundled. */
async function readHandlersImports(): Promise<string[]> {
  const names: string[] = []
  for await (const path of glob('indexer/src/**/*.ts', { cwd: root })) {
    const text = await readFile(join(root, path), 'utf8')
    for (const [, name = ''] of text.matchAll(/^import (?!type ).* from '([^'.#]+)'/gm))
      if (!/^(node:|ponder(:|$)|viem$)/.test(name)) names.push(name)
  }
  return names
}

/** Writes all JavaScript that the programs need into a folder. In the container image, that folder also holds the sources. */
export async function writeBundles(folder: string) {
  const dashboard = await bundleDashboard()
  const indexer = await writeBundle(join(folder, 'indexer/ponder'))
  const { packages, imported } = await bundleProcesses(folder, {
    'api/dashboard/bundle.ts': await writeDashboard(dashboard, join(folder, 'api/dashboard/assets')),
    'indexer/bundlePonder.ts': `import { join } from 'node:path'
export const bundlePonder = async () => join(import.meta.dirname, 'ponder')`,
  })
  return { dashboard, indexer, processes: packages, imported }
}

/**
 * Writes the dashboard's files.
 *
 * @returns the source of a module that reads these files. It replaces the module that bundles the dashboard at run time.
 */
async function writeDashboard({ assets, ...named }: Bundle, folder: string): Promise<string> {
  await mkdir(folder, { recursive: true })
  for (const { name, content } of assets.values()) await writeFile(join(folder, name), content)
  const files = [...assets.values()].map(({ name, contentType }) => [name, contentType])
  return `import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

const files = ${JSON.stringify(files)}

export async function bundleDashboard() {
  const assets = files.map(async ([name, contentType]) => {
    const content = await readFile(join(import.meta.dirname, 'assets', name))
    return [name, { name, contentType, content }]
  })
  return { ...${JSON.stringify(named)}, assets: new Map(await Promise.all(assets)) }
}
`
}

// With `--image`, writes only the bundles, next to the sources.
if (import.meta.main) await (process.argv[2] === '--image' ? writeBundles(root) : buildTollkeeper())
