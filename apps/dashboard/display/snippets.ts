import type { Endpoint } from '../gateway/answers.ts'

export type Framework = 'hono' | 'express'

export type SnippetOptions = {
  gatewayUrl: string
  providerId: string
  endpoint: Pick<Endpoint, 'method' | 'url' | 'path' | 'pricing'>
}

/** Returns code that sells an endpoint and runs without changes. */
export function writeSnippet(framework: Framework, options: SnippetOptions): string {
  const { gatewayUrl, providerId, endpoint } = options
  const verb = endpoint.method === '*' ? 'all' : endpoint.method.toLowerCase()
  const port = new URL(endpoint.url).port || '3000'
  const paid = `const paid = requirePayment({
  gatewayUrl: ${quote(gatewayUrl)},
  providerId: ${quote(providerId)},
  apiKey: process.env.TOLLKEEPER_API_KEY,
  pricing: { usdcPerUnit: ${quote(endpoint.pricing.usdcPerUnit.replace(/\.?0+$/, ''))} },
})
`
  if (endpoint.url.startsWith('mcp:')) {
    const name = decodeURIComponent(endpoint.path.slice(endpoint.path.lastIndexOf('/') + 1))
    return `import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { requirePayment } from '@tollkeeper/sdk/mcp'

${paid}const server = new McpServer({ name: 'my-tools', version: '1.0.0' })
paid(server).registerTool(${quote(name)}, {}, ({ payment }) => ({ content: [{ type: 'text', text: payment.paymentId }] }))
await server.connect(new StdioServerTransport())
`
  }
  if (framework === 'express') {
    // Express 5 requires a name for the rest of the path.
    const path = endpoint.path.replace(/\*$/, '*rest')
    return `import { requirePayment } from '@tollkeeper/sdk/express'
import express from 'express'

${paid}const app = express()
app.${verb}(${quote(path)}, paid, (request, response) => response.json({ paid: response.locals.payment.paymentId }))
app.listen(${port})
`
  }
  return `import { serve } from '@hono/node-server'
import { requirePayment } from '@tollkeeper/sdk/hono'
import { Hono } from 'hono'

${paid}const app = new Hono()
app.${verb}(${quote(endpoint.path)}, paid, (c) => c.json({ paid: c.get('payment').paymentId }))
serve({ fetch: app.fetch, port: ${port} })
`
}

function quote(text: string): string {
  return /['\\\n]/.test(text) ? JSON.stringify(text) : `'${text}'`
}
