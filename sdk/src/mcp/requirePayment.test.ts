import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { expect, test } from 'vitest'
import { mockOptions } from '../../test/signedPayment.ts'
import { requirePayment } from './requirePayment.ts'

/** Starts a server that sells `forecast`, and a client that calls it. */
async function sellForecast() {
  const server = new McpServer({ name: 'weather', version: '1.0.0' })
  const say = (text: string) => async () => ({ content: [{ type: 'text' as const, text }] })
  const tool = requirePayment(mockOptions)(server).registerTool('forecast', {}, say('sunny'))
  const client = new Client({ name: 'test', version: '1.0.0' })
  const [near, far] = InMemoryTransport.createLinkedPair()
  await Promise.all([server.connect(far), client.connect(near)])
  return { client, tool, say }
}

const mockPayment = { 'tollkeeper/authorization': 'x402 mock:mock' }

test('default: serves a paid call', async () => {
  const { client } = await sellForecast()
  const result = await client.callTool({ name: 'forecast', _meta: mockPayment })
  expect(result).toMatchObject({ content: [{ type: 'text', text: 'sunny' }] })
})

test('behavior: after a tool is renamed, asks the gateway for its price under the new name', async () => {
  const { client, tool } = await sellForecast()
  tool.update({ name: 'outlook' })
  const result = await client.callTool({ name: 'outlook' })
  expect(result).toMatchObject({
    isError: true,
    _meta: { 'tollkeeper/challenge': { accepts: [{ resource: 'mcp://tool/outlook' }, {}] } },
  })
})

test('behavior: still asks for payment if the tool’s callback was replaced', async () => {
  const { client, tool, say } = await sellForecast()
  tool.update({ callback: say('rainy') })
  expect(await client.callTool({ name: 'forecast' })).toMatchObject({ isError: true })
  const result = await client.callTool({ name: 'forecast', _meta: mockPayment })
  expect(result).toMatchObject({ content: [{ type: 'text', text: 'rainy' }] })
})

test('error: rejects an invalid tool name', async () => {
  const { tool } = await sellForecast()
  expect(() => tool.update({ name: '' })).toThrow()
})
