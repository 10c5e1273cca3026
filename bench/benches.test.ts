import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { killAll, runCommand } from '../test/support/processes.ts'

/** Options that make each bench small. What they leave out has its default, as in a run for figures. */
const sizes: Record<string, Record<string, number>> = {
  burst: { requests: 64 },
  discovery: { endpoints: 100, readers: 2, seconds: 1 },
  facilitator: { rounds: 1, verified: 64, settled: 16, crowd: 80, probes: 1 },
  gas: {},
  index: { authorizations: 600, runs: 1 },
  restart: { authorizations: 20_000, rounds: 1 },
  scale: { rounds: 1, seconds: 1, rate: 100 },
  settle: { payments: 60, buyers: 20, queue: 2_000, rounds: 1, probes: 1 },
  tabs: { rounds: 1, requests: 100 },
  verify: { rounds: 1, requests: 100 },
  views: { payments: 20_000, requests: 8 },
}

type Bench = {
  options: Record<string, number | boolean | string>
  figures: (options: Record<string, number | boolean | string>) => readonly string[]
}

/** The paths of an object's values, in their order. An object that `whole` names is one value. */
function pathsOf(value: unknown, whole: readonly string[], path = ''): string[] {
  const isNested = typeof value === 'object' && value !== null && !Array.isArray(value)
  if (!isNested || whole.includes(path)) return [path]
  return Object.entries(value).flatMap(([key, inner]) =>
    pathsOf(inner, whole, path === '' ? key : `${path}.${key}`),
  )
}

test('default: every bench is run here', () => {
  const files = readdirSync(import.meta.dirname).filter((file) => /^\w+\.ts$/.test(file))
  const names = files.map((file) => file.replace('.ts', '')).filter((name) => name !== 'main')
  expect(names.toSorted()).toEqual(Object.keys(sizes).toSorted())
})

test.each(Object.entries(sizes))(
  'default: %s runs, and its JSON, the only line on standard output, has the keys that it declares',
  async (name, small) => {
    const bench: Bench = await import(join(import.meta.dirname, `${name}.ts`))
    const args = Object.entries(small).flatMap(([option, value]) => [`--${option}`, String(value)])
    const running = runCommand([process.execPath, 'bench/main.ts', name, '--json', ...args])
    onTestFinished(() => killAll(running))
    expect([await running.exited, running.output()]).toEqual([0, expect.anything()])
    const lines = running.stdout().trim().split('\n')
    expect(lines).toHaveLength(1)
    const declared = [...bench.figures({ ...bench.options, ...small }), 'foreignCores', 'disturbed']
    expect(pathsOf(JSON.parse(lines[0] ?? ''), declared)).toEqual(declared)
  },
)
