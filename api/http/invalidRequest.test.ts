import { expect, test } from 'vitest'
import { invalidRequest } from './invalidRequest.ts'

test('default: names the part of the request, the field, and the fault', () => {
  const issue = { code: 'invalid_type', path: ['pricing', 'usdcPerUnit'], message: 'Invalid input' }
  expect(invalidRequest('json', [issue])).toMatchObject({
    code: 'invalid_request',
    message: 'body: pricing.usdcPerUnit: Invalid input',
  })
})

test('args: reports invalid_field for a well-formed value that is not accepted', () => {
  const issue = { code: 'too_big', path: ['limit'], message: 'Too big' }
  expect(invalidRequest('query', [issue])).toMatchObject({
    code: 'invalid_field',
    message: 'query: limit: Too big',
  })
})

test('args: names no field if the whole body is wrong', () => {
  const issue = { code: 'invalid_type', path: [], message: 'Invalid input' }
  expect(invalidRequest('json', [issue]).message).toBe('body: Invalid input')
})
