import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  type CallToolResult,
  type ElicitRequest,
  ElicitRequestSchema,
  type ElicitResult,
} from '@modelcontextprotocol/sdk/types.js'
import type { Hex } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { onTestFinished } from 'vitest'
import { openBuyer } from '../../apps/mcp/buy/run.ts'
import { readBuyerSettings } from '../../apps/mcp/buy/settings.ts'
import { cliPath } from './cli.ts'
import type { ServedGateway } from './mcp.ts'
import { tokenOf } from './usdc.ts'

/** A wallet, and the folder that records its spending. */
export type BuyerEnv = { key: Hex; folder: string; env: Record<string, string> }

export async function openBuyerEnv({ url, chain }: ServedGateway, usdc: bigint): Promise<BuyerEnv> {
  const key = generatePrivateKey()
  if (usdc > 0n) await chain.mintUsdc([privateKeyToAddress(key)], usdc)
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-mcp-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env
  return {
    key,
    folder,
    env: {
      PATH,
      NODE_COMPILE_CACHE,
      WALLET_PRIVATE_KEY: key,
      NETWORK: chain.network,
      GATEWAY_URL: url,
      USDC_ADDRESS: tokenOf(chain),
      WALLET_FOLDER: folder,
    },
  }
}

type Answered = {
  isError: boolean
  /** The part of the result that Tollkeeper wrote. */
  said: Record<string, unknown>
  /** The text that others wrote, with the marks that enclose it. */
  foreign: string
  content: CallToolResult['content']
}

/** Behaves like an agent's host towards an MCP server. */
export type McpHost = {
  client: Client
  call: (tool: string, args?: Record<string, unknown>) => Promise<Answered>
}

/** The timeout is long, because a machine that runs other tests is slow. */
const patient = { timeout: 240_000 }

type Elicit = (request: ElicitRequest['params']) => ElicitResult | Promise<ElicitResult>

/** @param elicit returns the user's answer; if absent, the host can't ask its user. */
export async function connectHost(transport: Transport, elicit?: Elicit): Promise<McpHost> {
  const client = new Client(
    { name: 'host', version: '1' },
    { capabilities: elicit ? { elicitation: {} } : {} },
  )
  if (elicit) client.setRequestHandler(ElicitRequestSchema, ({ params }) => elicit(params))
  await client.connect(transport, patient)
  return {
    client,
    async call(name, args = {}) {
      const answer = (await client.callTool({ name, arguments: args }, undefined, patient)) as CallToolResult
      const [first, ...rest] = answer.content
      const texts = rest.flatMap((one) => (one.type === 'text' ? [one.text] : []))
      return {
        isError: answer.isError === true,
        said: first?.type === 'text' ? JSON.parse(first.text) : {},
        foreign: texts.join('\n'),
        content: answer.content,
      }
    },
  }
}

/** Opens `tollkeeper mcp` in this process, because a separate one would only cost time. */
export async function openMcpBuyer(
  { env }: BuyerEnv,
  options: { args: string[]; env?: Record<string, string>; elicit?: Elicit },
): Promise<McpHost> {
  const allowHost = options.args.filter((word) => word !== '--allow-host')
  const buyer = await openBuyer(readBuyerSettings({ ...env, ...options.env }), allowHost)
  const [transport, own] = InMemoryTransport.createLinkedPair()
  const server = buyer.createServer()
  await server.connect(own)
  const host = await connectHost(transport, options.elicit)
  onTestFinished(async () => {
    buyer.stop()
    await host.client.close()
    await buyer.close()
  })
  return host
}

/** Starts `tollkeeper mcp` as hosts do. */
export async function startMcpBuyer(
  { env, folder }: BuyerEnv,
  options: { args?: string[]; env?: Record<string, string>; elicit?: Elicit } = {},
): Promise<McpHost & { pid: number; log: () => string; exited: Promise<void> }> {
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [cliPath, 'mcp', ...(options.args ?? [])],
    cwd: folder,
    env: { ...env, ...options.env },
    stderr: 'pipe',
  })
  let log = ''
  transport.stderr?.on('data', (chunk) => {
    log += chunk
  })
  const host = await connectHost(transport, options.elicit)
  const exited = new Promise<void>((resolve) => {
    host.client.onclose = resolve
  })
  onTestFinished(() => host.client.close())
  return { ...host, pid: transport.pid as number, log: () => log, exited }
}
