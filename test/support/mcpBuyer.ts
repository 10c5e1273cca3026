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

/** A wallet, and where what it spent is kept. */
export type Purse = { key: Hex; folder: string; env: Record<string, string> }

export async function openPurse({ url, chain }: ServedGateway, usdc: bigint): Promise<Purse> {
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
  /** What Tollkeeper says itself. */
  said: Record<string, unknown>
  /** What others wrote, with its marks. */
  foreign: string
  content: CallToolResult['content']
}

/** An agent's host, as far as it matters to a server of its. */
export type McpHost = {
  client: Client
  call: (tool: string, args?: Record<string, unknown>) => Promise<Answered>
}

/** A machine that runs other tests takes its time. */
const patient = { timeout: 240_000 }

type Elicit = (request: ElicitRequest['params']) => ElicitResult | Promise<ElicitResult>

/** @param elicit how its user answers; absent: it can't ask one. */
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

/** `tollkeeper mcp` without a process of its own, to which a process is nothing but time. */
export async function openMcpBuyer(
  { env }: Purse,
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

/** `tollkeeper mcp`, started as hosts start it. */
export async function startMcpBuyer(
  { env, folder }: Purse,
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
