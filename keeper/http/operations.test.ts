import { createLogger } from '@tollkeeper/runtime/log'
import { createRateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { expect, test } from 'vitest'
import { createMetrics } from '../settings/metrics.ts'
import { keyPath } from './keyPath.ts'
import { createOperationsApp } from './operations.ts'

function createOperations(log = createLogger('test', 'error')) {
  return createOperationsApp({
    readiness: async () => ({ status: 'ok', checks: [] }),
    metrics: createMetrics(),
    metricsToken: 'scraper',
    rateLimiter: createRateLimiter({ sql: null, log, now: () => 0 }),
    trustedProxies: 1,
    log,
  })
}

test('behavior: if a request with an API key in its path fails, the log omits the key', async () => {
  const lines: string[] = []
  const app = createOperations(createLogger('test', 'trace', { write: (line) => void lines.push(line) }))
  app.post(`${keyPath}/settle`, () => {
    throw new Error('broken')
  })
  const key = `tk_${'0'.repeat(32)}_secret`
  const answer = await app.request(`/k/${key}/settle`, { method: 'POST' })
  expect([answer.status, lines.map((line) => JSON.parse(line).path)]).toEqual([500, ['/k/:key/settle']])
  expect(lines.join() + (await answer.text())).not.toContain('secret')
})

test('behavior: limits reads of the metrics for each client address, but not for callers with the metrics token', async () => {
  const app = createOperations()
  const read = async (address: string, authorization = '') =>
    (await app.request('/metrics', { headers: { 'x-forwarded-for': address, authorization } })).status
  const statuses = []
  for (let i = 0; i < 121; i++) statuses.push(await read('10.0.0.1'))
  expect(statuses).toEqual([...Array(120).fill(401), 429])
  expect(await read('10.0.0.2')).toBe(401)
  expect(await read('10.0.0.1', 'Bearer scraper')).toBe(200)
})
