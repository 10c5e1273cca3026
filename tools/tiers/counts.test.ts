import { describe, expect, test } from 'vitest'
import { add, countOutput, formatTier, formatTotal, none, selectArguments, sumTiers } from './counts.ts'

test('default: a tier is printed as one line, and a total mentions skipped tests if there are any', () => {
  const counts = add({ passed: 2, failed: 0, skipped: 1 }, none, { passed: 40, failed: 1, skipped: 0 })
  expect(formatTier('system', counts)).toBe('system: 42 passed, 1 failed, 1 skipped')
  expect(formatTotal(counts)).toBe('42 passed, 1 failed, 1 skipped')
  expect(formatTotal({ passed: 7, failed: 0, skipped: 0 })).toBe('7 passed, 0 failed')
})

describe('the lines of several tiers', () => {
  const text =
    'npm 11 accepts the lock: 1 passed, 0 failed, 0 skipped\ndefault: 40 passed, 2 failed, 1 skipped\n'

  test('default: returns the lines and their sum', () => {
    expect(sumTiers(text, ['npm 11 accepts the lock', 'default'])).toEqual({
      lines: text.trim().split('\n'),
      total: { passed: 41, failed: 2, skipped: 1 },
    })
  })

  test('behavior: a tier without a line counts as one failure', () => {
    const { lines, total } = sumTiers(text, ['default', 'system'])
    expect(lines).toEqual([
      'default: 40 passed, 2 failed, 1 skipped',
      'system: 0 passed, 1 failed, 0 skipped',
    ])
    expect(total).toEqual({ passed: 40, failed: 3, skipped: 1 })
  })
})

describe('what a command printed', () => {
  test('default: counts Hardhat’s tests in the output of several runs, with and without colors', () => {
    const output =
      '\n\u001b[32m  85 passing\u001b[39m (3s)\n\u001b[31m  1 failing\u001b[39m\n  12 passing\n  2 skipped\n'
    expect(countOutput(output, false)).toEqual({ passed: 97, failed: 1, skipped: 2 })
  })

  test('default: counts mutants, and counts a survivor as a failure', () => {
    expect(countOutput('12/290 caught: x\n11 of 12 mutants were caught\n', false)).toEqual({
      passed: 11,
      failed: 1,
      skipped: 0,
    })
  })

  test('behavior: a command that prints no counts counts as one check', () => {
    expect(countOutput('nothing to count', true)).toEqual({ passed: 1, failed: 0, skipped: 0 })
    expect(countOutput('nothing to count', false)).toEqual({ passed: 0, failed: 1, skipped: 0 })
  })

  test('behavior: a command that fails although its tests pass counts as a failure', () => {
    expect(countOutput('  85 passing\n', false)).toEqual({ passed: 85, failed: 1, skipped: 0 })
  })
})

describe('the arguments of Vitest', () => {
  const isFile = (path: string) => path === 'test/e2e/payment.test.ts'

  test('default: selects all projects of the tier', () => {
    const { selected, filtered } = selectArguments('system', [], isFile)
    expect(selected).toEqual([
      '--project',
      'system*',
      '--reporter=default',
      '--reporter=./test/support/timesReporter.ts',
      '--reporter=./test/support/tierReporter.ts',
    ])
    expect(filtered).toBe(false)
  })

  test('args: a given reporter replaces the default reporters, but not the reporter that counts the tests', () => {
    const { selected, filtered } = selectArguments('default', ['--reporter=verbose'], isFile)
    expect(selected).toEqual([
      '--project',
      'default*',
      '--reporter=./test/support/tierReporter.ts',
      '--reporter=verbose',
    ])
    expect(filtered).toBe(false)
  })

  test('args: the path of a file selects that file in any tier, but a part of a file name selects only files of the given tier', () => {
    const named = selectArguments('default', ['test/e2e/payment.test.ts'], isFile)
    expect(named.selected).not.toContain('--project')
    const part = selectArguments('default', ['payment'], isFile)
    expect(part.selected).toContain('--project')
    expect([named.filtered, part.filtered]).toEqual([true, true])
  })
})
