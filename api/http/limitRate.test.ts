import { expect, test } from 'vitest'
import { call, fetchChallenge, openShop, signedBody } from '../../test/support/gateway.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import type { App } from './app.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const rateLimits = { challenge: 3, verify: 2, register: 1, other: 5, payer: 1, keyFactor: 2 }
// The clock is set to the middle of a minute, so that no window ends during a test.
const minute = 30_000 + 60_000 * Math.floor(Date.now() / 60_000)

const challenge = (app: App, options: { key?: string; headers?: Record<string, string> } = {}) => {
  const { providerId, endpointId } = shop
  return call(app, 'GET', `/challenge?providerId=${providerId}&endpointId=${endpointId}`, options)
}

test('default: headers count down the remaining requests; after that, the answer is 429 with Retry-After until the next minute begins', async () => {
  const app = gateway.another({ rateLimits })
  gateway.setNow(minute)
  const answers = []
  for (let i = 0; i < 4; i++) answers.push(await challenge(app))
  expect(answers.map(({ status, headers }) => [status, headers.get('ratelimit-remaining')])).toEqual([
    [200, '2'],
    [200, '1'],
    [200, '0'],
    [429, '0'],
  ])
  const last = answers[3]
  expect(last?.body).toMatchObject({ code: 'rate_limited', status: 429 })
  expect([last?.headers.get('retry-after'), last?.headers.get('ratelimit-limit')]).toEqual(['30', '3'])
  gateway.setNow(minute + 30_000)
  expect((await challenge(app)).status).toBe(200)
})

test('behavior: requests of different kinds, keys and addresses are counted separately', async () => {
  const app = gateway.another({ rateLimits, trustedProxies: 1 })
  gateway.setNow(minute)
  const from = (address: string) => ({ headers: { 'x-forwarded-for': `1.1.1.1, ${address}` } })
  const drain = async (send: () => Promise<{ status: number }>) => {
    let passed = 0
    while ((await send()).status !== 429) passed++
    return passed
  }
  expect(await drain(() => challenge(app, from('10.0.0.1')))).toBe(3)
  expect(await drain(() => challenge(app, from('10.0.0.2')))).toBe(3)
  expect(await drain(() => call(app, 'POST', '/verify', { ...from('10.0.0.1'), json: {} }))).toBe(2)
  expect(await drain(() => call(app, 'POST', '/providers', { ...from('10.0.0.1'), json: {} }))).toBe(1)
  expect((await call(app, 'GET', '/healthz', from('10.0.0.1'))).status).toBe(200)
})

test.each([
  ['metrics that anyone may read', null, 200],
  ['metrics behind a token', 'scraper', 401],
])(
  'behavior: %s are limited by address, except for callers with the token',
  async (_, metricsToken, status) => {
    const app = gateway.another({ rateLimits, trustedProxies: 1, metricsToken })
    gateway.setNow(minute + 240_000)
    const from = (address: string) => ({ headers: { 'x-forwarded-for': address } })
    const read = async (options: object) => (await call(app, 'GET', '/metrics', options)).status
    const statuses = []
    for (let i = 0; i < 121; i++) statuses.push(await read(from('10.0.3.1')))
    expect(statuses).toEqual([...Array(120).fill(status), 429])
    expect(await read(from('10.0.3.2'))).toBe(status)
    if (metricsToken) expect(await read({ ...from('10.0.3.1'), key: metricsToken })).toBe(200)
  },
)

test('behavior: an API key never raises the limit of an address, and the key’s own limit counts its requests from all addresses', async () => {
  const app = gateway.another({ rateLimits, trustedProxies: 1 })
  gateway.setNow(minute + 120_000)
  const other = await openShop(gateway.app)
  const ask = async (address: string, key: string) =>
    (await challenge(app, { headers: { 'x-forwarded-for': address }, key })).status
  const statuses = []
  for (const key of [shop.key, other.key]) {
    for (let i = 0; i < 3; i++) statuses.push(await ask('10.0.1.1', key))
  }
  expect(statuses).toEqual([200, 200, 200, 429, 429, 429])
  // The key's limit is six requests, of which the first address has used three.
  const spread = []
  for (let i = 2; i < 7; i++) spread.push(await ask(`10.0.1.${i}`, shop.key))
  expect(spread).toEqual([200, 200, 200, 429, 429])
})

test.each([
  ['two addresses of one IPv6 /64 are one client', '2001:db8:1:2::1', '2001:db8:1:2:ffff::9', 429],
  ['addresses of two IPv6 /64 are two clients', '2001:db8:2:2::1', '2001:db8:2:3::1', 200],
  ['an IPv4 address and its IPv6 notation are one client', '10.0.2.1', '::ffff:10.0.2.1', 429],
])('behavior: %s', async (_, first, second, expected) => {
  const app = gateway.another({ rateLimits, trustedProxies: 1 })
  gateway.setNow(minute + 180_000)
  const ask = async (address: string) =>
    (await challenge(app, { headers: { 'x-forwarded-for': address } })).status
  for (let i = 0; i < 3; i++) expect(await ask(first)).toBe(200)
  expect(await ask(second)).toBe(expected)
})

test('behavior: attempts with made-up keys are limited, and a valid key is not looked up each time', async () => {
  const app = gateway.another({ rateLimits: { ...rateLimits, challenge: 100 } })
  gateway.setNow(minute)
  const codes = []
  for (let i = 0; i < 6; i++) {
    const key = `tk_${i.toString(16).padStart(32, '0')}_${'A'.repeat(43)}`
    codes.push((await challenge(app, { key })).body.code)
  }
  expect(codes).toEqual([...Array(5).fill('unauthorized'), 'rate_limited'])

  gateway.setNow(minute + 60_000)
  for (let i = 0; i < 10; i++) expect((await challenge(app, { key: shop.key })).status).toBe(200)
})

test("behavior: a payer's limit counts only valid signatures", async () => {
  const app = gateway.another({ rateLimits: { ...rateLimits, verify: 100 } })
  const payer = await gateway.buyer(1_000_000n)
  const stranger = await gateway.buyer(0n)
  const send = async (body: Awaited<ReturnType<typeof signedBody>>) =>
    call(app, 'POST', '/verify', { json: body })
  for (let i = 0; i < 3; i++) {
    expect((await send(await signedBody(gateway, shop, payer, [{ signer: stranger }, {}]))).status).toBe(402)
  }
  const bodies = [await signedBody(gateway, shop, payer), await signedBody(gateway, shop, payer)] as const
  gateway.setNow(Date.now())
  expect((await send(bodies[0])).status).toBe(200)
  expect((await send(bodies[1])).body).toMatchObject({ code: 'rate_limited', verified: false })
})

test('behavior: processes share their counts through the database, in the background', async () => {
  const limits = { ...rateLimits, challenge: 10 }
  const [first, second] = [
    gateway.another({ rateLimits: limits }),
    gateway.another({ rateLimits: limits }),
  ] as const
  const later = minute + 600_000
  const counted = async () => {
    const [row] = await gateway.database`
      select count from request_count where key = 'challenge:unknown' and window_start = ${Math.floor(later / 60_000) * 60}`
    return row?.count
  }
  gateway.setNow(later)
  await challenge(first)
  // The process starts no second read of the shared counts while the first one is in progress, so the test waits for its end.
  await expect.poll(counted).toBe(1n)
  for (let i = 0; i < 5; i++) expect((await challenge(first)).status).toBe(200)
  // The next request to each process makes it read the counts.
  gateway.setNow(later + 2_000)
  await challenge(first)
  await expect.poll(counted).toBe(7n)
  await challenge(second)
  await expect.poll(counted).toBe(8n)
  // If the second process counted only its own requests, it would let nine more through.
  let passed = 0
  const send = async () => {
    const { status } = await challenge(second)
    if (status === 200) passed++
    return status
  }
  await expect.poll(send).toBe(429)
  expect(passed).toBeLessThan(6)
})

test('behavior: without the table of shared counts, each process uses only its own counts', async () => {
  await gateway.database`alter table request_count rename to gone`
  try {
    const app = gateway.another({ rateLimits })
    gateway.setNow(minute + 1_200_000)
    const statuses = []
    for (let i = 0; i < 4; i++) statuses.push((await challenge(app)).status)
    expect(statuses).toEqual([200, 200, 200, 429])
  } finally {
    gateway.setNow(null)
    await gateway.database`alter table gone rename to request_count`
  }
  expect(await fetchChallenge(gateway.app, shop)).toBeDefined()
})
