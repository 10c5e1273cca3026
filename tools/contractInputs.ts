import { createHash } from 'node:crypto'
import { glob, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build } from 'esbuild'

const root = join(import.meta.dirname, '..')
const passedFile = 'contracts/passed.json'
const daysValid = 7

/** The last run of testContracts.ts in which everything passed. */
export type Passed = {
  /** SHA-256 of all that the outcome depends on: {@link hashInputs}. */
  inputs: string
  /** ISO 8601. */
  at: string
}

/** Contracts and their tests, what these read, and the files that generateAbi.ts compares. */
const read = [
  'contracts/**/*.sol',
  'test/vectors/*.json',
  'snapshots/*',
  '.gas-snapshot',
  'sdk/src/protocol/{abi/*.ts,deployments.json}',
  '{local/chain,chain,bench}/generated/*.ts',
  // The compiler, Hardhat and the libraries. One lock for all: a change of any package costs a run.
  'package-lock.json',
]
/** With all that they import. */
const programs = ['testContracts', 'generateAbi', 'checkCoverage', 'coverageConfig'].map(
  (name) => `tools/${name}.ts`,
)
const scripts = ['gas:check', 'coverage:contracts']

/** Paths of the files on which the outcome depends. */
export async function listInputs(): Promise<string[]> {
  const { metafile } = await build({
    ...{
      entryPoints: [...programs, 'hardhat.config.ts'],
      absWorkingDir: root,
      outdir: 'unused',
      write: false,
    },
    ...{ bundle: true, packages: 'external', platform: 'node', format: 'esm', metafile: true },
  })
  const paths = new Set(Object.keys(metafile.inputs))
  for await (const path of glob(read, { cwd: root })) paths.add(path)
  return [...paths].sort()
}

export async function hashInputs(): Promise<string> {
  const hash = createHash('sha256')
  const add = (name: string, content: string | Buffer) =>
    hash.update(`${name} ${content.length}\n`).update(content)
  for (const path of await listInputs()) add(path, await readFile(join(root, path)))
  const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  for (const name of scripts) add(name, manifest.scripts[name])
  return hash.digest('hex')
}

/** Why everything has to run: what differs from the last run that passed. Null: nothing does, and that run is young. */
export function reasonToRun(passed: Passed | undefined, inputs: string, now: Date): string | null {
  if (passed === undefined) return `${passedFile} is missing`
  if (passed.inputs !== inputs)
    return `the contracts, or what their tests depend on, differ from ${passedFile}`
  const days = (now.getTime() - Date.parse(passed.at)) / 86_400_000
  if (days >= 0 && days < daysValid) return null
  return `${passedFile} is of ${passed.at}, and holds for ${daysValid} days`
}

export async function readPassed(): Promise<Passed | undefined> {
  const text = await readFile(join(root, passedFile), 'utf8').catch(() => undefined)
  return text === undefined ? undefined : (JSON.parse(text) as Passed)
}

export async function writePassed(passed: Passed): Promise<void> {
  await writeFile(join(root, passedFile), `${JSON.stringify(passed, null, 2)}\n`)
}
