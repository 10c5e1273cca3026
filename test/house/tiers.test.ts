import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join, matchesGlob } from 'node:path'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import packageJson from '../../package.json' with { type: 'json' }
import config from '../../vitest.config.ts'
import { root } from '../support/processes.ts'

const read = (path: string) => readFileSync(`${root}${path}`, 'utf8')

type Project = { test: { name: string; include: string[]; exclude?: string[] } }

test('behavior: each test file belongs to exactly one tier', () => {
  const projects = (config.test?.projects ?? []) as Project[]
  // `npm run test:<tier>` runs the projects whose names begin with the tier's.
  for (const { test } of projects) expect(test.name).toMatch(/^(default|system|compat)(-|$)/)
  const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.test.ts'], {
    cwd: root,
    encoding: 'utf8',
  })
  const paths = files.trim().split('\n')
  expect(paths.length).toBeGreaterThan(200)
  const misplaced = paths.flatMap((path) => {
    const matches = (globs: string[] = []) => globs.some((glob) => matchesGlob(path, glob))
    const tiers = projects.filter(({ test: { include, exclude } }) => matches(include) && !matches(exclude))
    return tiers.length === 1 ? [] : [[path, tiers.map(({ test: { name } }) => name)]]
  })
  expect(misplaced).toEqual([])
})

test('behavior: CI runs the README’s command exactly, and then every other tier', () => {
  const [, command] = /^(npx .*npm test") +#/m.exec(read('README.md')) ?? []
  const ci = read('.ci/run')
  expect(ci).toContain(`'${command}'`)
  const others = Object.keys(packageJson.scripts).filter((name) => /^test:(?!all|crash|chaos)/.test(name))
  expect(others).toEqual(['test:system', 'test:compat', 'test:contracts'])
  for (const name of others) expect(ci).toContain(`npm run ${name}"`)
})

test('behavior: CI prints a result line for each tier and one total, which tools/runTests.ts computes', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'ci-'))
  // Replaces npx: instead of running a tier, it prints the tier's line. It prints no line for `test:compat`, as if its installation had failed.
  await writeFile(
    join(folder, 'npx'),
    `#!/usr/bin/env bash
case "$*" in
  *runTests.ts*) shift 3; exec "$@" ;;
  *"npm test"*) echo 'default: 40 passed, 1 failed, 2 skipped' | tee -a "$TIER_LINES"; exit 1 ;;
  *test:system*) echo 'system: 7 passed, 0 failed, 0 skipped' | tee -a "$TIER_LINES" ;;
  *test:compat*) exit 1 ;;
  *test:contracts*) echo 'contracts: 3 passed, 0 failed, 0 skipped' | tee -a "$TIER_LINES" ;;
esac
`,
    { mode: 0o755 },
  )
  const script = read('.ci/run')
    .replace(/^need .*$/gm, '')
    .replace('cd "$(dirname "$0")/.."', `cd ${root}`)
  const path = [folder, dirname(process.execPath), process.env.PATH].join(delimiter)
  const { stdout, status } = spawnSync('bash', ['-c', script], {
    env: { ...process.env, PATH: path },
    encoding: 'utf8',
  })
  expect(stdout.trim().split('\n').slice(-8)).toEqual([
    'npm 10.8.2 accepts package-lock.json: 1 passed, 0 failed, 0 skipped',
    'npm 11 accepts package-lock.json: 1 passed, 0 failed, 0 skipped',
    'default: 40 passed, 1 failed, 2 skipped',
    'system: 7 passed, 0 failed, 0 skipped',
    'compat: 0 passed, 1 failed, 0 skipped',
    'contracts: 3 passed, 0 failed, 0 skipped',
    'npm run check: 1 passed, 0 failed, 0 skipped',
    '53 passed, 2 failed, 2 skipped',
  ])
  expect(status).toBe(1)
  await rm(folder, { recursive: true })
})

test('behavior: the workflow runs every tier on a push, and no job has write permission', () => {
  const { jobs, on, permissions } = parse(read('.github/workflows/test.yml'))
  expect(Object.keys(on)).toEqual(['push', 'pull_request', 'schedule'])
  expect(permissions).toEqual({ contents: 'read' })
  expect(jobs.others.strategy.matrix.tier).toEqual(['system', 'compat', 'contracts'])
  type Job = { permissions?: unknown; steps: { run?: string }[] }
  const steps = Object.values(jobs as Record<string, Job>).flatMap((job) => {
    expect(job.permissions).toBeUndefined()
    return job.steps.map(({ run }) => run ?? '')
  })
  expect(steps).toContain('npm ci && npm test')
  const scripts: string[] = jobs.weekly.strategy.matrix.command.map((one: string) => one.split(' ')[0])
  expect(Object.keys(packageJson.scripts)).toEqual(expect.arrayContaining(scripts))
})
