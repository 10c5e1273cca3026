import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { payingMcpClient } from '@tollkeeper/sdk/mcp/payingMcpClient'
import { requirePayment } from '@tollkeeper/sdk/mcp/requirePayment'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { registerTools, type ServedGateway, serveGateway } from '../support/mcp.ts'

// A paid tool may take as long as its payment is valid. If the caller stops waiting earlier, the tool still
// runs and is charged.

let gateway: ServedGateway
beforeAll(async () => {
  gateway = await serveGateway()
})
afterAll(() => gateway?.close())

test.each([
  ['a tab', true, undefined, 600_000],
  ['a single payment', false, undefined, 600_000],
  ['the caller', false, 5_000, 5_000],
])('behavior: a paid call gets the time limit of %s', async (_, tabs, timeout, expected) => {
  const url = 'mcp://tool/forecast'
  const { endpointIds, ...provider } = await registerTools(gateway, { [url]: '0.05' })
  const server = new McpServer({ name: 'weather', version: '1.0.0' })
  const paid = requirePayment({ ...provider, pricing: { usdcPerUnit: '0.05' } })
  paid(server).registerTool('forecast', { description: 'Weather of tomorrow' }, () => ({
    content: [{ type: 'text', text: 'sunny' }],
  }))
  const client = new Client({ name: 'buyer', version: '1.0.0' })
  const [theirs, ours] = InMemoryTransport.createLinkedPair()
  await server.connect(theirs)
  await client.connect(ours)
  const waits: (number | undefined)[] = []
  const noting = {
    callTool: ((...args) => {
      waits.push(args[2]?.timeout)
      return client.callTool(...args)
    }) as Client['callTool'],
  }
  const paying = payingMcpClient(noting, {
    gatewayUrl: gateway.url,
    network: 'localhost',
    account: await gateway.buyer(1_000_000n),
    usdcAddress: gateway.served.token,
    limits: { perPayment: '1' },
    tabs,
  })
  const options = timeout === undefined ? {} : { timeout }
  const result = await paying.callTool({ name: 'forecast', arguments: {} }, undefined, options)
  expect(result.content).toEqual([{ type: 'text', text: 'sunny' }])
  expect(waits).toEqual([timeout ?? 60_000, expected])
})
