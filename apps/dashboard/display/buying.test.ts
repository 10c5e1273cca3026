import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'
import type { DiscoveryResource } from '../gateway/answers.ts'
import {
  listingLink,
  readOffer,
  writeBuyCode,
  writeBuyCommand,
  writeMcpConfig,
  writeToolHint,
} from './buying.ts'

const seller = `0x${'7a'.repeat(20)}`
const asset = `0x${'83'.repeat(20)}`
const gatewayUrl = 'https://gateway.example'
const listing = (resource: string, more: object = {}) =>
  ({
    resource,
    type: 'http',
    accepts: [
      { network: 'eip155:8453', asset, amount: '12000', payTo: `0x${'1'.repeat(40)}`, extra: { seller } },
      { network: 'eip155:8453', amount: '12000', payTo: seller, extra: {} },
    ],
    extensions: { bazaar: { info: { input: { type: 'http', method: 'GET' } } } },
    ...more,
  }) as unknown as DiscoveryResource

test('behavior: reads a listing from its x402 form', () => {
  expect(readOffer(listing('https://api.example/cities/:city'))).toEqual({
    resource: 'https://api.example/cities/:city',
    seller,
    isTool: false,
    serverUrl: undefined,
    method: 'GET',
    networks: ['base'],
    isTest: false,
    price: 12_000n,
    asset,
    isPattern: true,
  })
  const test = listing('https://api.example/a', {
    accepts: [{ network: 'base-sepolia', maxAmountRequired: '1', payTo: seller, extra: {} }],
  })
  expect(readOffer(test)).toMatchObject({
    networks: ['base-sepolia'],
    isTest: true,
    price: 1n,
    isPattern: false,
  })
  const odd = listing('https://api.example/a', {
    accepts: [{ network: 'eip155:999999', amount: '1', payTo: seller, extra: {} }],
  })
  expect(readOffer(odd)).toMatchObject({ networks: ['eip155:999999'], isTest: false })
})

test('behavior: the `buy` command pays at most twice the price, and quotes the URL for the shell', () => {
  const resource = "https://api.example/a?q='$(touch broken)'&b=`id`&c=\"!!\\"
  const encoded = 'https://api.example/a?q=%27%24(touch%20broken)%27&b=%60id%60&c=%22%21%21%5C'
  const command = writeBuyCommand({ gatewayUrl, offer: readOffer(listing(resource)) }) ?? ''
  expect(command).toContain('buy --max 0.024 ')
  const said = execFileSync('sh', ['-c', command.replace('npx --no-install tollkeeper', 'printf "%s\\n"')])
  expect(`${said}`.trimEnd().split('\n')).toEqual(['buy', '--max', '0.024', encoded])
  // On Windows, cmd supports only double quotes.
  expect(command.endsWith(` "${encoded}"`)).toBe(true)
})

test('behavior: shows only the MCP host’s configuration for a tool whose server is unknown', () => {
  const tool = listing('mcp://tool/summarize', {
    type: 'mcp',
    extensions: { bazaar: { info: { input: { type: 'mcp', toolName: 'summarize' } } } },
  })
  const offer = readOffer(tool)
  expect(writeBuyCommand({ gatewayUrl, offer })).toBeUndefined()
  expect(writeBuyCode({ gatewayUrl, offer })).toBeUndefined()
  expect(JSON.parse(writeMcpConfig({ gatewayUrl, offer })).mcpServers.tollkeeper).toEqual({
    command: 'npx',
    args: ['--no-install', 'tollkeeper', 'mcp'],
    env: {
      WALLET_PRIVATE_KEY: '0x…',
      NETWORK: 'base',
      GATEWAY_URL: gatewayUrl,
      MAX_PAYMENT_USDC: '0.024',
      MAX_DAILY_USDC: '2',
    },
  })
})

test('behavior: shows code that calls a tool at its registered server, and allows only that host', () => {
  const tool = listing('mcp://tool/shop/sum%20up', {
    type: 'mcp',
    serverUrl: 'https://tools.example/"mcp',
    extensions: { bazaar: { info: { input: { type: 'mcp', toolName: 'sum up' } } } },
  })
  const offer = readOffer(tool)
  const code = writeBuyCode({ gatewayUrl, offer }) ?? ''
  execFileSync(process.execPath, ['--input-type=module', '--check'], { input: code })
  expect(code).toContain(`const serverUrl = ${JSON.stringify(tool.serverUrl)}`)
  expect(code).toContain('callTool({ name: "sum up", arguments: {} })')
  expect(writeToolHint(offer)).toContain(tool.serverUrl)
  const { args } = JSON.parse(writeMcpConfig({ gatewayUrl, offer })).mcpServers.tollkeeper
  expect(args.slice(-2)).toEqual(['--allow-host', 'tools.example'])
})

test('behavior: lets an agent buy only from the listing’s host', () => {
  const config = writeMcpConfig({ gatewayUrl, offer: readOffer(listing('https://api.example/a')) })
  expect(JSON.parse(config).mcpServers.tollkeeper.args).toEqual([
    '--no-install',
    'tollkeeper',
    'mcp',
    '--allow-host',
    'api.example',
  ])
})

test('behavior: shows valid SDK code for any URL', () => {
  const offer = readOffer(
    listing('https://api.example/"\\n', { extensions: { bazaar: { info: { input: { method: 'POST' } } } } }),
  )
  const code = writeBuyCode({ gatewayUrl, offer }) ?? ''
  execFileSync(process.execPath, ['--input-type=module', '--check'], { input: code })
  expect(code).toContain("method: 'POST', body: JSON.stringify({})")
})

test('behavior: returns a separate link for each listing', () => {
  expect(listingLink({ seller, resource: 'https://a.example/b?c=1' })).toBe(
    `#/market/${seller}/https%3A%2F%2Fa.example%2Fb%3Fc%3D1`,
  )
})
