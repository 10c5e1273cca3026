import { BaseError, errorCodes } from '@tollkeeper/sdk/protocol/errors'
import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { answerProblem, toCodedError } from './problem.ts'
import { responseHeaders } from './responseHeaders.ts'

const app = new Hono().use(responseHeaders)
app.onError((error, c) => answerProblem(c, toCodedError(error)))
app.get('/status/:status', (c) => c.body(null, Number(c.req.param('status')) as 503))
app.get('/later', (c) => c.body(null, 503, { 'Retry-After': '7' }))
app.get('/problem/:code', (c) => {
  throw new BaseError(c.req.param('code') as 'overloaded')
})

test('behavior: adds Retry-After to every 503, and to no other response', async () => {
  const retryAfter = async (path: string) => (await app.request(path)).headers.get('retry-after')
  expect(await retryAfter('/status/503')).toBe('1')
  expect(await retryAfter('/later')).toBe('7')
  expect(await retryAfter('/status/404')).toBe(null)
  for (const [code, { status }] of Object.entries(errorCodes)) {
    expect([code, await retryAfter(`/problem/${code}`)]).toEqual([code, status === 503 ? '1' : null])
  }
})
