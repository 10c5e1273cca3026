import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readLicence } from './notices.ts'

type Manifest = { version: string; dependencies?: Record<string, string> } & Record<string, unknown>

/** Has binaries beneath it that npm chooses by platform. */
const platformDependent = new Set(['vite'])

/**
 * Puts Ponder into the package as a bundled dependency, with the dependencies that it was tested with.
 *
 * Ponder 0.17.7 asks for exactly `@ponder/utils` 0.3.0, which not every registry has. The repository overrides it, but npm
 * heeds the overrides of nobody but the one who installs. npm doesn't install what a bundled package needs either: what lies
 * beneath Ponder in the repository is bundled beneath it, and the package itself depends on the rest.
 *
 * @param root the repository, where everything is installed.
 * @param target the package's folder.
 * @returns Ponder, and what it needs beside it.
 */
export function vendorPonder(root: string, target: string): Record<string, string> {
  const source = join(root, 'node_modules/ponder')
  const inner = join(source, 'node_modules')
  const beside: Record<string, string> = {}

  const bundle = (folder: string) => {
    const { devDependencies, peerDependencies, peerDependenciesMeta, scripts, ...manifest } =
      readManifest(folder)
    const path = folder.slice(root.length)
    cpSync(folder, join(target, path), {
      recursive: true,
      filter: (file) => isNeeded(file.slice(folder.length)),
    })
    writeFileSync(join(target, path, 'LICENSE'), `${readLicence(root, folder)}\n`)
    const names = Object.keys(manifest.dependencies ?? {})
    const pins = names.map((name) => {
      const nested = join(inner, name)
      const isNested = existsSync(nested)
      const { version } = readManifest(isNested ? nested : join(root, 'node_modules', name))
      if (isNested && !platformDependent.has(name)) bundle(nested)
      else beside[name] = version
      return [name, version]
    })
    const written = { ...manifest, dependencies: Object.fromEntries(pins) }
    writeFileSync(join(target, path, 'package.json'), `${JSON.stringify(written, null, 2)}\n`)
  }

  bundle(source)
  return { ponder: readManifest(source).version, ...beside }
}

/** What runs, without sources, source maps and types. */
function isNeeded(path: string): boolean {
  return !/^\/(node_modules|src|test|docs?|benchmarks|dist\/types)(\/|$)|\.(map|[cm]?ts)$/.test(path)
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
}
