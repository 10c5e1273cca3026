import { expect, test } from 'vitest'
import { writeSnippet } from './snippets.ts'

// The browser test runs both snippets, and pays.
const options = {
  gatewayUrl: 'https://gateway.example',
  providerId: 'prov_1',
  endpoint: {
    method: '*' as const,
    url: 'https://api.example:8080/it%27s/:id/*',
    path: "/it's/:id/*",
    pricing: { usdcPerUnit: '1.000000' },
  },
}

test.each([
  ['hono', `app.all("/it's/:id/*", paid, `, 'port: 8080'],
  ['express', `app.all("/it's/:id/*rest", paid, `, 'app.listen(8080)'],
] as const)('args: returns code for %s, with any method, a pattern and a quote', (framework, route, port) => {
  const snippet = writeSnippet(framework, options)
  expect(snippet).toContain(route)
  expect(snippet).toContain(port)
  expect(snippet).toContain("usdcPerUnit: '1' }")
})

test('behavior: sells an MCP tool by its name in every framework', () => {
  const tool = { url: 'mcp://tool/my%20tool', path: 'mcp://tool/my%20tool' }
  const snippet = writeSnippet('hono', { ...options, endpoint: { ...options.endpoint, ...tool } })
  expect(snippet).toContain("paid(server).registerTool('my tool', {}, ")
})
