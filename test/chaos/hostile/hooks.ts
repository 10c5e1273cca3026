import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { loopback } from '@tollkeeper/runtime/port'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import type { Address } from 'viem'
import { randomHex, signAuthorization, validFor } from '../../support/usdc.ts'
import { signPayment } from '../../support/x402.ts'
import { type Adversary, again, pick, placeOf, post } from './act.ts'

// A seller's hook that hangs, lies and contradicts itself, and a payer whom it refuses and who tries every way to pay.
// No one else may have to wait, and none of that payer's payments may be accepted.

const json = (response: ServerResponse, body: unknown) =>
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body))

/** Invalid answers of a hook. The gateway must treat each of them as a refusal. */
const lies: Record<string, (response: ServerResponse) => unknown> = {
  hangs: () => undefined,
  breaksOff: (response) => response.destroy(),
  fails: (response) => response.writeHead(500).end(),
  redirects: (response) => response.writeHead(307, { location: 'http://127.0.0.1:1/' }).end(),
  contradicts: (response) => json(response, { accept: true, refuse: 'no' }),
  floods: (response) => json(response, { accept: true, more: 'x'.repeat(1_000_000) }),
  speaksHtml: (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('{"accept":true}'),
  asksTooMuch: (response) => json(response, { price: `1${'0'.repeat(30)}` }),
  asksLessThanNothing: (response) => json(response, { price: '-1' }),
}

/** A hook that decides only sometimes, and a payer whom it always refuses. */
const lyingHooks: Adversary = async (scene, draw) => {
  const [shop, accomplice] = [await scene.shop('0.05'), await scene.shop('0.05')]
  const [banned, other] = [await scene.buyer(), await scene.buyer()]
  const isBanned = (payer: unknown) => payer === banned.account.address.toLowerCase()
  let questions = 0
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => {
      text += chunk
    })
    request.on('end', () => {
      questions += 1
      const { data } = JSON.parse(text) as { data: { payer: string | null } }
      const lie = lies[pick(draw, Object.keys(lies))] as (typeof lies)[string]
      if (draw() < 0.6) lie(response)
      else json(response, isBanned(data.payer) ? { refuse: 'Banned' } : { accept: true })
    })
  })
  server.listen(0, loopback)
  await once(server, 'listening')
  const response = await fetch(new URL(`/providers/${shop.providerId}/hook`, scene.gatewayUrl), {
    method: 'PUT',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${shop.apiKey}` },
    body: JSON.stringify({ url: `http://${loopback}:${(server.address() as AddressInfo).port}/` }),
  })
  if (response.status !== 200) throw new Error(`no hook: ${await response.text()}`)

  const ways: Record<string, (over: AbortSignal) => Promise<boolean>> = {
    verify: () =>
      banned.client.request(shop.url).then(
        () => true,
        () => false,
      ),
    facilitator: async (over) => {
      const key = pick(draw, [shop.apiKey, accomplice.apiKey])
      const { body } = await signPayment(placeOf(scene), banned.account, { payTo: shop.address })
      const signal = AbortSignal.any([over, AbortSignal.timeout(15_000)])
      return (await post(pick(draw, scene.keepers).service.url, '/settle', { key, body, signal })).success
    },
    submission: async (over) => {
      const from = banned.account.address.toLowerCase() as Address
      const terms = { from, to: shop.address, value: 50_000n, ...validFor(3_600), nonce: randomHex(32) }
      const transfers = [encodePayload(await signAuthorization(placeOf(scene), banned.account, terms))]
      const signal = AbortSignal.any([over, AbortSignal.timeout(15_000)])
      const { status } = await post(pick(draw, scene.keepers).service.url, '/submit', {
        body: { network: scene.stack.chain.network, transfers },
        signal,
      })
      return status === 200
    },
  }
  return async (over) => {
    await again({ scene, draw, over, everyMs: 1_000 }, async () => {
      const way = pick(draw, Object.keys(ways))
      if (await ways[way]?.(over))
        scene.won.push(`a payer paid through ${way}, although the hook refuses this payer`)
      await other.client.request(shop.url).catch(() => {})
      if (questions > 0) scene.acted.add('lyingHooks')
    })
    server.closeAllConnections()
    server.close()
    const { account } = banned
    const [row] = await scene.database<[{ count: number }]>`
      select count(*)::int as count from payment where payer = ${account.address.toLowerCase()}`
    if (row.count > 0) scene.won.push(`${row.count} payments of a payer whom the hook refuses were accepted`)
  }
}

export const hooks = { lyingHooks }
