import { readFile } from 'node:fs/promises'
import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { createProgram } from './program.ts'

/** Yields every command and group, with the words that a user types. */
function walk(command: Command, path: string[] = []): [string, Command][] {
  const typed = [...path, command.name()]
  return [[typed.join(' '), command], ...command.commands.flatMap((each) => walk(each, typed))]
}

const all = walk(createProgram())
const leaves = all.filter(([, command]) => command.commands.length === 0)

function helpOf(command: Command): string {
  const written: string[] = []
  command
    .configureOutput({ writeOut: (text) => void written.push(text), getOutHelpWidth: () => 200 })
    .outputHelp()
  return written.join('')
}

test('tollkeeper has every command that the docs describe', () => {
  expect(all.map(([typed]) => typed.replace('tollkeeper ', ''))).toEqual(
    expect.arrayContaining([
      ...['start', 'demo', 'dev', 'buy', 'api', 'keeper', 'indexer', 'deploy', 'audit', 'receipts', 'doctor'],
      ...[
        ...['provider create', 'provider update', 'provider disable', 'provider enable', 'provider changes'],
        ...['provider wallet', 'provider wallet list', 'provider wallet replace', 'provider wallet retire'],
        ...['provider endpoint', 'provider endpoint list', 'provider endpoint update'],
        ...['provider endpoint disable', 'provider endpoint enable'],
        ...[
          'provider webhook',
          'provider webhook list',
          'provider webhook rotate',
          'provider webhook remove',
        ],
        ...['provider key', 'provider key add', 'provider key list', 'provider key revoke'],
        ...['provider hook', 'provider hook test', 'provider hook rotate', 'provider hook remove'],
        ...['provider upstream', 'provider upstream rotate', 'provider upstream remove'],
        'provider refund',
        'sales stop',
        'sales start',
        'sales status',
        'payer debts',
        'payer forgive',
        'payer covers',
        'payer credit',
        'payer unblock',
        'keys rotate',
      ],
      ...['payments list', 'payments show', 'payments watch', 'statement', 'price', 'tabs list', 'tabs lost'],
      ...['init', 'login', 'logout', 'profiles', 'webhook test', 'completion'],
    ]),
  )
})

test('tollkeeper --help groups the commands by purpose, in the order Try it, Sell, Buy, Operate, Audit', () => {
  const help = helpOf(createProgram())
  const headings = ['Try it:', 'Sell:', 'Buy:', 'Operate:', 'Audit:']
  const places = headings.map((heading) => help.indexOf(`\n${heading}\n`))
  expect(places).toEqual(places.toSorted((a, b) => a - b))
  expect(Math.min(...places)).toBeGreaterThan(0)
  // Every command belongs to a group.
  expect(help).not.toContain('\nCommands:\n')
  const [start = ''] = help.split('\nUsage:')
  for (const [, command = ''] of start.matchAll(/tollkeeper (\w+)/g))
    expect(createProgram().commands.map((each) => each.name())).toContain(command)
  expect(start.match(/^ {2}(Try it|Sell|Buy|Operate|Audit) +tollkeeper /gm)).toHaveLength(5)
  for (const status of ['0 ', '1 ', '2 ', '3 ', '130 ']) expect(help).toContain(`\n  ${status}`)
})

test.each(all)('%s --help describes its purpose, with an example', (typed, command) => {
  const help = helpOf(command)
  expect(help).toContain(`Usage: ${typed} `)
  expect(command.description()).not.toBe('')
  const [, example = ''] = help.split('\nExample:\n')
  // The earlier lines of the example create the files that this line reads.
  expect(example).toMatch(
    new RegExp(`^( {2}\\$ .*\n)*? {2}\\$ .*tollkeeper .*${typed.replace(/^tollkeeper ?/, '')}`),
  )
  for (const { long, description } of command.options) expect([long, description]).not.toEqual([long, ''])
})

/** Words for which there is a plainer word. */
const dialect =
  /\b(whoever|whatever|nobody|somebody|everybody|anybody|anew|once more|for good|all the same|beside|dear|tells?|told|hears?|it is told|that it is|gone on)\b/i

test.each(all)('the help texts of %s are plain sentences', (_, command) => {
  const summary = command.summary()
  if (summary !== '') expect(summary).toMatch(/^\S.*[^.]$/)
  expect(command.description()).toMatch(/^[A-Z].*\.$/s)
  const texts = [summary, command.description(), ...command.options.map(({ description }) => description)]
  for (const text of texts) expect(text).not.toMatch(dialect)
})

/** These commands print no data, or always use another format. */
const withoutJson = [
  ...['start', 'dev', 'api', 'keeper', 'indexer', 'mcp buy', 'mcp sell'],
  // Prints a script.
  'completion',
]

test.each(leaves)('%s has --json if it prints data', (typed, command) => {
  const hasJson = command.options.some(({ long }) => long === '--json')
  expect([typed, hasJson]).toEqual([typed, !withoutJson.includes(typed.replace('tollkeeper ', ''))])
})

test.each(leaves)('%s rejects an unknown flag', async (typed) => {
  const program = createProgram()
  program.configureOutput({ writeErr: () => {} })
  const args = [...typed.split(' ').slice(1), '--nonsense']
  await expect(program.parseAsync(args, { from: 'user' })).rejects.toMatchObject({
    code: expect.stringMatching(/^commander\./),
  })
})

const docs = await readFile(new URL('../../docs/cli.md', import.meta.url), 'utf8')

test('docs/cli.md has every exit status', () => {
  for (const status of [0, 1, 2, 3, 130]) expect(docs).toMatch(new RegExp(`\n\\| ${status} +\\|`))
})

const typedInDocs = [...docs.replaceAll('\\\n', ' ').matchAll(/npx --no-install tollkeeper ([^`\n#>(]+)/g)]
  .map(([, line = '']) => line.trim())
  .filter((line) => !line.startsWith('<'))

test.each(typedInDocs)('docs/cli.md: `tollkeeper %s` is a command with these flags', async (line) => {
  const program = createProgram()
  const ran: string[] = []
  for (const [typed, command] of walk(program)) {
    command.configureOutput({ writeOut: () => {}, writeErr: () => {} })
    if (command.commands.length === 0) command.action(() => void ran.push(typed))
  }
  const args = line.replaceAll('…', 'x').split(/\s+/)
  const before = { ...process.env }
  const profiles = '/nowhere/of/tests'
  Object.assign(process.env, { TOLLKEEPER_PROVIDER_ID: 'prov_x', XDG_CONFIG_HOME: profiles })
  try {
    // With --help, or if a group is given without a command, the program ends without running an action.
    const isHelp = args.includes('--help')
    const parsed = program.parseAsync(args, { from: 'user' })
    if (isHelp) await expect(parsed).rejects.toMatchObject({ code: 'commander.helpDisplayed' })
    else await parsed
    expect(ran).toHaveLength(isHelp ? 0 : 1)
  } finally {
    for (const name of ['TOLLKEEPER_PROVIDER_ID', 'XDG_CONFIG_HOME']) {
      if (before[name] === undefined) delete process.env[name]
      else process.env[name] = before[name]
    }
  }
})
