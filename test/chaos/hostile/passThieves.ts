import { setTimeout as wait } from 'node:timers/promises'
import type { PassOption } from '@tollkeeper/sdk/middleware/passOption'
import { decodePass, encodePassHeader, passProofData } from '@tollkeeper/sdk/protocol/pass'
import { openShop, type Shop } from '../../support/shop.ts'
import { type Adversary, again, pick } from './act.ts'
import type { Buyer, Scene } from './scene.ts'

// Strangers who copy passes, and buyers who want more than they paid for.

const price = '0.05'
const counted = 5

/** Opens a seller of passes on the scene's gateway. */
async function openSeller({ stack, gatewayUrl }: Scene, pass: PassOption): Promise<Shop> {
  return openShop(
    { chain: stack.chain, api: { url: gatewayUrl } },
    { usdcPerUnit: price, gate: { pricing: { usdcPerUnit: price, pass } } },
  )
}

/** Buys a pass. Returns the pass and `prove`, which creates the header with which the buyer presents the pass. */
async function buyPass({ account, client }: Buyer, shop: Shop) {
  const { headers, paymentId = '', receipt = '' } = await client.request(shop.url)
  const jws = headers.get('service-pass') ?? ''
  const prove = async (origin: string, seconds = 300): Promise<string> => {
    const expiresAt = Math.floor(Date.now() / 1000) + seconds
    const data = passProofData({ origin, pass: paymentId, expiresAt })
    return encodePassHeader(jws, { expiresAt, signature: await account.signTypedData(data as never) })
  }
  return { jws, paymentId, receipt, prove, requests: decodePass(jws)?.requests }
}

/** Presents a pass. Returns the status of the answer. */
const present = async (url: string, pass: string): Promise<number> => {
  const response = await fetch(url, {
    headers: { 'service-pass': pass },
    signal: AbortSignal.timeout(30_000),
  })
  await response.text()
  return response.status
}

/** Maximum time in ms for which the payer of a pass repeats a request that gets 503. */
const mostOutageMs = 60_000

/** Presents a pass as its payer, who repeats a request that gets 503 because the gateway or its database is down. Returns the last status. */
const presentOwn = async (url: string, prove: () => Promise<string>): Promise<number> => {
  const end = Date.now() + mostOutageMs
  for (;;) {
    const status = await present(url, await prove())
    if (status !== 503 || Date.now() > end) return status
    await wait(1_000)
  }
}

/** Thieves who present a copied pass without its payer's proof, at another seller, or with changed claims. */
const passThieves: Adversary = async (scene, draw) => {
  const [shop, other] = [await openSeller(scene, '1h'), await openSeller(scene, '1h')]
  const { origin } = new URL(shop.url)
  return async (over) => {
    await again({ scene, draw, over, everyMs: 1_500 }, async () => {
      const { jws, receipt, prove } = await buyPass(await scene.buyer(), shop)
      const [header = '', payload = '', signature = ''] = jws.split('.')
      const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as object
      const longer = Buffer.from(JSON.stringify({ ...claims, exp: 4_000_000_000, boundTo: 'bearer' }))
      const none = Buffer.from(JSON.stringify({ alg: 'none', typ: 'x402-pass+jwt' })).toString('base64url')
      const tries: [how: string, url: string, pass: string][] = [
        ['without its payer', shop.url, jws],
        ['by a proof for another origin', shop.url, await prove('https://evil.example')],
        ['by an expired proof', shop.url, await prove(origin, -1)],
        ['by a proof that is valid for an hour', shop.url, await prove(origin, 3_600)],
        ['at another seller', other.url, await prove(new URL(other.url).origin)],
        ['with other claims', shop.url, `${header}.${longer.toString('base64url')}.${signature}`],
        ['without a signature', shop.url, `${none}.${payload}.${signature}`],
        ['as a receipt', shop.url, receipt],
      ]
      const [how, url, pass] = pick(draw, tries)
      if ((await present(url, pass)) === 200) scene.won.push(`a pass was served ${how}`)
      const status = await presentOwn(shop.url, () => prove(origin))
      if (status !== 200) scene.won.push(`a pass was not served to its payer: ${status}`)
      scene.acted.add('passThieves')
    })
    await Promise.all([shop, other].map((one) => one.close()))
  }
}

/** Holders of a shared, counted bearer pass, who all use its last requests at once, and continue after it was voided. */
const passSharers: Adversary = async (scene, draw) => {
  const shop = await openSeller(scene, { requests: counted, boundTo: 'bearer' })
  return async (over) => {
    await again({ scene, draw, over, everyMs: 2_000 }, async () => {
      const { jws, paymentId } = await buyPass(await scene.buyer(), shop)
      const isVoided = draw() < 0.3
      if (isVoided) {
        const { status } = await fetch(new URL(`/payments/${paymentId}/void`, scene.gatewayUrl), {
          method: 'POST',
          headers: { authorization: `Bearer ${shop.apiKey}` },
        })
        // The payment can't be voided, because it is being settled already.
        if (status !== 200) return
      }
      const served = await Promise.all(Array.from({ length: 4 * counted }, () => present(shop.url, jws)))
      const most = isVoided ? 0 : counted - 1
      const count = served.filter((status) => status === 200).length
      if (count > most) scene.won.push(`a pass with ${most} requests left served ${count}`)
      scene.acted.add('passSharers')
    })
    await shop.close()
  }
}

export const passCheats = { passThieves, passSharers }
