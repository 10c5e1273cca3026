import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { payingMcpClient, requirePayment } from '@tollkeeper/sdk/mcp/index'
import { parseAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { z } from 'zod'
import { drawFrom } from '../support/draw.ts'
import { connectTo, registerTools, type ServedGateway, serveGateway, textOf } from '../support/mcp.ts'
import { readLedger } from './answers/scene.ts'

// Calls of paid tools whose answers get lost, with and without tabs. As in `answers`, what counts as paid is what the gateway's ledger charges.

const runs = Number(process.env.CHAOS_RUNS ?? 200)
const seed = Number(process.env.CHAOS_SEED ?? 1)
const atOnce = 16
/** Maximum number of losses before a call gets through. The program retries until then. */
const mostLosses = 4

const fates = ['before', 'after', 'timeout', 'closed', 'proxy', 'page', 'refused'] as const
type Fate = (typeof fates)[number]

let gateway: ServedGateway
beforeAll(async () => {
  const plenty = 10n ** 12n
  const tabs = {
    credit: { base: plenty, basisPoints: 1_000n },
    budget: plenty,
    rewardShare: 1_000,
    earnedHours: 1,
  }
  gateway = await serveGateway({ tabs })
})
afterAll(() => gateway?.close())

test('behavior: each tool call runs once, is charged once and gets its own result, and a failed call is not charged', async () => {
  const { ask, seen, ran } = await openScene()
  let next = 0
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (next < runs) await play(next++)
    }),
  )
  const charged = await readLedger(gateway)
  const faults = [...seen].flatMap(([run, { presented, kind, answer }]) => {
    const times = [...presented].filter((key) => charged.has(key)).length
    const expected = kind === 'failing' ? [0, 'failed'] : [1, `run ${run}`]
    const isAsExpected = JSON.stringify([times, answer]) === JSON.stringify(expected)
    const runs = ran.get(run) ?? 0
    // A failed call was voided, so it may run again.
    if (isAsExpected && (runs === 1 || kind === 'failing')) return []
    return [`run ${run} (seed ${seed}), ${kind}: paid ${times} times, run ${runs} times, answered ${answer}`]
  })
  expect([seen.size, faults]).toEqual([runs, []])

  async function play(run: number): Promise<void> {
    const draw = drawFrom(`${seed} ${run}`)
    const pick = <Item>(items: readonly Item[]): Item => items[Math.floor(draw() * items.length)] as Item
    const losses: Fate[] = []
    while (draw() < 0.6 && losses.length < mostLosses) losses.push(pick(fates))
    const kind = pick(['plain', 'plain', 'slow', 'failing'] as const)
    const one: Seen = { presented: new Set(), losses, kind, answer: undefined }
    seen.set(run, one)
    for (let call = 0; call <= 2 * mostLosses && one.answer === undefined; call++) {
      const result = await ask(draw() < 0.5, { run, kind }).catch((error: unknown) => error)
      if (!(result instanceof Error)) one.answer = textOf(result)
    }
  }
}, 86_400_000)

type Seen = { presented: Set<string>; losses: Fate[]; kind: string; answer: string | undefined }

/** Starts a server with one tool, and two clients that pay for it over a connection that loses answers. */
async function openScene() {
  const seen = new Map<number, Seen>()
  const ran = new Map<number, number>()
  const price = '0.01'
  const { endpointIds: _, ...provider } = await registerTools(gateway, { 'mcp://tool/work': price })
  const server = new McpServer({ name: 'work', version: '1.0.0' })
  const inputSchema = { run: z.number(), kind: z.string() }
  const paid = requirePayment({ ...provider, pricing: { usdcPerUnit: price } })(server)
  paid.registerTool('work', { inputSchema }, async ({ run, kind }) => {
    ran.set(run, (ran.get(run) ?? 0) + 1)
    if (kind === 'slow') await new Promise((resolve) => setTimeout(resolve, 30))
    const text = kind === 'failing' ? 'failed' : `run ${run}`
    return { isError: kind === 'failing', content: [{ type: 'text', text }] }
  })
  const client = await connectTo(server)
  const lossy = {
    async callTool(params: Parameters<Client['callTool']>[0], ...rest: []) {
      const one = seen.get(Number(params.arguments?.run))
      const key = keyOf(params._meta)
      if (!one || key === undefined) return client.callTool(params, ...rest)
      one.presented.add(key)
      const fate = one.losses.shift()
      if (fate === 'before') throw new TypeError('fetch failed')
      const result = await client.callTool(params, ...rest)
      if (fate !== undefined) throw lossOf(fate)
      return result
    },
  }
  const buyer = async (tabs: boolean) =>
    payingMcpClient(lossy as never as Client, {
      gatewayUrl: gateway.url,
      network: 'localhost',
      account: await gateway.buyer(10n ** 12n),
      tabs,
      usdcAddress: gateway.served.token,
      limits: { perPayment: '1' },
      warn: () => {},
    })
  const [alone, onTab] = [await buyer(false), await buyer(true)]
  // A program keeps using one client, because each client remembers only its own payments.
  const clientOf = new Map<number, typeof alone>()
  const ask = (onTabs: boolean, given: { run: number; kind: string }): Promise<CallToolResult> => {
    const paying = clientOf.get(given.run) ?? (onTabs ? onTab : alone)
    clientOf.set(given.run, paying)
    return paying.callTool({ name: 'work', arguments: given }) as Promise<CallToolResult>
  }
  return { ask, seen, ran }
}

/** Returns the error that the MCP SDK throws if no answer arrives. */
function lossOf(fate: Fate): Error {
  const codes: Partial<Record<Fate, number>> = {
    timeout: -32001,
    closed: -32000,
    proxy: 502,
    page: -1,
    refused: -32603,
  }
  const code = codes[fate]
  return code === undefined ? new TypeError('fetch failed') : Object.assign(new Error(fate), { code })
}

/** Returns a payment's key in the ledger. */
function keyOf(meta: Record<string, unknown> | undefined): string | undefined {
  const own = parseAuthorizationHeader(String(meta?.['tollkeeper/authorization'] ?? ''))
  if (own.kind === 'payment') return parsePayload(own.payloads[0]).nonce
  const payment = meta?.['x402/payment'] as { payload?: { tab?: string; sequence?: number } } | undefined
  return payment?.payload && `${payment.payload.tab} ${payment.payload.sequence}`
}
