import { expect, test } from 'vitest'
import { formatCsvLine } from './csv.ts'

test('default: formats a line of RFC 4180', () => {
  expect(formatCsvLine(['a', 1, 2n, undefined, null, 'b,c', 'say "x"', 'two\nlines'])).toBe(
    'a,1,2,,,"b,c","say ""x""","two\nlines"\r\n',
  )
})

test.each(['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', '＝1', '＠x'])(
  'behavior: puts an apostrophe before %j, so that no spreadsheet reads it as a formula',
  (text) => {
    expect(formatCsvLine([text])).toMatch(/^"?'/)
  },
)

test('behavior: does not change a negative amount', () => {
  expect(formatCsvLine(['-0.050000', '-0.05+1'])).toBe("-0.050000,'-0.05+1\r\n")
})
