import { describe, expect, test } from 'vitest'
import { formatTable, printable, shorten } from './output.ts'

describe('formatTable', () => {
  test('default: makes columns as wide as their content, and right-aligns numbers', () => {
    expect(
      formatTable(
        ['name', 'USDC'],
        [
          ['a', '0.010000'],
          ['longer', '12.000000'],
        ],
      )
        .split('\n')
        .slice(1),
    ).toEqual(['a        0.010000', 'longer  12.000000'])
  })
})

describe('printable', () => {
  test('behavior: removes terminal control characters', () => {
    expect(printable('a\u001b[2Jb\u202ec\n')).toBe('a�[2Jb�c�')
  })
})

describe('shorten', () => {
  test('default: keeps both ends of a hash', () => {
    expect(shorten(`0x${'1'.repeat(36)}abcd`)).toBe('0x111111…abcd')
  })
})
