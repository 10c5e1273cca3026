import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { variables } from '@tollkeeper/runtime/variables'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createProgram } from '../../apps/cli/program.ts'
import { useDatabase } from '../support/database.ts'
import { knownMetrics, labelsIn, metricsIn } from '../support/metrics.ts'
import { root } from '../support/processes.ts'

const folder = join(root, 'docs/runbooks')
const read = (path: string) => readFileSync(join(root, path), 'utf8')

const { groups } = parse(read('docs/operations/alerts.yml')) as { groups: { rules: { alert: string }[] }[] }
const alerts = groups.flatMap(({ rules }) => rules.map(({ alert }) => alert))
const runbooks = readdirSync(folder).map(
  (file) => [file.replace(/\.md$/, ''), read(`docs/runbooks/${file}`)] as const,
)
const services = Object.keys((parse(read('compose.yaml'), { merge: true }) as { services: object }).services)

const sql = await useDatabase()

/** Returns the Prometheus queries on a page. */
const queriesOf = (text: string) => [...text.matchAll(/^- Query: `(.*)`$/gm)].map(([, query = '']) => query)
const codeIn = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code)
/** Returns all commands on a page, including those in its text. */
const commandsOf = (text: string) => [
  ...[...text.matchAll(/^- Run: `(.*)`$/gm)].map(([, command = '']) => command),
  ...codeIn(text.replaceAll(/^- Run: .*$/gm, '')).filter((code) =>
    /^(docker|curl|payer|provider) /.test(code),
  ),
]

/** Returns what is wrong with a command of tollkeeper, or undefined if nothing is. */
function judge(args: readonly string[]): string | undefined {
  let command = createProgram()
  let left = [...args]
  for (;;) {
    const next = command.commands.find((one) => one.name() === left[0])
    if (next === undefined) break
    command = next
    left = left.slice(1)
  }
  // A group, such as `provider key`, may be a command itself.
  if (left[0] !== undefined && !left[0].startsWith('-') && command.registeredArguments.length === 0)
    return `${command.name()} has no command ${left[0]}`
  const flags = left.filter((arg) => arg.startsWith('--'))
  // A group may have a default command: `provider key` adds one.
  const options = [command, ...command.commands].flatMap((one) => one.options)
  const unknown = flags.filter((flag) => !options.some(({ long }) => long === flag))
  if (unknown.length > 0) return `${command.name()} has no ${unknown.join()}`
  const missing = command.options.filter(({ mandatory, long }) => mandatory && !flags.includes(long ?? ''))
  return missing.length > 0 ? `${command.name()} needs ${missing.map(({ long }) => long).join()}` : undefined
}

test('default: each alert has a runbook, and each runbook an alert', () => {
  expect(runbooks.map(([name]) => name).toSorted()).toEqual(alerts.toSorted())
})

test.each(runbooks)(
  'behavior: %s states the impact, how to confirm and fix it, and what to do if the fix fails, on one screen',
  (name, text) => {
    const lines = text.trimEnd().split('\n')
    expect(lines.length).toBeLessThanOrEqual(25)
    expect(lines[0]).toBe(`# ${name}`)
    const headings = lines.filter((line) => line.startsWith('#')).slice(1)
    expect(headings).toEqual(['## Impact', '## Confirm', '## Fix', '## If that fails'])
    for (const part of text.split(/^## .*\n/m).slice(1)) expect(part.trim()).not.toBe('')
    expect(queriesOf(text)).not.toEqual([])
  },
)

test.each(runbooks)(
  'behavior: the queries of %s are valid and use existing metrics and labels',
  (name, text) => {
    const known = knownMetrics()
    const queries = queriesOf(text)
    for (const query of queries) {
      const names = metricsIn(query)
      expect(names, query).not.toEqual([])
      for (const metric of names) expect([...known.keys()]).toContain(metric)
      const labels = new Set(names.flatMap((metric) => [...(known.get(metric) ?? [])]))
      for (const label of labelsIn(query)) expect([...labels]).toContain(label)
    }
    // promtool can check an expression only as part of a rule.
    const rules = queries.map((expr, index) => ({ record: `query${index}`, expr }))
    const place = mkdtempSync(join(tmpdir(), 'tollkeeper-runbook-'))
    writeFileSync(join(place, 'rules.json'), JSON.stringify({ groups: [{ name, rules }] }))
    const checked = spawnSync('promtool', ['check', 'rules', join(place, 'rules.json')], { encoding: 'utf8' })
    rmSync(place, { recursive: true })
    if (checked.error === undefined || process.env.CI)
      expect([checked.status, checked.stderr]).toEqual([0, ''])
  },
)

test.each(runbooks)('behavior: the SQL of %s runs on this version of the tables', async (_, text) => {
  const statements = [...commandsOf(text), ...codeIn(text)].flatMap((line) => {
    const [, quoted] = /psql -U tollkeeper -c "(.*)"$/.exec(line) ?? []
    return quoted ?? (/^select /.test(line) ? line : [])
  })
  for (const statement of statements) {
    // Like psql, which doesn't search our schemas.
    const run = sql.begin('read only', async (tx) => {
      await tx`set local search_path to public`
      return tx.unsafe(statement)
    })
    await expect(run, statement).resolves.toBeInstanceOf(Array)
  }
})

describe('commands', () => {
  test.each(runbooks)(
    'behavior: the commands of %s name existing services, commands, flags and paths',
    (_, text) => {
      for (const line of commandsOf(text)) {
        const [program, ...args] = line.split(' ')
        if (program === 'docker') {
          const [compose = '', verb = '', ...rest] = args
          expect(
            [compose, ['ps', 'logs', 'up', 'stop', 'restart', 'exec', 'run'].includes(verb)],
            line,
          ).toEqual(['compose', true])
          const words = rest.join(' ').split(' | ')[0]?.split(' ') ?? []
          const named = words.filter((word) => services.includes(word))
          expect(named, line).not.toEqual([])
          if (verb === 'run') {
            const [remove, role = '', ...command] = words
            expect([remove, ['api', 'keeper'].includes(role)], line).toEqual(['--rm', true])
            expect(judge(command), line).toBeUndefined()
          }
        } else if (program === 'curl') {
          expect(line).toMatch(
            /https:\/\/\$(GATEWAY_HOST|FACILITATOR_HOST)\/(readyz$|operator\/payments\/pay_…\/requeue$)/,
          )
        } else expect(judge(line.replaceAll('…', 'x').split(' ')), line).toBeUndefined()
      }
    },
  )

  test.each(['docs/operations.md', 'docs/deployment.md'])(
    'behavior: the commands of %s exist, with their flags',
    (page) => {
      const lines = read(page)
        .replaceAll(/^```\w*$/gm, '')
        .split(/`|\n/)
        .map((line) => line.replace(/ +#.*$/, ''))
        .flatMap(
          (line) =>
            /^(?:npx --no-install tollkeeper|docker compose run --rm \w+) (.*)$/.exec(line)?.[1] ?? [],
        )
        // An option of the program itself, before its command.
        .map((line) => line.replace(/^--env \S+ /, ''))
      expect(lines.length).toBeGreaterThan(4)
      for (const line of lines) expect(judge(line.replaceAll('…', 'x').split(' ')), line).toBeUndefined()
    },
  )

  test('behavior: finds wrong commands', () => {
    expect(judge(['doctor', '--json'])).toBeUndefined()
    expect(judge(['payer', 'debts', '0x1'])).toBeUndefined()
    expect(judge(['payer', 'dept'])).toBe('payer has no command dept')
    expect(judge(['doctor', '--yaml'])).toBe('doctor has no --yaml')
    expect(judge(['backup', 'record'])).toBe('record needs --kind')
  })

  test.each(runbooks)('behavior: the variables that %s names exist', (_, text) => {
    const names = [...text.matchAll(/\b[A-Z]+(?:_[A-Z]+)+(?:_<NETWORK>)?/g)].map(([name]) => name)
    const hosts = ['GATEWAY_HOST', 'FACILITATOR_HOST']
    for (const name of names.filter((one) => !hosts.includes(one)))
      expect(Object.keys(variables)).toContain(name.replace('<NETWORK>', 'BASE'))
  })
})
