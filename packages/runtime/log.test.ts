import { HttpRequestError } from 'viem'
import { expect, test } from 'vitest'
import { describeError } from './log.ts'

test('behavior: describes an error without its URL, calldata or stack', () => {
  const error = new HttpRequestError({
    url: 'https://rpc.example/v2/secret',
    body: { params: [`0x${'ab'.repeat(200)}`] },
    details: 'refused',
  })
  const words = describeError(new Error('could not send\nat somewhere', { cause: error }))
  expect(words).toBe('Error: could not send < HttpRequestError: HTTP request failed. < refused')
})

test('behavior: removes URLs and calldata from the message', () => {
  expect(describeError(new Error(`postgres://user:pass@host/db and 0x${'ab'.repeat(65)}`))).toBe(
    'Error: <url> and <bytes>',
  )
})
