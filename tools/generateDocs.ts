/**
 * Writes `.env.example`, docs/configuration.md and the roles' variables in compose.yaml from packages/runtime/variables.ts, and the
 * table of alerts in docs/operations.md from Prometheus' rules.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  commandSections,
  type Reader,
  serverSections,
  type Variable,
  variables,
} from '@tollkeeper/runtime/variables'
import { parse } from 'yaml'

const root = join(import.meta.dirname, '..')
const operations = 'docs/operations.md'

/** The generated files by path, for those who write them and for the test that compares. */
export function renderDocs(): Map<string, string> {
  return new Map([
    ['.env.example', renderExample()],
    ['docs/configuration.md', renderTable()],
    ['compose.yaml', passVariables(readFileSync(join(root, 'compose.yaml'), 'utf8'))],
    [operations, fillIn(readFileSync(join(root, operations), 'utf8'), 'alerts', renderAlerts())],
  ])
}

type Rule = { alert: string; labels: { severity: string }; annotations: { action: string } }

function renderAlerts(): string {
  const { groups } = parse(readFileSync(join(root, 'docs/operations/alerts.yml'), 'utf8'))
  const rules = (groups as { rules: Rule[] }[]).flatMap(({ rules }) => rules)
  const rows = rules.map(({ alert, labels, annotations }) => [
    ...[`\`${alert}\``, labels.severity, annotations.action],
  ])
  return layOut([['alert', 'urgency', 'what it means and what to do'], ...rows]).join('\n')
}

/** Replaces what stands between `<!-- name: … -->` and `<!-- /name -->`. */
export function fillIn(text: string, name: string, content: string): string {
  const [head, rest] = splitAfter(text, new RegExp(`<!-- ${name}: .* -->\\n`))
  const end = rest.indexOf(`<!-- /${name} -->`)
  if (end < 0) throw new Error(`<!-- /${name} --> is missing`)
  return `${head}\n${content}\n\n${rest.slice(end)}`
}

function splitAfter(text: string, pattern: RegExp): [head: string, rest: string] {
  const [found] = pattern.exec(text) ?? []
  if (found === undefined) throw new Error(`${pattern} is missing`)
  const at = text.indexOf(found) + found.length
  return [text.slice(0, at), text.slice(at)]
}

function renderExample(): string {
  const lines = [
    '# Every variable that api, keeper and indexer read, made by `npm run generate`. Copy to .env and fill in; what is',
    '# commented out shows its default. `npm start` and `npm run demo` need none of it. A variable that is set in the',
    '# environment wins over this file; one that is empty is unset. Commands have variables of their own:',
    '# docs/configuration.md.',
  ]
  for (const { title, variables } of serverSections) {
    lines.push('', `# ${title} `.padEnd(119, '-'), '')
    for (const [name, { about, default: fallback, example }] of Object.entries(variables)) {
      lines.push(...wrap(about).map((line) => `# ${line}`))
      lines.push(example === undefined ? `#${name}=${fallback ?? ''}` : `${name}=${example}`)
    }
  }
  return `${lines.join('\n')}\n`
}

function renderTable(): string {
  const lines = [
    '# Configuration',
    '',
    'Made from `packages/runtime/variables.ts` by `npm run generate`. A variable that is empty is unset, in every process. A value that',
    "isn't what was expected stops the process at its start, with a message that names the variable. The servers and `doctor`",
    'warn about a variable that an earlier version read, and about a name that differs from a known one by a typing error.',
    '`independent` is a keeper without a database.',
  ]
  for (const { title, variables } of serverSections)
    lines.push('', `## ${title}`, ...renderSection(variables))
  lines.push(
    '',
    '## Commands',
    '',
    'A person runs these by hand, so `.env.example` leaves their variables out.',
  )
  for (const { title, variables } of commandSections)
    lines.push('', `### ${title}`, ...renderSection(variables))
  return `${lines.join('\n')}\n`
}

/** Who reads the variables of a section, and the table of them. */
function renderSection(variables: Record<string, Variable>): string[] {
  const readersOf = Object.values(variables).map(({ readers }) => readers.join(', '))
  const usual = mostFrequent(readersOf)
  const rows = Object.entries(variables).map(([name, { about, default: fallback }], index) => [
    `\`${name}\``,
    fallback === undefined ? '' : `\`${fallback}\``,
    readersOf[index] === usual ? about : `${about.replace(/,$/, '.')} Read by ${readersOf[index]}.`,
  ])
  const readers = `Read by ${usual} where a row says nothing else.`
  const table = layOut([['variable', 'default', 'meaning'], ...rows])
  return ['', readers, '', ...table]
}

/** Has each role in compose.yaml get all that it reads and that isn't given there by hand. */
function passVariables(text: string): string {
  const generated = /( +# variables of the (\w+):.*\n)(?: +\w+: .*\n)*( +# end\n)/g
  const byHand = parse(text.replaceAll(generated, ''), { merge: true })
  return text.replaceAll(generated, (_, head: string, role: Reader, end: string) => {
    const given = byHand.services[role].environment
    const names = Object.entries<Variable>(variables)
      .filter(([name, { readers }]) => readers.includes(role) && !(name in given))
      .map(([name]) => `      ${name}: \${${name}:-}\n`)
    return head + names.join('') + end
  })
}

function mostFrequent(texts: readonly string[]): string {
  const counts = Map.groupBy(texts, (text) => text)
  return [...counts].toSorted(([, one], [, other]) => other.length - one.length)[0]?.[0] ?? ''
}

/** A table as the formatter wants it: columns of one width, a rule below the first row. */
export function layOut(rows: string[][]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const line = (row: string[], filler = ' ') =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0, filler)).join(' | ')} |`
  const rule = line(Array(widths.length).fill(''), '-')
  return [line(rows[0] ?? []), rule, ...rows.slice(1).map((row) => line(row))]
}

function wrap(text: string): string[] {
  const lines = ['']
  for (const word of text.split(' ')) {
    const line = lines.at(-1) as string
    if (line !== '' && line.length + word.length > 115) lines.push(word)
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`
  }
  return lines
}

if (import.meta.main) {
  for (const [path, text] of renderDocs()) writeFileSync(join(root, path), text)
}
