import { execFile } from 'node:child_process'
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { inject } from 'vitest'
import { readPins } from '../../tools/build/workspaces.ts'
import { buildSdk } from '../../tools/buildSdk.ts'
import { buildTollkeeper } from '../../tools/buildTollkeeper.ts'
import { root } from './processes.ts'
import { until } from './until.ts'

const run = promisify(execFile)

export type Installed = {
  /** The folder in which `npm install` ran, which contains only node_modules. */
  folder: string
  /** Path of the command `tollkeeper`. */
  bin: string
  /** Path of the built `@tollkeeper/sdk`. */
  sdk: string
  /** Paths of the files in tollkeeper's tarball. */
  packed: string[]
  /** npm packages whose code is in the dashboard's bundle, and the dashboard's files. */
  dashboard: { packages: string[]; assets: string[] }
  /** npm packages whose code is in Ponder's bundle. */
  indexer: string[]
  /** npm packages whose code is in the bundles of our programs. */
  processes: string[]
}

/**
 * Builds, packs and installs both packages by npm, as users get them. This happens once per run, in the first call; later calls wait for its result.
 */
export async function installPackages(): Promise<Installed> {
  const folder = join(inject('runFolder'), 'package')
  const outcome = join(folder, 'outcome.json')
  const isFirst = await mkdir(folder).then(
    () => true,
    () => false,
  )
  if (isFirst) {
    const result = await install(folder).then(
      (installed) => ({ installed }),
      (error: unknown) => ({ error: String(error) }),
    )
    await writeFile(`${outcome}.new`, JSON.stringify(result))
    await rename(`${outcome}.new`, outcome)
  }
  let text: string | undefined
  const isThere = async () => {
    text = await readFile(outcome, 'utf8').catch(() => undefined)
    return text !== undefined
  }
  await until('the packages are installed', isThere, 900_000)
  const { installed, error } = JSON.parse(text ?? '') as { installed?: Installed; error?: string }
  if (installed === undefined) throw new Error(`the packages could not be installed: ${error}`)
  return installed
}

async function install(parent: string): Promise<Installed> {
  const folder = join(parent, 'empty')
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{ "private": true }')
  const [{ dashboard, indexer, processes }] = await Promise.all([
    buildTollkeeper(join(parent, 'tollkeeper')),
    buildSdk(join(parent, 'sdk')),
  ])
  const { stdout } = await npm(['pack', './sdk', './tollkeeper', '--json'], parent)
  const results = Object.values(JSON.parse(stdout)) as { filename: string; files: { path: string }[] }[]
  const tarballs = results.map(({ filename }) => join(parent, filename))
  const viem = `viem@${(await readPins(root)).viem}`
  await npm(['install', '--prefer-offline', '--no-audit', '--no-fund', ...tarballs, viem], folder)
  return {
    folder,
    bin: join(folder, 'node_modules/.bin/tollkeeper'),
    sdk: join(parent, 'sdk'),
    packed: results.at(-1)?.files.map(({ path }) => path) ?? [],
    dashboard: { packages: [...dashboard.packages], assets: [...dashboard.assets.keys()] },
    indexer,
    processes,
  }
}

/** Runs npm as from a terminal, without the variables that npm set for this process. */
function npm(args: string[], cwd: string) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)))
  return run('npm', args, { cwd, env, maxBuffer: 1e8 })
}
