import { expect, test } from 'vitest'
import { href, parseRoute } from './routing.ts'

test.each([
  ['', []],
  ['#', []],
  ['#/', []],
  ['#/queue', ['queue']],
  ['#/batches/base/0xab', ['batches', 'base', '0xab']],
  ['#/payments/a%2Fb', ['payments', 'a/b']],
  ['#/payments/%', ['payments', '%']],
])('default: %j leads to %j', (hash, route) => {
  expect(parseRoute(hash)).toEqual(route)
})

test('behavior: a link leads where it was made for', () => {
  expect(parseRoute(href('payments', 'a/b c'))).toEqual(['payments', 'a/b c'])
  expect(href()).toBe('#/')
})
