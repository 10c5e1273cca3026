import { expect, test } from 'vitest'
import { href, hrefWith, parseRoute, parseSearch } from './routing.ts'

test.each([
  ['', []],
  ['#', []],
  ['#/', []],
  ['#/queue', ['queue']],
  ['#/batches/base/0xab', ['batches', 'base', '0xab']],
  ['#/payments/a%2Fb', ['payments', 'a/b']],
  ['#/payments/%', ['payments', '%']],
  ['#/payments?status=failed', ['payments']],
  ['#/?x=1', []],
])('default: reads %j as the route %j', (hash, route) => {
  expect(parseRoute(hash)).toEqual(route)
})

test('behavior: parses the link of a route into the same route', () => {
  expect(parseRoute(href('payments', 'a/b c'))).toEqual(['payments', 'a/b c'])
  expect(href()).toBe('#/')
})

test('behavior: omits empty values from a link’s query', () => {
  const link = hrefWith(['payments'], { status: 'failed', payer: '', path: '/a b?&c', network: undefined })
  expect(parseRoute(link)).toEqual(['payments'])
  expect(parseSearch(link)).toEqual({ status: 'failed', path: '/a b?&c' })
  expect(parseSearch('#/payments')).toEqual({})
  expect(hrefWith(['payments'], { status: '' })).toBe('#/payments')
})
