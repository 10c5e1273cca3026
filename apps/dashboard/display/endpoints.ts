import type { Endpoint } from '../gateway/answers.ts'

type Named = Pick<Endpoint, 'method' | 'url'>

/** Whether an endpoint is a tool of an MCP server. */
export function isTool({ url }: Pick<Named, 'url'>): boolean {
  return url.startsWith('mcp:')
}

/** Names an endpoint as its provider knows it: `GET api.example/forecast`, `any api.example/*`, or a tool's name. */
export function nameEndpoint({ method, url }: Named): string {
  if (isTool({ url })) return decodeURIComponent(url.slice(url.lastIndexOf('/') + 1))
  return `${method === '*' ? 'any' : method} ${url.replace(/^https?:\/\//, '')}`
}
