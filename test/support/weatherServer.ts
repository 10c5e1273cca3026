import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { McpError } from '@modelcontextprotocol/sdk/types.js'
import { z } from 'zod'

// Someone else's MCP server, which has no code for payments.

const server = new McpServer({ name: 'weather', version: '1.0.0' })
const say = (text: string) => ({ content: [{ type: 'text' as const, text }] })

server.registerTool(
  'forecast',
  { description: 'Weather of tomorrow', inputSchema: { city: z.string() } },
  (args) => say(`${args.city}: 19 °C`),
)
server.registerTool('structured', { outputSchema: { celsius: z.number() } }, () => ({
  ...say('19'),
  structuredContent: { celsius: 19 },
}))
server.registerTool('failing', {}, () => ({ ...say('no weather'), isError: true }))
server.registerTool('refusing', {}, () => {
  // The SDK passes this on as a JSON-RPC error.
  throw new McpError(-32042, 'Look there first', { elicitations: [] })
})
server.registerTool('slow', {}, async ({ signal, sendNotification, _meta }) => {
  const { progressToken = '' } = _meta ?? {}
  await sendNotification({
    method: 'notifications/progress',
    params: { progressToken, progress: 1, total: 2 },
  })
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
  console.error('slow was cancelled')
  return say('late')
})
server.registerTool('seen', {}, ({ _meta }) =>
  say(JSON.stringify({ meta: Object.keys(_meta ?? {}), env: Object.keys(process.env) })),
)
let counted = 0
server.registerTool('counted', {}, () => say(String(++counted)))
server.registerTool('help', {}, () => say('Ask for the forecast'))
server.registerTool('unlisted', {}, () => say('for nobody'))
server.registerResource('lisbon', 'weather://lisbon', {}, (uri) => ({
  contents: [{ uri: uri.href, text: 'Sunny' }],
}))
server.registerPrompt('ask', {}, () => ({
  messages: [{ role: 'user', content: { type: 'text', text: 'How is the weather?' } }],
}))
console.error('weather server started')
await server.connect(new StdioServerTransport())
process.stdin.on('end', () => {
  console.error('weather server ended')
  process.exit()
})
