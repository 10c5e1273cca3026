import { integer, secret } from '@tollkeeper/runtime/parsers'
import { Command, CommanderError, Option } from 'commander'
import { afterEach, expect, test } from 'vitest'
import { parsedOption, parseValue } from './options.ts'
import { describeUsageError } from './usageError.ts'

const count = integer(1, 9)

/** A program in which each kind of usage error is possible. */
function createProgram() {
  const program = new Command('tollkeeper')
    .exitOverride()
    .configureOutput({ outputError: () => {}, writeErr: () => {} })
  program
    .command('buy')
    .argument('<count>', 'how many', (text) => parseValue(text, count))
    .addOption(parsedOption('-n, --number <number>', 'number', count).env('TEST_NUMBER'))
    .addOption(new Option('--kind <kind>', 'kind').choices(['a', 'b']))
    .addOption(parsedOption('--key <key>', 'key', { ...secret, parse: () => undefined }))
    .action(() => {})
  program
    .command('sell')
    .requiredOption('-p, --price <usdc>', 'price')
    .action(() => {})
  return program
}

function describe(...args: string[]): string {
  const program = createProgram()
  try {
    program.parse(args, { from: 'user' })
  } catch (error) {
    if (error instanceof CommanderError) return describeUsageError(program, args, error)
    throw error
  }
  return 'no error'
}

afterEach(() => {
  delete process.env.TEST_NUMBER
})

test.each([
  [['sel'], 'sel: unknown command. Did you mean sell?'],
  [['nonsense'], 'nonsense: unknown command. See `tollkeeper --help`'],
  [['buy', '1', '--numbr', '2'], '--numbr: unknown option. Did you mean --number?'],
  [['buy', '1', '--nonsense'], '--nonsense: unknown option. See `tollkeeper buy --help`'],
  [['buy', '1', '-n', 'x'], '--number: expected a whole number from 1 to 9, got "x"'],
  [
    ['buy', '1', '-n', "it's\nthis' is invalid. y"],
    '--number: expected a whole number from 1 to 9, got "it\'s\\nthis\' is invalid. y"',
  ],
  [['buy', '1', '--kind', 'c'], '--kind: expected one of a, b, got "c"'],
  [['buy', '1', '--key', 'hunter2'], '--key: expected a text, got something else'],
  [['buy', '1', '--number'], '--number: expected a value. See `tollkeeper buy --help`'],
  [['buy', '10'], '<count>: expected a whole number from 1 to 9, got "10"'],
  [['buy'], '<count>: required. See `tollkeeper buy --help`'],
  [['sell'], '--price: required. See `tollkeeper sell --help`'],
  [
    ['buy', '1', '2'],
    "too many arguments for 'buy'. Expected 1 argument but got 2: 1, 2. See `tollkeeper buy --help`",
  ],
])('names the wrong or missing command, flag or argument in %j', (args, expected) => {
  expect(describe(...args)).toBe(expected)
})

test('names the variable if the value came from a variable', () => {
  process.env.TEST_NUMBER = '0'
  expect(describe('buy', '1')).toBe('TEST_NUMBER: expected a whole number from 1 to 9, got "0"')
})
