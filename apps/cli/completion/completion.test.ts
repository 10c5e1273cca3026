import { execFile, spawnSync } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { createProgram } from '../program.ts'
import { describeProgram } from './describe.ts'
import { renderCompletion, shells } from './render.ts'

const commands = describeProgram(createProgram())
const isInstalled = (shell: string) => spawnSync(shell, ['--version']).status === 0

test.each(shells)('the completion script for %s contains each command and each flag', (shell) => {
  const script = renderCompletion(shell, commands)
  for (const { path, flags, commands: below } of commands) {
    const at = path.map((word) => `/${word}`).join('')
    expect(script).toContain(`${at}`)
    for (const { name } of below) expect(script).toMatch(new RegExp(`[' (]${name}[' :)]`))
    for (const long of flags.flatMap(({ names }) => names.filter((name) => name.startsWith('--'))))
      expect([at, script.includes(shell === 'fish' ? `-l ${long.slice(2)} ` : long)]).toEqual([at, true])
  }
})

test.each(shells.filter(isInstalled))('%s parses its completion script', async (shell) => {
  const script = renderCompletion(shell, commands)
  const flag = shell === 'fish' ? '--no-execute' : '-n'
  const { stderr } = spawnSync(shell, [flag], { input: script, encoding: 'utf8' })
  expect(stderr).toBe('')
})

describe.runIf(isInstalled('bash'))('in bash', () => {
  /** Returns the words that bash offers. The last given word is the one that the user is typing. */
  async function complete(...words: string[]): Promise<string[]> {
    const script = `${renderCompletion('bash', commands)}
COMP_WORDS=(tollkeeper ${words.map((word) => `'${word}'`).join(' ')})
COMP_CWORD=${words.length}
_tollkeeper
printf '%s\\n' "\${COMPREPLY[@]}"`
    const { stdout } = await promisify(execFile)('bash', ['-c', script])
    return stdout.trim().split('\n').filter(Boolean).sort()
  }

  test('completes commands, and the subcommands of a group', async () => {
    expect(await complete('pay')).toEqual(['payer', 'payments'])
    expect(await complete('payments', '')).toEqual(
      expect.arrayContaining(['list', 'show', 'watch', '--help']),
    )
    expect(await complete('provider', 'wallet', 're')).toEqual(['replace', 'retire'])
    expect(await complete('completion', '')).toEqual(expect.arrayContaining(['bash', 'fish', 'zsh']))
  })

  test('completes the flags of a command, of a group’s default command, and of the program', async () => {
    expect(await complete('payments', 'list', '--st')).toEqual(['--status'])
    expect(await complete('payments', 'watch', '--cs')).toEqual([])
    expect(await complete('provider', 'wallet', '--ad')).toEqual(['--address'])
    expect(await complete('--env', 'x', 'doctor', '--de')).toEqual(['--debug'])
  })

  test('completes the values of a flag that has a fixed set', async () => {
    expect(await complete('payments', 'list', '--status', 'se')).toEqual(['settled', 'settling'])
    expect(await complete('provider', 'key', 'add', '--scope', '')).toEqual(['full', 'read'])
  })
})
