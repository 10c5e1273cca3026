import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { clientAddress, subscriberOf } from './clientAddress.ts'

test.each([
  ['192.0.2.1', '192.0.2.1'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2:ffff::', '2001:db8:1:2::/64'],
  ['2001:db8:1:3::1', '2001:db8:1:3::/64'],
  ['unknown', 'unknown'],
])('default: counts requests from the address %s as requests from %s', (address, expected) => {
  expect(subscriberOf(address)).toBe(expected)
})

test.each([
  [0, '198.51.100.7, 192.0.2.1', 'unknown'],
  [1, '198.51.100.7, 192.0.2.1', '192.0.2.1'],
  [2, '203.0.113.9, 198.51.100.7, 192.0.2.1', '198.51.100.7'],
  [1, '', 'unknown'],
])('args: behind %d proxies, X-Forwarded-For %j yields %s', async (proxies, forwarded, expected) => {
  const app = new Hono().get('/', (c) => c.text(clientAddress(c, proxies)))
  const answer = await app.request('/', { headers: { 'x-forwarded-for': forwarded } })
  expect(await answer.text()).toBe(expected)
})
