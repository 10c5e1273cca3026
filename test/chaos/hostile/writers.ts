import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hostileValues } from '../../support/hostileJson.ts'
import { runCommand } from '../../support/processes.ts'
import { signPayment } from '../../support/x402.ts'
import { type Adversary, again, countSuccess, openGranted, pick, placeOf, post } from './act.ts'

// Strangers who send values that no normal program sends, or far more data than anyone reads.

/** The hostile values that a client can encode as JSON. */
const writable = hostileValues.filter((value) => {
  try {
    return JSON.stringify(value) !== undefined
  } catch {
    return false
  }
})

/** Number of payments with odd declarations that are settled at once. */
const declaredAtOnce = 7

/** Payments whose declared resource has values of any type. These payments settle like all others, and no answer is an internal error. */
const oddDeclarations: Adversary = async (scene, draw) => {
  const shop = await openGranted(scene, '5000')
  const { account } = await scene.buyer()
  const declarations = [
    ...writable.map((method) => ({ info: { input: { type: 'http', method } }, schema: { type: 'object' } })),
    ...writable,
  ]
  let settled = 0
  const declare = async (bazaar: unknown) => {
    const payment = await signPayment(placeOf(scene), account, { payTo: shop.address })
    Object.assign(payment.body.paymentPayload as object, { extensions: { bazaar } })
    const { url } = pick(draw, scene.keepers).service
    const signal = AbortSignal.timeout(60_000)
    const answer = await post(url, '/settle', { key: shop.apiKey, body: payment.body, signal })
    countSuccess(scene, payment, answer)
    if (answer.success && ++settled === declarations.length) scene.acted.add('oddDeclarations')
    if (answer.status === 500) scene.won.push(`/settle answered 500 to an odd declaration: ${answer.detail}`)
  }
  let turn = 0
  return (over) =>
    again({ scene, draw, over, everyMs: 3_000 }, () => {
      const next = Array.from({ length: declaredAtOnce }, () => declarations[turn++ % declarations.length])
      return Promise.all(next.map(declare))
    })
}

/** Calls a tool seller with tool names that aren't strings. The seller must keep running. */
const oddCalls: Adversary = async (scene, draw) => {
  const shop = await scene.shop('0.01')
  const folder = await mkdtemp(join(tmpdir(), 'hostile-mcp-'))
  const prices = join(folder, 'prices.json')
  await writeFile(prices, JSON.stringify({ forecast: '0.05', help: 'free' }))
  const server = [process.execPath, 'test/support/weatherServer.ts']
  const selling = runCommand(
    [process.execPath, 'apps/cli/main.ts', 'mcp', 'sell', '--prices', prices, '--http', '0', '--', ...server],
    {
      TOLLKEEPER_GATEWAY_URL: scene.gatewayUrl,
      TOLLKEEPER_PROVIDER_ID: shop.providerId,
      TOLLKEEPER_API_KEY: shop.apiKey,
    },
  )
  const [url = ''] = /http:\S+/.exec(await selling.line(/listening on/)) ?? []
  const ask = async (body: object, session?: string) => {
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...(session !== undefined && { 'mcp-session-id': session }),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...body }),
      signal: AbortSignal.timeout(10_000),
    })
    await response.text()
    return response.headers.get('mcp-session-id') ?? session
  }
  const clientInfo = { name: 'stranger', version: '1.0.0' }
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }
  return async (over) => {
    await again({ scene, draw, over, everyMs: 3_000 }, async () => {
      const session = await ask({ method: 'initialize', params })
      for (const name of writable) await ask({ method: 'tools/call', params: { name } }, session)
      scene.acted.add('oddCalls')
      await fetch(url, { method: 'DELETE', headers: { 'mcp-session-id': session ?? '' } })
    })
    if (selling.child.exitCode !== null) scene.won.push(`the tool seller ended: ${selling.output()}`)
    else {
      selling.child.kill('SIGTERM')
      await once(selling.child, 'close')
    }
    await rm(folder, { recursive: true, force: true })
  }
}

/** Number of endpoints of maximum length that are registered before the play, more than fit on a page of a list. */
const listedFirst = 120
/** Maximum size of an answer in bytes: 256 KB of documents, and the other fields of 100 endpoints. */
const maxListBytes = 1_000_000

/** Strangers who register endpoints of maximum length, and read all lists of them as fast as possible. */
const listers: Adversary = async (scene, draw) => {
  const shops = await Promise.all(Array.from({ length: 3 }, () => scene.shop('0.01')))
  const long = { note: 'x'.repeat(3_900) }
  const schema = { type: 'object', description: long.note }
  let [asked, registered] = [0, 0]
  const register = async () => {
    const { providerId, apiKey, walletId } = pick(draw, shops)
    const response = await fetch(new URL(`/providers/${providerId}/endpoints`, scene.gatewayUrl), {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
      body: JSON.stringify({
        url: `https://free.example/${++asked}`,
        method: 'GET',
        pricing: { usdcPerUnit: '0.01' },
        walletId,
        description: `free listing ${asked}`,
        inputSchema: schema,
        inputExample: long,
        outputSchema: schema,
        outputExample: long,
      }),
    })
    const answer = await response.text()
    if (!response.ok) throw new Error(`an endpoint was not registered: ${answer}`)
    registered++
  }
  const paths = [
    '/discovery/resources?limit=100',
    '/discovery/search?query=free+listing&limit=100',
    `/discovery/merchant?payTo=0x${'1'.repeat(40)}`,
    ...shops.map(({ providerId }) => `/discovery/providers/${providerId}?origin=https://free.example`),
    '/openapi.json',
    '/llms.txt',
  ]
  const read = async (over: AbortSignal) => {
    const path = `${pick(draw, paths)}`
    const answer = await fetch(new URL(path, scene.gatewayUrl), { signal: over })
    const { byteLength } = await answer.arrayBuffer()
    if (byteLength > maxListBytes) scene.won.push(`${path} is ${byteLength} bytes long`)
    if (answer.ok && registered >= listedFirst) scene.acted.add('listers')
    if (!answer.ok && answer.status !== 429) scene.unread.push(`${path}: ${answer.status}`)
  }
  for (let i = 0; i < listedFirst; i += 10) await Promise.all(Array.from({ length: 10 }, register))
  return (over) =>
    Promise.all([
      again({ scene, draw, over, everyMs: 200 }, register),
      again({ scene, draw, over, everyMs: 500 }, () =>
        Promise.allSettled(Array.from({ length: 20 }, () => read(over))),
      ),
    ])
}

export const writers = { oddDeclarations, oddCalls, listers }
