import { createHash } from 'node:crypto'
import { glob, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build } from 'esbuild'

const root = join(import.meta.dirname, '..')
const daysValid = 7

/** Tests that take minutes and seldom concern a change: they are skipped while just this passed a short time ago. */
export type Suite = {
  /** Says what passed last. Only a full run writes it; a run without it is full. */
  passedFile: string
  /** Globs of the files that the tests read. */
  read: readonly string[]
  /** Globs of what they start or import. All that these import counts. */
  programs: readonly string[]
  /** Names of the scripts of package.json that they call. */
  scripts: readonly string[]
}

/** One lock for all packages: a change of any of them costs a run. */
const lock = 'package-lock.json'

/** Contracts and their tests, what these read, and the files that generateAbi.ts compares. */
export const contracts: Suite = {
  passedFile: 'contracts/passed.json',
  read: [
    'contracts/**/*.sol',
    'test/vectors/*.json',
    'snapshots/*',
    '.gas-snapshot',
    'sdk/src/protocol/{abi/*.ts,deployments.json}',
    '{apps/devstack/chain,chain,bench}/generated/*.ts',
    lock,
  ],
  programs: ['tools/{testContracts,generateAbi,checkCoverage,coverageConfig}.ts', 'hardhat.config.ts'],
  scripts: ['gas:check', 'coverage:contracts'],
}

/** Other people's programs and runtimes, and all of ours that they meet: the SDK, gateway, keeper and index. */
export const strangers: Suite = {
  passedFile: 'test/strangers/passed.json',
  read: [
    'test/{strangers,runtimes}/*.{ts,js,capnp}',
    'test/{strangers,runtimes}/package{,-lock}.json',
    'test/strangers/app/**/*.js',
    '{packages/ledger,api}/**/*.sql',
    'examples/next/app/**/*.ts',
    'docs/x402.md',
    'sdk/package.json',
    lock,
  ],
  programs: [
    'test/e2e/strangers.test.ts',
    '{api,keeper,indexer}/main.ts',
    // These start them by path.
    '{packages/chain/signatureThread,apps/devstack/chain/node,ponder.config}.ts',
    'indexer/{ponder.schema,src/*}.ts',
    'sdk/src/{index,*/index,middleware/{express,fetch,hono}}.ts',
  ],
  scripts: [],
}

/** The last run of a suite in which everything passed. */
export type Passed = {
  /** SHA-256 of all that the outcome depends on: {@link hashInputs}. */
  inputs: string
  /** ISO 8601. */
  at: string
}

/** Paths of the files on which the outcome depends. */
export async function listInputs({ programs, read }: Pick<Suite, 'programs' | 'read'>): Promise<string[]> {
  const entryPoints = await find(programs)
  const { metafile } = await build({
    entryPoints,
    absWorkingDir: root,
    outdir: 'unused',
    write: false,
    conditions: ['@tollkeeper/source'],
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    metafile: true,
  })
  return [...new Set([...Object.keys(metafile.inputs), ...(await find(read))])].sort()
}

async function find(globs: readonly string[]): Promise<string[]> {
  const paths: string[] = []
  for await (const path of glob(globs, { cwd: root })) paths.push(path)
  return paths
}

export async function hashInputs(suite: Suite): Promise<string> {
  const hash = createHash('sha256')
  const add = (name: string, content: string | Buffer) =>
    hash.update(`${name} ${content.length}\n`).update(content)
  for (const path of await listInputs(suite)) add(path, await readFile(join(root, path)))
  const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  for (const name of suite.scripts) add(name, manifest.scripts[name])
  return hash.digest('hex')
}

/** Why a suite has to run: what differs from the last run that passed. Null: nothing does, and that run is young. */
export function reasonToRun(
  { passedFile }: Pick<Suite, 'passedFile'>,
  passed: Passed | undefined,
  inputs: string,
  now: Date,
): string | null {
  if (passed === undefined) return `${passedFile} is missing`
  if (passed.inputs !== inputs) return `what the tests depend on differs from ${passedFile}`
  const days = (now.getTime() - Date.parse(passed.at)) / 86_400_000
  if (days >= 0 && days < daysValid) return null
  return `${passedFile} is of ${passed.at}, and holds for ${daysValid} days`
}

export async function readPassed({ passedFile }: Suite): Promise<Passed | undefined> {
  const text = await readFile(join(root, passedFile), 'utf8').catch(() => undefined)
  return text === undefined ? undefined : (JSON.parse(text) as Passed)
}

/** Call it after everything passed. What somebody has changed meanwhile has passed in no run: nothing is written then. */
export async function writePassed(suite: Suite, inputs: string): Promise<void> {
  if ((await hashInputs(suite)) !== inputs) return
  const passed: Passed = { inputs, at: new Date().toISOString() }
  await writeFile(join(root, suite.passedFile), `${JSON.stringify(passed, null, 2)}\n`)
}
