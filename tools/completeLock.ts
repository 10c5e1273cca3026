/**
 * Adds optional packages for other platforms to each package-lock.json, if the registry in use doesn't have these packages.
 *
 * If npm can't find an optional package, it omits the package from the lock. `npm ci` then rejects the lock as incomplete, on every machine. Run this
 * tool after `npm install`. With `--check` it writes nothing, and fails if a package is missing.
 */
import { readFile, writeFile } from 'node:fs/promises'

type Package = {
  version?: string
  dev?: boolean
  optional?: boolean
  os?: string[]
  cpu?: string[]
  libc?: string[]
  optionalDependencies?: Record<string, string>
}

const systems = [
  'android',
  'darwin',
  'freebsd',
  'linux',
  'netbsd',
  'openbsd',
  'openharmony',
  'sunos',
  'win32',
]
const processors = ['arm64', 'arm', 'ia32', 'loong64', 'mips64el', 'ppc64', 'riscv64', 's390x', 'x64']

/** npm's name for a system or processor, by the name that some packages use. */
const aliases: Record<string, string> = { windows: 'win32', 64: 'x64' }

type Lock = { packages: Record<string, Package> }

for (const folder of [
  '.',
  'compat',
  'compat/runtimes',
  'compat/checkers',
  'compat/strangers',
  'compat/frameworks',
])
  await completeLock(`${folder}/package-lock.json`)

async function completeLock(path: string): Promise<void> {
  const file = new URL(`../${path}`, import.meta.url)
  const lock: Lock = JSON.parse(await readFile(file, 'utf8'))
  const missing = findMissing(lock)
  if (missing.length === 0) {
    console.log(`${path} is complete`)
  } else if (process.argv.includes('--check')) {
    console.error(`${path} lacks ${missing.length} packages of other platforms: run npm run lock`)
    process.exitCode = 1
  } else {
    const packages = Object.entries(lock.packages).concat(missing)
    packages.sort(([a], [b]) => a.localeCompare(b, 'en'))
    lock.packages = Object.fromEntries(packages)
    await writeFile(file, `${JSON.stringify(lock, null, 2)}\n`)
    console.log(`${path}: ${missing.length} packages of other platforms added`)
  }
}

function findMissing(lock: Lock): [path: string, entry: Package][] {
  const missing: [path: string, entry: Package][] = []
  for (const [path, parent] of Object.entries(lock.packages)) {
    for (const [name, version] of Object.entries(parent.optionalDependencies ?? {})) {
      if (isLocked(lock, path, name)) continue
      const parts = name
        .slice(name.lastIndexOf('/') + 1)
        .split('-')
        .map((part) => aliases[part] ?? part)
      missing.push([
        `node_modules/${name}`,
        {
          version,
          ...(parent.dev && { dev: true }),
          optional: true,
          ...limit('os', systems, parts),
          ...limit('cpu', processors, parts),
          ...(parts.some((part) => part.startsWith('musl')) && { libc: ['musl'] }),
        },
      ])
    }
  }
  return missing
}

/** Whether the lock has a package where Node would look for it: in the parent's node_modules, then in each folder above. */
function isLocked(lock: Lock, parent: string, name: string): boolean {
  let folder = parent
  while (true) {
    if (lock.packages[`${folder && `${folder}/`}node_modules/${name}`]) return true
    if (folder === '') return false
    folder = folder.slice(0, Math.max(folder.lastIndexOf('/node_modules/'), 0))
  }
}

function limit(key: 'os' | 'cpu', known: string[], parts: string[]): Record<string, string[]> {
  const value =
    parts.find((part) => known.includes(part)) ??
    (key === 'cpu' && parts.includes('gnueabihf') ? 'arm' : undefined)
  return value === undefined ? {} : { [key]: [value] }
}
