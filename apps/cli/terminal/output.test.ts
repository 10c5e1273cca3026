import { describe, expect, test } from 'vitest'
import { formatTable, printable, shorten } from './output.ts'

describe('formatTable', () => {
  test('default: columns as wide as they must be, numbers to the right', () => {
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
  test('behavior: nothing that steers a terminal', () => {
    expect(printable('a\u001b[2Jb\u202ec\n')).toBe('a�[2Jb�c�')
  })
})

describe('shorten', () => {
  test('default: both ends', () => {
    expect(shorten(`0x${'1'.repeat(36)}abcd`)).toBe('0x111111…abcd')
  })
})
