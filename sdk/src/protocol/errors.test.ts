import { expect, test } from 'vitest'
import { BaseError, errorCodes, isErrorCode, ProtocolError } from './errors.ts'

test('default: an error has its code’s status, the details and the cause', () => {
  const cause = new Error('why')
  const error = new ProtocolError('macaroon_expired', 'It expired', { details: { expiry: 'then' }, cause })
  expect(error).toBeInstanceOf(BaseError)
  expect(error).toMatchObject({
    name: 'ProtocolError',
    code: 'macaroon_expired',
    message: 'It expired',
    status: 402,
    retryable: false,
    details: { expiry: 'then' },
    cause,
  })
})

test('args: an error without a message has its code’s title as message', () => {
  expect(new BaseError('rate_limited')).toMatchObject({
    message: 'Too many requests',
    retryable: true,
    status: 429,
  })
})

const statuses = [
  400, 401, 402, 403, 404, 405, 408, 409, 412, 413, 414, 415, 422, 428, 429, 500, 501, 502, 503, 504,
]

test.each(Object.entries(errorCodes))(
  'behavior: %s is a snake_case code with an HTTP status',
  (code, { status, title }) => {
    expect(code).toMatch(/^[a-z]+(?:_[a-z]+)*$/)
    expect(statuses).toContain(status)
    expect(title).not.toBe('')
  },
)

test('behavior: isErrorCode accepts only the codes of the table, no inherited property names', () => {
  expect(isErrorCode('payment_replayed')).toBe(true)
  expect(isErrorCode('toString')).toBe(false)
  expect(isErrorCode(402)).toBe(false)
})
