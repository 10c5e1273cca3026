import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import type { Goals } from '../../bench/support/goals.ts'
import { root } from '../support/processes.ts'

type Options = Record<string, number | boolean | string>
type Bench = { options: Options; goals: (options: Options) => Goals }
type Row = { what: string; goal: string; figure: string; command: string }

const page = readFileSync(join(root, 'docs/performance.md'), 'utf8')
const names = readdirSync(join(root, 'bench'))
  .filter((file) => /^\w+\.ts$/.test(file) && file !== 'main.ts')
  .map((file) => file.slice(0, -3))

/** The rows of the table after the comment that names this test. */
function readRows(): Row[] {
  const [, rest] = page.split('<!-- goals: test/house/performance.test.ts ')
  if (rest === undefined) throw new Error('docs/performance.md has no table of goals')
  const lines = rest.slice(rest.indexOf('\n')).trimStart().split('\n\n')[0]?.split('\n') ?? []
  return lines.slice(2).map((line) => {
    const [what = '', goal = '', figure = '', , command = ''] = line
      .split(/(?<!\\)\|/)
      .slice(1, -1)
      .map((cell) => cell.trim())
    return { what, goal, figure, command }
  })
}

/** Reads a command such as `bench -- index --authorizations 60000` and the keys of figures after it. */
function readCommand(command: string): { bench: string; options: Options; keys: string[] } | undefined {
  const [run = '', ...keys] = [...command.matchAll(/`([^`]+)`/g)].map(([, text]) => text as string)
  const [, bench, args = ''] = /^bench -- (\w+)(.*)$/.exec(run) ?? []
  if (bench === undefined) return undefined
  const given = [...args.matchAll(/--([\w-]+) (\S+)/g)].map(([, name = '', value]) => [name, Number(value)])
  return { bench, options: Object.fromEntries(given), keys }
}

/** Reads the first number of a cell, such as 1000 of `≤ 1,000 ms`. */
const numberIn = (cell: string) => Number(/[\d.,]*\d/.exec(cell)?.[0].replaceAll(',', '') ?? Number.NaN)

const rows = readRows()
const benches = new Map<string, Bench>()

beforeAll(async () => {
  for (const name of names) benches.set(name, await import(join(root, 'bench', `${name}.ts`)))
})

describe('the table of docs/performance.md', () => {
  test('behavior: the table names only existing benches, options and figures, each with the goal that its bench declares', () => {
    for (const { what, goal, command } of rows) {
      const read = readCommand(command)
      if (read === undefined) continue
      const bench = benches.get(read.bench)
      expect([what, bench?.options]).toEqual([what, expect.objectContaining({})])
      const { options, goals } = bench as Bench
      expect([what, Object.keys(read.options).filter((name) => !(name in options))]).toEqual([what, []])
      const declared = goals({ ...options, ...read.options })
      const bound = goal.startsWith('≥') ? 'at least' : 'at most'
      expect([what, read.keys.map((key) => declared[key])]).toEqual([
        what,
        read.keys.map(() => ({ bound, goal: numberIn(goal) })),
      ])
    }
  })

  test('behavior: the table has every goal that a bench declares for its default options', () => {
    const shown = rows.flatMap(({ command }) => {
      const { bench, keys = [] } = readCommand(command) ?? {}
      return keys.map((key) => `${bench} ${key}`)
    })
    const declared = [...benches].flatMap(([name, { options, goals }]) =>
      Object.keys(goals(options)).map((key) => `${name} ${key}`),
    )
    expect(declared.filter((key) => !shown.includes(key))).toEqual([])
  })

  test('behavior: a figure is bold exactly if it misses its goal, and the reason is below the table', () => {
    const [, reasons = ''] = page.split('### Missed goals\n')
    for (const { what, goal, figure } of rows) {
      expect(goal).toMatch(/^[≥≤] [\d.,]+/)
      if (figure === 'not measured') continue
      const [limit, value] = [numberIn(goal), numberIn(figure)]
      const isMissed = goal.startsWith('≥') ? value < limit : value > limit
      expect([what, value >= 0, figure.startsWith('**')]).toEqual([what, true, isMissed])
      if (isMissed) expect(reasons).toContain(`\n- _${what}_: `)
    }
  })
})
