import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { expect, test } from 'vitest'
import { createFailureLog } from './failureLog.ts'
import { createLogger } from './log.ts'
import { toCodedError } from './problem.ts'

function collect() {
  const lines: { level: number; msg: string; code?: string; unlogged?: number; err?: { stack: string[] } }[] =
    []
  const log = createLogger('test', 'debug', { write: (line: string) => void lines.push(JSON.parse(line)) })
  let now = 0
  return { lines, logFailure: createFailureLog(log, () => now), pass: (ms: number) => (now += ms) }
}

const away = () =>
  toCodedError(Object.assign(new Error('connect ECONNREFUSED postgres://a:b@c'), { code: 'ECONNREFUSED' }))

test('default: logs one warning per ten seconds while a dependency is down, with the number of failures in between', () => {
  const { lines, logFailure, pass } = collect()
  for (let n = 0; n < 345; n++) logFailure(away(), { path: '/verify' })
  expect(lines).toEqual([
    expect.objectContaining({
      level: 40,
      code: 'dependency_unavailable',
      dependency: 'database',
      reason: 'Error: connect ECONNREFUSED <url>',
      path: '/verify',
    }),
  ])
  expect(lines[0]).not.toHaveProperty('err')
  pass(10_000)
  logFailure(away(), { path: '/challenge' })
  expect(lines[1]).toMatchObject({ level: 40, path: '/challenge', unlogged: 344 })
})

test('behavior: counts each kind of failure separately', () => {
  const { lines, logFailure } = collect()
  for (let n = 0; n < 3; n++) {
    logFailure(away(), {})
    logFailure(new BaseError('overloaded'), {})
    logFailure(new BaseError('dependency_unavailable', undefined, { details: { dependency: 'rpc' } }), {})
  }
  expect(lines.map(({ code, level }) => [code, level])).toEqual([
    ['dependency_unavailable', 40],
    ['overloaded', 40],
    ['dependency_unavailable', 40],
  ])
})

test('behavior: logs each internal error with its stack, and rejections at debug level', () => {
  const { lines, logFailure } = collect()
  for (let n = 0; n < 2; n++) logFailure(toCodedError(new TypeError('x is not a function')), { path: '/' })
  logFailure(new BaseError('not_found'), { path: '/' })
  expect(lines.map(({ level }) => level)).toEqual([50, 50, 20])
  expect(lines[0]?.err?.stack.length).toBeGreaterThan(0)
})
