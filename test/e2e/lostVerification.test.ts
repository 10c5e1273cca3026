import { once } from 'node:events'
import { createServer, request as forward, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { newBuyer, openShop, present, signOnly } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'

// Between the middleware and the real gateway stands a network that delivers each call and loses some answers.

let stack: TestStack
beforeAll(async () => {
  stack = await startTestStack()
})
afterAll(() => stack?.close())

/** @param lost how many answers of `/verify` never arrive. */
async function loseAnswers(lost: number): Promise<{ url: string; keys: Set<unknown>; mend: () => void }> {
  const keys = new Set<unknown>()
  let left = lost
  const server: Server = createServer((incoming, outgoing) => {
    const isVerify = incoming.url === '/verify'
    if (isVerify) keys.add(incoming.headers['idempotency-key'])
    const options = { method: incoming.method, headers: incoming.headers }
    const onward = forward(new URL(incoming.url ?? '/', stack.api.url), options, (answer) => {
      if (isVerify && left-- > 0) {
        // The gateway has decided; nobody hears of it.
        answer.resume().once('end', () => incoming.socket.destroy())
        return
      }
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(outgoing)
    })
    onward.on('error', () => incoming.socket.destroy())
    incoming.pipe(onward)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const mend = () => {
    left = 0
  }
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, keys, mend }
}

test('behavior: a lost answer is asked for again, and the request is served once', async () => {
  const network = await loseAnswers(2)
  const shop = await openShop(stack, { gatewayUrl: network.url })
  const buyer = await newBuyer(stack, '1')
  const { data, paymentId } = await buyer.client.request<{ verified: boolean }>(shop.url)
  expect(data).toMatchObject({ verified: true, paymentId })
  expect(network.keys.size).toBe(1)
  expect(shop.served()).toBe(1)
  expect((await stack.get(`/payments/${paymentId}`)).body).toMatchObject({ payment_status: 'verified' })
  await shop.close()
})

test('behavior: no answer at all: nothing is served, and what the gateway accepted is voided', async () => {
  const network = await loseAnswers(Number.POSITIVE_INFINITY)
  const shop = await openShop(stack, { gatewayUrl: network.url, timeout: 2_000 })
  const payment = await signOnly(stack, shop, await newBuyer(stack, '1'))
  const answer = await present(shop, payment)
  expect(answer.status).toBe(503)
  expect(answer.headers.get('service-receipt')).toBeNull()
  network.mend()

  const again = await present(shop, payment)
  expect(again.status).toBe(409)
  const { paymentId } = (await again.json()) as { paymentId: string }
  await until('the payment is voided', async () => {
    const { body } = await stack.get(`/payments/${paymentId}`)
    return (body as { payment_status: string }).payment_status === 'voided'
  })
  expect(shop.served()).toBe(0)
  await shop.close()
})
