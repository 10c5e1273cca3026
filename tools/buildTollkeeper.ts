import { execFile } from 'node:child_process'
import { cp, glob, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Bundle, bundleDashboard } from '../api/dashboard/bundle.ts'
import { writeBundle } from '../indexer/bundlePonder.ts'
import { createManifest } from './build/manifest.ts'
import { collectNotices } from './build/notices.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '..')

/**
 * Builds the package `tollkeeper` as it is published: `npm publish ./dist/tollkeeper`.
 *
 * JavaScript by plain tsc, each file where its source lies, since Node strips no types under node_modules. It checks no
 * types, which would be five sixths of its time: `npm run check` does. Ponder's schema and handlers stay TypeScript: its
 * build id is a hash of these bytes.
 *
 * @returns the dashboard's bundle, and the packages in Ponder's.
 */
export async function buildTollkeeper(
  folder: string = join(root, 'dist/tollkeeper'),
): Promise<{ dashboard: Bundle; indexer: string[] }> {
  await rm(folder, { recursive: true, force: true })
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  // All that runs; and declarations, for what others import: `tollkeeper/testing`.
  for (const config of ['tsconfig.json', 'tsconfig.types.json']) {
    const args = ['-p', join(root, 'tools/build', config), '--outDir', folder]
    await run(process.execPath, [tsc, ...args]).catch(({ stdout }: { stdout: string }) => {
      throw new Error(`tsc: ${stdout}`)
    })
  }
  // The SDK's sources were compiled along; the package depends on the SDK's own.
  await rm(join(folder, 'sdk'), { recursive: true })

  for (const path of [
    'LICENSE',
    'README.md',
    '.env.example',
    'cli/tollkeeper.js',
    'indexer/ponder.schema.ts',
  ])
    await cp(join(root, path), join(folder, path))
  for await (const path of glob(['ledger/migrations/*.sql', 'indexer/src/**/*.ts'], { cwd: root }))
    if (!path.endsWith('.test.ts')) await cp(join(root, path), join(folder, path))
  const dashboard = await bundleDashboard()
  await writeDashboard(dashboard, join(folder, 'api/dashboard'))
  const indexer = await writePonder(join(folder, 'indexer'))
  const notices = collectNotices(root, { dashboard: dashboard.packages, indexer })
  await writeFile(join(folder, 'THIRD_PARTY_NOTICES.md'), notices)

  const rootManifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  const manifest = createManifest(rootManifest, await readImported(folder))
  await writeFile(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return { dashboard, indexer }
}

/** In the place of the module that bundles the dashboard, one that reads what was bundled here: users need no bundler. */
async function writeDashboard({ assets, ...named }: Bundle, folder: string): Promise<void> {
  await mkdir(join(folder, 'assets'))
  for (const { name, content } of assets.values()) await writeFile(join(folder, 'assets', name), content)
  const files = [...assets.values()].map(({ name, contentType }) => [name, contentType])
  const source = `// Written by tools/buildTollkeeper.ts.
import { readFile } from 'node:fs/promises'

const files = ${JSON.stringify(files)}

export async function bundleDashboard() {
  const assets = files.map(async ([name, contentType]) => {
    const content = await readFile(new URL(\`assets/\${name}\`, import.meta.url))
    return [name, { name, contentType, content }]
  })
  return { ...${JSON.stringify(named)}, assets: new Map(await Promise.all(assets)) }
}
`
  await writeFile(join(folder, 'bundle.js'), source)
}

/** As with the dashboard. */
async function writePonder(folder: string): Promise<string[]> {
  const packages = await writeBundle(join(folder, 'ponder'))
  const source = `// Written by tools/buildTollkeeper.ts.
import { join } from 'node:path'

export const bundlePonder = async () => join(import.meta.dirname, 'ponder')
`
  await writeFile(join(folder, 'bundlePonder.js'), source)
  return packages
}

/** The packages that the files import; not Node's own modules and not Ponder, which is in its bundle. */
async function readImported(folder: string): Promise<string[]> {
  const names = new Set<string>()
  for await (const file of glob('**/*.{js,ts}', {
    cwd: folder,
    exclude: ['**/assets/**', 'indexer/ponder/**', '**/*.d.ts'],
  })) {
    const text = await readFile(join(folder, file), 'utf8')
    for (const [, specifier = ''] of text.matchAll(
      /(?:^(?:import|export) (?:[\w\s{},*$]+ from )?|\bimport\()'([^'.#][^']*)'/gm,
    )) {
      if (/^(node:|ponder(:|$))/.test(specifier)) continue
      names.add(specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/'))
    }
  }
  return [...names].sort()
}

if (import.meta.main) await buildTollkeeper()
