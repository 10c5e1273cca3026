import { createLogger } from '@tollkeeper/runtime/log'
import { createRateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { expect, test } from 'vitest'
import type { HttpContext } from './context.ts'
import { admitCaller } from './submitRules.ts'

test('default: limits the submissions per minute from one address', async () => {
  const rateLimiter = createRateLimiter({ sql: null, log: createLogger('test', 'silent'), now: () => 0 })
  const context = { rateLimiter, submitLimits: { perCaller: 2 } } as HttpContext
  const admit = (address: string) => admitCaller(context, { apiKey: null, address })
  expect([await admit('192.0.2.1'), await admit('192.0.2.1')]).toEqual([null, null])
  await expect(admit('192.0.2.1')).rejects.toMatchObject({ code: 'rate_limited' })
  expect(await admit('192.0.2.2')).toBeNull()
})
