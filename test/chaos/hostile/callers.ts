import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { signPayment } from '../../support/x402.ts'
import {
  type Adversary,
  again,
  countSuccess,
  type KeeperAnswer,
  openGranted,
  type Payment,
  pick,
  placeOf,
  post,
} from './act.ts'

// Strangers who try to get a false answer, or to keep us from answering others.

/** Number of concurrent settlement requests, and of connections that are opened. */
const atOnce = 60

/**
 * A seller that sends a payment to `/settle` and hangs up before the answer, and then sends it twice at once. If it got `success` a second time, it
 * would serve a second time.
 */
const deafSellers: Adversary = async (scene, draw) => {
  const shop = await openGranted(scene, '5000')
  const { account } = await scene.buyer()
  return (over) =>
    again({ scene, draw, over, everyMs: 4_000 }, async () => {
      const payment = await signPayment(placeOf(scene), account, { payTo: shop.address })
      const ask = async (ms: number): Promise<KeeperAnswer | undefined> => {
        const signal = AbortSignal.any([over, AbortSignal.timeout(Math.ceil(ms))])
        const { url } = pick(draw, scene.keepers).service
        const answer = await post(url, '/settle', { key: shop.apiKey, body: payment.body, signal }).catch(
          () => undefined,
        )
        if (answer) countSuccess(scene, payment, answer)
        return answer
      }
      await ask(100 + draw() * 1_500)
      await Promise.all([ask(60_000), ask(60_000)])
      await ask(60_000)
    })
}

/** One caller with a small grant, which opens as many settlements as it can. */
const crowds: Adversary = async (scene, draw) => {
  const shop = await openGranted(scene, '0.02')
  const { account } = await scene.buyer()
  const settle = async (payment: Payment, over: AbortSignal) => {
    const signal = AbortSignal.any([over, AbortSignal.timeout(60_000)])
    const { url } = pick(draw, scene.keepers).service
    countSuccess(scene, payment, await post(url, '/settle', { key: shop.apiKey, body: payment.body, signal }))
  }
  return (over) =>
    again({ scene, draw, over, everyMs: 10_000 }, async () => {
      const terms = { payTo: account.address.toLowerCase() as `0x${string}`, value: 1n, validFor: 90 }
      const payments = await Promise.all(
        Array.from({ length: atOnce }, () => signPayment(placeOf(scene), account, terms)),
      )
      await Promise.allSettled(payments.map((payment) => settle(payment, over)))
    })
}

/** Opens connections, sends half a request on some of them, and waits. */
const hangers: Adversary = async (scene, draw) => {
  return async (over) => {
    const sockets = new Set<Socket>()
    await again({ scene, draw, over, everyMs: 2_000 }, async () => {
      const { hostname, port } = new URL(pick(draw, scene.hosts).service.url)
      for (let i = 0; i < atOnce; i++) {
        const socket = connect(Number(port), hostname)
        sockets.add(socket)
        socket.on('error', () => {}).on('close', () => sockets.delete(socket))
        socket.resume()
        await once(socket, 'connect')
        if (draw() < 0.5) socket.write('POST /settle HTTP/1.1\r\nhost: ')
      }
    })
    scene.events.push(`hangers: ${sockets.size} connections still open`)
    for (const socket of sockets) socket.destroy()
  }
}

/** Reads the largest public resources as fast as possible. */
const readers: Adversary = async (scene, draw) => {
  return (over) =>
    again({ scene, draw, over, everyMs: 1_000 }, async () => {
      const urls = [
        new URL('/openapi/gateway.json', scene.gatewayUrl),
        ...scene.keepers.map(({ service }) => new URL('/metrics', service.url)),
      ]
      const read = async () => {
        const url = pick(draw, urls)
        const answer = await fetch(url, { signal: over })
        await answer.arrayBuffer()
        // Check only the first URL: the keepers' metrics come from the database, which may be down.
        if (url === urls[0] && !answer.ok && answer.status !== 429)
          scene.unread.push(`${url}: ${answer.status}`)
      }
      await Promise.allSettled(Array.from({ length: atOnce }, read))
    })
}

export const callers = { deafSellers, crowds, hangers, readers }
