/**
 * `npm run bench -- <name> [--json] [--<option> <value>]`: runs bench/<name>.ts, and prints its figures, its goals, and whether other programs
 * disturbed the run. With `--json`, standard output contains only a single line of JSON. A missed goal doesn't change the exit status.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { compareWithGoals, formatGoals, type Goals } from './support/goals.ts'
import { watchMachine } from './support/machine.ts'
import type { Say } from './support/statistics.ts'

type Values = Record<string, number | boolean | string>
type Bench = {
  /** The default of each option, which also determines the option's type. */
  options: Values
  /**
   * Returns the keys of the bench's JSON with these options, in order. `a.b` is a nested key, and the key of an object includes the whole object.
   * Programs compare runs by these keys, so renaming one is a breaking change.
   */
  figures: (options: Values) => readonly string[]
  /** Returns the goals of the bench's figures with these options. */
  goals: (options: Values) => Goals
  run: (options: Values, say: Say) => Promise<object>
  /** Formats the result for a person. Default: one line per key. */
  format?: (result: object, options: Values) => string
}

const [name, ...args] = process.argv.slice(2)
const names = readdirSync(import.meta.dirname)
  .filter((file) => /^\w+\.ts$/.test(file) && file !== 'main.ts')
  .map((file) => file.slice(0, -3))

if (name === undefined || !names.includes(name)) {
  console.error(`usage: npm run bench -- <${names.join('|')}> [--json]`)
  process.exitCode = 1
} else {
  const bench: Bench = await import(join(import.meta.dirname, `${name}.ts`))
  const options = readOptions(name, bench.options)
  if (options) await runBench(bench, options)
}

function readOptions(name: string, defaults: Values): (Values & { json: boolean }) | undefined {
  const types = Object.entries({ ...defaults, json: false }).map(
    ([option, value]) => [option, { type: typeof value === 'boolean' ? 'boolean' : 'string' }] as const,
  )
  try {
    const { values } = parseArgs({ args, options: Object.fromEntries(types) })
    const given = Object.entries(values).map(([option, value]) => {
      const isNumber = typeof defaults[option] === 'number'
      if (isNumber && !Number.isFinite(Number(value))) throw new TypeError(`--${option} must be a number`)
      return [option, isNumber ? Number(value) : value]
    })
    return { ...defaults, json: false, ...Object.fromEntries(given) }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const known = Object.entries(defaults).map(([option, value]) => `--${option} (${value || 'unset'})`)
    console.error(`${name}: ${error.message}\noptions and their defaults: --json, ${known.join(', ')}`)
    process.exitCode = 1
    return undefined
  }
}

async function runBench({ run, format, goals }: Bench, options: Values & { json: boolean }): Promise<void> {
  const lookAgain = await watchMachine()
  const result = await run(options, options.json ? console.error : console.log)
  const report = { ...result, ...(await lookAgain()) }
  const verdicts = compareWithGoals(report, goals(options))
  if (options.json) {
    console.log(JSON.stringify({ ...report, goals: verdicts }))
    return
  }
  if (format) console.log(format(report, options))
  else for (const [key, value] of Object.entries(report)) console.log(key.padEnd(30), value)
  console.log(['', ...formatGoals(verdicts)].join('\n'))
}
