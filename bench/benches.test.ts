import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { killAll, runCommand } from '../test/support/processes.ts'
import { compareWithGoals, type Goals } from './support/goals.ts'

/** Options that make the run of each bench short. All other options keep their defaults. */
const sizes: Record<string, Record<string, number>> = {
  burst: { requests: 64 },
  call: { calls: 4, settled: 1, rounds: 1, mostCallers: 1 },
  cost: { days: 1 },
  discovery: { endpoints: 100, readers: 2, seconds: 1 },
  facilitator: { rounds: 1, verified: 64, settled: 16, crowd: 80, probes: 1 },
  gas: {},
  index: { authorizations: 600, runs: 1 },
  newcomer: { install: 0 },
  restart: { authorizations: 20_000, rounds: 1 },
  scale: { rounds: 1, seconds: 1, rate: 100 },
  settled: { payments: 6, everyMs: 100, graceMs: 3_000 },
  settle: { payments: 60, buyers: 20, queue: 2_000, rounds: 1, probes: 1 },
  tabs: { rounds: 1, requests: 100 },
  verify: { rounds: 1, requests: 100 },
  views: { payments: 20_000, requests: 8 },
}

type Bench = {
  options: Record<string, number | boolean | string>
  figures: (options: Record<string, number | boolean | string>) => readonly string[]
  goals: (options: Record<string, number | boolean | string>) => Goals
}

/** Returns the paths of an object's values, in order. An object whose path is in `whole` counts as one value. */
function pathsOf(value: unknown, whole: readonly string[], path = ''): string[] {
  const isNested = typeof value === 'object' && value !== null && !Array.isArray(value)
  if (!isNested || whole.includes(path)) return [path]
  return Object.entries(value).flatMap(([key, inner]) =>
    pathsOf(inner, whole, path === '' ? key : `${path}.${key}`),
  )
}

test('default: this test file sets options for every bench, so that each bench runs only briefly', () => {
  const files = readdirSync(import.meta.dirname).filter((file) => /^\w+\.ts$/.test(file))
  const names = files.map((file) => file.replace('.ts', '')).filter((name) => name !== 'main')
  expect(names.toSorted()).toEqual(Object.keys(sizes).toSorted())
})

test.each(Object.keys(sizes))(
  'default: %s declares at least one goal, and only goals of figures that it declares',
  async (name) => {
    const { options, figures, goals }: Bench = await import(join(import.meta.dirname, `${name}.ts`))
    const known = figures(options)
    const keys = Object.keys(goals(options))
    expect(keys).not.toEqual([])
    const isFigure = (key: string) => known.some((figure) => key === figure || key.startsWith(`${figure}.`))
    expect(keys.filter((key) => !isFigure(key))).toEqual([])
  },
)

test.each(Object.entries(sizes))(
  'default: %s prints a single line of JSON, with the figures that it declares and with its goals',
  async (name, small) => {
    const bench: Bench = await import(join(import.meta.dirname, `${name}.ts`))
    const args = Object.entries(small).flatMap(([option, value]) => [`--${option}`, String(value)])
    const running = runCommand([process.execPath, 'bench/main.ts', name, '--json', ...args])
    onTestFinished(() => killAll(running))
    expect([await running.exited, running.output()]).toEqual([0, expect.anything()])
    const lines = running.stdout().trim().split('\n')
    expect(lines).toHaveLength(1)
    const options = { ...bench.options, ...small }
    const declared = [...bench.figures(options), 'foreignCores', 'disturbed', 'goals']
    const { goals, ...report } = JSON.parse(lines[0] ?? '')
    expect(pathsOf({ ...report, goals }, declared)).toEqual(declared)
    expect(goals).toEqual(compareWithGoals(report, bench.goals(options)))
  },
)
