import { expect, test } from 'vitest'
import { invalidRequest } from './invalidRequest.ts'

test('default: says where, which field, and what is wrong', () => {
  const issue = { code: 'invalid_type', path: ['pricing', 'usdcPerUnit'], message: 'Invalid input' }
  expect(invalidRequest('json', [issue])).toMatchObject({
    code: 'invalid_request',
    message: 'body: pricing.usdcPerUnit: Invalid input',
  })
})

test('args: a value of the right form that is not accepted', () => {
  const issue = { code: 'too_big', path: ['limit'], message: 'Too big' }
  expect(invalidRequest('query', [issue])).toMatchObject({
    code: 'invalid_field',
    message: 'query: limit: Too big',
  })
})

test('args: no field, where the whole body is wrong', () => {
  const issue = { code: 'invalid_type', path: [], message: 'Invalid input' }
  expect(invalidRequest('json', [issue]).message).toBe('body: Invalid input')
})
