import { expect, test } from 'vitest'
import { writeSnippet } from './snippets.ts'

// test/e2e/dashboard runs the code for Hono and Express, and pays.
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
] as const)(
  'args: returns code for %s if the endpoint accepts any method and its path has a pattern and a quote',
  (framework, route, port) => {
    const snippet = writeSnippet(framework, options)
    expect(snippet).toContain(route)
    expect(snippet).toContain(port)
    expect(snippet).toContain("usdcPerUnit: '1' }")
  },
)

test('behavior: returns code that sells an MCP tool by its name, whichever framework is chosen', () => {
  const tool = { url: 'mcp://tool/my%20tool', path: 'mcp://tool/my%20tool' }
  const snippet = writeSnippet('hono', { ...options, endpoint: { ...options.endpoint, ...tool } })
  expect(snippet).toContain("paid(server).registerTool('my tool', {}, ")
})
