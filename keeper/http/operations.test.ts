import { expect, test } from 'vitest'
import { createLogger } from '#process/log'
import { createRateLimiter } from '#process/rateLimiter'
import { createMetrics } from '../settings/metrics.ts'
import { createOperationsApp } from './operations.ts'

test('behavior: metrics are limited by address, but for who presents the token', async () => {
  const log = createLogger('test', 'error')
  const app = createOperationsApp({
    readiness: async () => ({ status: 'ok', checks: [] }),
    metrics: createMetrics(),
    metricsToken: 'scraper',
    rateLimiter: createRateLimiter({ sql: null, log, now: () => 0 }),
    trustedProxies: 1,
    log,
  })
  const read = async (address: string, authorization = '') =>
    (await app.request('/metrics', { headers: { 'x-forwarded-for': address, authorization } })).status
  const statuses = []
  for (let i = 0; i < 121; i++) statuses.push(await read('10.0.0.1'))
  expect(statuses).toEqual([...Array(120).fill(401), 429])
  expect(await read('10.0.0.2')).toBe(401)
  expect(await read('10.0.0.1', 'Bearer scraper')).toBe(200)
})
