import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { createProgram } from './program.ts'

/** Every command and group, by the words that one types. */
function walk(command: Command, path: string[] = []): [string, Command][] {
  const typed = [...path, command.name()]
  return [[typed.join(' '), command], ...command.commands.flatMap((each) => walk(each, typed))]
}

test('default: has every command that the docs describe', () => {
  expect(walk(createProgram()).map(([typed]) => typed.replace('tollkeeper ', ''))).toEqual(
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
        ...['provider upstream', 'provider upstream rotate', 'provider upstream remove'],
        'provider refund',
        'payer debts',
        'payer forgive',
        'payer covers',
        'payer credit',
        'payer unblock',
        'keys rotate',
      ],
    ]),
  )
})

test.each(walk(createProgram()))(
  'args: %s --help says what it is for, with an example of it',
  (typed, command) => {
    const written: string[] = []
    command.configureOutput({ writeOut: (text) => void written.push(text) }).outputHelp()
    const help = written.join('')
    expect(help).toContain(`Usage: ${typed} `)
    expect(command.description()).not.toBe('')
    const [, example = ''] = help.split('\nExample:\n')
    // The lines before it make the files that it reads.
    expect(example).toMatch(
      new RegExp(`^( {2}\\$ .*\n)*? {2}\\$ .*tollkeeper .*${typed.replace(/^tollkeeper ?/, '')}`),
    )
    for (const { long, description } of command.options) expect([long, description]).not.toEqual([long, ''])
  },
)
