import { execFile } from 'node:child_process'
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { repositoryOf } from './build/manifest.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '..')
const sdk = join(root, 'sdk')

type Manifest = {
  private?: boolean
  devDependencies?: object
  main: string
  types: string
  typesVersions: Record<'*', Record<string, string[]>>
  exports: Record<string, Record<string, string>>
}

/**
 * Builds `@tollkeeper/sdk` as it is published: `npm publish ./sdk/dist`.
 *
 * The folder gets a separate package.json, because the package.json in the checkout points at sources.
 */
export async function buildSdk(folder: string = join(sdk, 'dist')): Promise<void> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  await run(process.execPath, [tsc, '-p', join(sdk, 'tsconfig.build.json'), '--outDir', folder]).catch(
    ({ stdout }: { stdout: string }) => {
      throw new Error(`tsc: ${stdout}`)
    },
  )
  const manifest: Manifest = JSON.parse(await readFile(join(sdk, 'package.json'), 'utf8'))
  await writeFile(join(folder, 'package.json'), `${JSON.stringify(toPublished(manifest), null, 2)}\n`)
  for (const file of ['README.md', 'LICENSE']) await copyFile(join(sdk, file), join(folder, file))
}

/**
 * Removes what only a checkout needs: the tests' packages, the condition `@tollkeeper/source`, `dist/` in the paths, and the export
 * `./*`, by which the other packages of this repository import the SDK's inner modules.
 */
function toPublished({ private: _, devDependencies: __, exports, ...manifest }: Manifest): object {
  const { './*': ___, ...entries } = exports
  const published = Object.entries(entries).map(([path, { '@tollkeeper/source': _, ...conditions }]) => {
    const built = Object.entries(conditions).map(([name, file]) => [name, toBuilt(file)])
    return [path, Object.fromEntries(built)]
  })
  const { main, types, typesVersions } = manifest
  const subpaths = Object.entries(typesVersions['*']).map(([path, files]) => [path, files.map(toBuilt)])
  return {
    ...manifest,
    ...repositoryOf('sdk'),
    // TypeScript's `moduleResolution: node10` and other old tools read these fields instead of `exports`.
    main: toBuilt(main),
    types: toBuilt(types),
    typesVersions: { '*': Object.fromEntries(subpaths) },
    exports: Object.fromEntries(published),
  }
}

function toBuilt(file: string): string {
  return file.replace('./dist/', './')
}

if (import.meta.main) await buildSdk()
