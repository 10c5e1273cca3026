/**
 * `npm run mutate [-- --only <part of a name> …] [--first | --near] [--list]`: breaks the product in one place at a time, in a copy
 * of the project, and checks that the default tier's tests (Vitest's project `default`) notice each time. It proves that `npm test`
 * asserts what users rely on. `tools/mutants/*.json` lists the mutants, one file for each area.
 *
 * The tests that are most likely to notice run first: the tests that the mutant names, the test next to its file, the tests of its folder, the tests
 * of its area, and all other tests that import the file. The other tests run last. They can notice as well, because some tests start programs by
 * their path. The first failure ends a mutant's run. The test that failed must then pass without the mutant.
 *
 * `--first` runs only the named tests and the test next to the file. `--near` also runs the tests of the folder. The exit status is 1 if a mutant
 * survives.
 */

import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { createVitest, type Reporter, type TestSpecification, type Vitest } from 'vitest/node'

type Mutant = {
  /** Names the mutant by what users would see, in the present tense. */
  name: string
  /** Paths or globs. `find` must occur exactly once in all files that match. */
  file: string | string[]
  find: string
  replace: string
  /** Paths or globs of the tests that run first. */
  tests?: string[]
}

/** These tests judge the source text or the tools, not the behavior of the product. */
const ignored = /^(?:test\/house|tools)\//

const usage = `npm run mutate -- [--only <part of a name> …] [--first | --near] [--list]
  --only   only mutants whose list and name contain this text; can be repeated
  --first  run only the tests that a mutant names and the test next to its file
  --near   also run the tests of the file's folder
  --list   print the mutants, and fail if one no longer applies
`

const { values: options } = parseArgs({
  options: {
    help: { type: 'boolean', default: false },
    only: { type: 'string', multiple: true },
    near: { type: 'boolean', default: false },
    first: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
  },
})

if (options.help) {
  process.stdout.write(usage)
  process.exit(0)
}

const root = join(import.meta.dirname, '..')

/** Reads all mutants, each with the name of its list. @throws {Error} if two have the same name. */
function readMutants(): (Mutant & { area: string })[] {
  const lists = globSync('tools/mutants/*.json', { cwd: root }).sort()
  const all = lists.flatMap((list) => {
    const mutants: Mutant[] = JSON.parse(readFileSync(join(root, list), 'utf8'))
    return mutants.map((mutant) => ({ ...mutant, area: basename(list, '.json') }))
  })
  const names = all.map(({ name }) => name)
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) throw new Error(`Two mutants have the name: ${repeated}`)
  return all
}

/** Returns the path of the file that a mutant changes, relative to the root. @throws {Error} if `find` doesn't occur exactly once. */
function locate({ name, file, find, replace }: Mutant): string {
  if (find === replace) throw new Error(`This mutant changes nothing: ${name}`)
  const found = [...new Set(globSync(file, { cwd: root }))].flatMap((path) => {
    const count = readFileSync(join(root, path), 'utf8').split(find).length - 1
    return Array.from({ length: count }, () => path)
  })
  const [only] = found
  if (only === undefined || found.length > 1) {
    throw new Error(`"find" must occur exactly once, and occurs ${found.length} times: ${name}`)
  }
  return only
}

/** @throws {Error} that lists every mutant that doesn't apply to the current code. */
function requireAllApply(mutants: readonly Mutant[]): void {
  const stale = mutants.flatMap((mutant) => {
    try {
      locate(mutant)
      return []
    } catch (error) {
      return (error as Error).message
    }
  })
  if (stale.length > 0) throw new Error(`${stale.length} mutants don't apply:\n${stale.join('\n')}`)
}

/** Copies all files that Git tracks or would add, and links the packages. */
function copyProject(to: string): void {
  const listed = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  })
  if (listed.status !== 0) throw new Error(`git ls-files failed: ${listed.stderr}`)
  for (const path of listed.stdout.split('\0').filter(Boolean)) {
    cpSync(join(root, path), join(to, path), { recursive: true, force: true })
  }
  linkPackages(join(root, 'node_modules'), join(to, 'node_modules'))
}

/** Links each package separately, because npm's links to our own workspaces must lead into the copy. */
function linkPackages(from: string, to: string): void {
  mkdirSync(to)
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)]
    if (entry.isSymbolicLink()) symlinkSync(readlinkSync(source), target)
    else if (entry.name.startsWith('@')) linkPackages(source, target)
    else symlinkSync(source, target)
  }
}

/** Returns the top folder of a file's area: `keeper`, `packages/ledger`, `sdk/src/client`. */
function areaOf(path: string): string {
  const depth = path.startsWith('sdk/src/') ? 3 : /^(?:apps|packages)\//.test(path) ? 2 : 1
  return path.split('/', depth).join('/')
}

/** Returns the paths of test files in groups, in the order in which the groups run. */
async function groupTests(vitest: Vitest, mutant: Mutant, file: string): Promise<string[][]> {
  const { root } = vitest.config
  const pathOf = ({ moduleId }: TestSpecification) => relative(root, moduleId)
  const all = (await vitest.globTestSpecifications()).map(pathOf).filter((path) => !ignored.test(path))
  vitest.config.related = [join(root, file)]
  const related = new Set((await vitest.getRelevantTestSpecifications()).map(pathOf))
  const first = new Set(globSync(mutant.tests ?? [], { cwd: root }))
  const pathOfSource = file.replace(/\.\w+$/, '')
  const rankOf = (path: string): number => {
    // Nothing imports SQL.
    const isRelated = related.has(path) || file.endsWith('.sql')
    if (first.has(path)) return 0
    if (path === `${pathOfSource}.test.ts`) return 1
    if (isRelated && dirname(path) === dirname(file)) return 2
    if (isRelated && areaOf(path) === areaOf(file)) return 3
    return isRelated ? 4 : 5
  }
  const ranks = options.first ? [0, 1] : options.near ? [0, 1, 2] : [0, 1, 2, 3, 4, 5]
  return ranks.map((rank) => all.filter((path) => rankOf(path) === rank)).filter(({ length }) => length > 0)
}

/** The first failure of a run. Vitest's own results also contain those of earlier runs. */
type Failure = { path: string; title: string }

type Runner = {
  vitest: Vitest
  /** Runs test files until the first failure. */
  run: (paths: readonly string[]) => Promise<{ failure: Failure | undefined; passed: ReadonlySet<string> }>
}

/** Starts Vitest once for many runs, so that all of them share one Postgres server. */
async function startRunner(cwd: string): Promise<Runner> {
  let failure: Failure | undefined
  let passed = new Set<string>()
  const reporter: Reporter = {
    onTestCaseResult(test) {
      const { state } = test.result()
      const path = test.module.relativeModuleId
      const title = `${path} > ${test.fullName}`
      if (state === 'passed') passed.add(title)
      if (state === 'failed') failure ??= { path, title }
    },
    onTestModuleEnd(module) {
      if (module.state() !== 'failed') return
      const path = module.relativeModuleId
      failure ??= { path, title: `${path}, outside its tests` }
    },
  }
  const vitest = await createVitest({
    root: cwd,
    watch: false,
    project: ['default'],
    bail: 1,
    // A mutant may wait forever.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
    reporters: [reporter],
  })
  return {
    vitest,
    async run(paths) {
      failure = undefined
      passed = new Set()
      const ids = new Set(paths.map((path) => join(cwd, path)))
      const all = await vitest.globTestSpecifications()
      const { unhandledErrors } = await vitest.runTestSpecifications(
        all.filter(({ moduleId }) => ids.has(moduleId)),
      )
      if (!failure && unhandledErrors.length > 0) {
        const [error] = unhandledErrors as { message?: unknown }[]
        failure = { path: '', title: `an unhandled error: ${error?.message ?? error}` }
      }
      return { failure, passed }
    },
  }
}

/** Returns the title of the test that notices a mutant, or undefined if none does. */
async function killerOf(
  copy: string,
  mutant: Mutant,
  shared: Runner,
  reliable: Set<string>,
): Promise<string | undefined> {
  const file = locate(mutant)
  const target = join(copy, file)
  const original = readFileSync(target, 'utf8')
  const mutated = original.replace(mutant.find, () => mutant.replace)
  const groups = await groupTests(shared.vitest, mutant, file)
  // A run's Postgres server loads our SQL when it starts, so a mutant of SQL needs a separate server.
  const isSql = file.endsWith('.sql')
  if (isSql) writeFileSync(target, mutated)
  const runner = isSql ? await startRunner(copy) : shared
  const set = (text: string) => {
    writeFileSync(target, text)
    runner.vitest.invalidateFile(target)
  }
  try {
    for (const group of groups) {
      set(mutated)
      const { failure } = await runner.run(group)
      if (!failure) continue
      set(original)
      const { path, title } = failure
      if (path !== '' && !reliable.has(title)) {
        const { failure: again, passed } = await shared.run([path])
        if (again && !passed.has(title)) {
          console.error(
            `ignored the failure of "${title}", because "${again.title}" fails without any mutant`,
          )
          continue
        }
        reliable.add(title)
      }
      return title
    }
    return undefined
  } finally {
    if (isSql) await runner.vitest.close()
    set(original)
  }
}

const mutants = readMutants().filter(
  ({ name, area }) => !options.only || options.only.some((word) => `${area}: ${name}`.includes(word)),
)
requireAllApply(mutants)
if (options.list) {
  for (const mutant of mutants) console.log(`${mutant.area}: ${mutant.name} (${locate(mutant)})`)
} else {
  // If we are root, Postgres runs as another user, who must be able to read the copy.
  const copy = mkdtempSync(join(tmpdir(), 'mutants-'))
  chmodSync(copy, 0o755)
  const survivors: string[] = []
  try {
    copyProject(copy)
    process.chdir(copy)
    const runner = await startRunner(copy)
    const reliable = new Set<string>()
    for (const [index, mutant] of mutants.entries()) {
      const began = performance.now()
      const killer = await killerOf(copy, mutant, runner, reliable)
      const seconds = ((performance.now() - began) / 1_000).toFixed()
      if (killer === undefined) survivors.push(`${mutant.area}: ${mutant.name}`)
      console.log(
        `${index + 1}/${mutants.length} ${mutant.area}: ${mutant.name} → ${killer ?? 'SURVIVED'} (${seconds} s)`,
      )
    }
    await runner.vitest.close()
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
  console.log(`${mutants.length - survivors.length} of ${mutants.length} mutants were caught`)
  for (const survivor of survivors) console.error(`survived: ${survivor}`)
  // Vitest has set the exit status to 1, because the tests that caught mutants failed.
  process.exitCode = survivors.length > 0 ? 1 : 0
}
