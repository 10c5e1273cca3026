import { expect, test } from 'vitest'
import { isTool, nameEndpoint } from './endpoints.ts'

test.each([
  ['GET', 'https://api.example/forecast', 'GET api.example/forecast'],
  ['*', 'http://127.0.0.1:3000/cities/:city', 'any 127.0.0.1:3000/cities/:city'],
  ['POST', 'mcp://tool/search', 'search'],
  ['*', 'mcp://tool/gr%C3%BC%C3%9Fen', 'grüßen'],
] as const)('args: names the endpoint %s %s', (method, url, name) => {
  expect(nameEndpoint({ method, url })).toBe(name)
  expect(isTool({ url })).toBe(url.startsWith('mcp:'))
})
