import { describe, expect, onTestFinished, test, vi } from 'vitest'
import {
  account,
  answerJson,
  challengeFor,
  clientOf,
  errorOf,
  type Handler,
  playedGateway,
  playProvider,
  presentedIn,
  receipt,
  serveReceipt,
} from '../../test/playProvider.ts'
import { closedPort, serve } from '../../test/serve.ts'
import { RequestTimeoutError } from './errors.ts'

describe('faults', () => {
  test.each<[string, Handler]>([
    ['a connection breaks', (request) => request.socket.destroy()],
    [
      'a response breaks off',
      (request, response) => {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': '100' })
        response.write('{"sunny":', () => request.socket.destroy())
      },
    ],
    [
      'the settlement is pending',
      (_, response) => answerJson(response, 503, { code: 'settlement_pending' }, { 'Retry-After': '0' }),
    ],
  ])('behavior: presents the same authorization again if %s after payment', async (_, fail) => {
    const { url, paidHeaders } = await playProvider((request, response, attempt) =>
      (attempt < 3 ? fail : serveReceipt)(request, response, attempt),
    )
    expect(await clientOf().request(url)).toMatchObject({ receipt, data: { sunny: true } })
    expect(paidHeaders).toHaveLength(3)
    expect(new Set(paidHeaders).size).toBe(1)
  })

  test('error: times out if a settlement stays pending, and lets the caller present the payment again', async () => {
    const { url, paidHeaders } = await playProvider((_, response) =>
      answerJson(response, 503, { code: 'settlement_pending' }, { 'Retry-After': '60' }),
    )
    const error = await errorOf(clientOf().request(url, { timeout: 2_000 }))
    expect(error).toMatchObject({ code: 'timeout', payment: { amount: 50_000n } })
    expect(paidHeaders).toHaveLength(1)
  })

  test('error: fails if the connection keeps breaking, and lets the caller present the payment again', async () => {
    let isBroken = true
    const { url, paidHeaders, requests } = await playProvider((request, response, attempt) => {
      if (isBroken) request.socket.destroy()
      else serveReceipt(request, response, attempt)
    })
    const client = clientOf()
    const error = await errorOf(client.request(url))
    expect(error).toMatchObject({ name: 'NetworkError', code: 'network_error' })
    expect(error.message).toContain('network')
    isBroken = false
    if (!error.payment) throw new Error('The error must carry the payment')
    expect((await client.request(url, { payment: error.payment })).receipt).toBe(receipt)
    expect(paidHeaders).toHaveLength(4)
    expect(new Set(paidHeaders).size).toBe(1)
    // The next request is a new purchase, so it doesn't receive this response again.
    const before = requests()
    await client.request(url)
    expect(requests() - before).toBe(2)
  })

  test.each<[string, number, Record<string, string>]>([
    ['the gateway is still serving the request (409)', 409, { 'Retry-After': '0' }],
    ['a proxy failed to deliver the request (502)', 502, {}],
    ['the gateway could not verify the payment yet (503)', 503, { 'Retry-After': '0' }],
  ])('behavior: presents a payment again if %s', async (_, status, headers) => {
    const { url, paidHeaders } = await playProvider((request, response, attempt) => {
      if (attempt < 3) answerJson(response, status, { code: 'dependency_unavailable' }, headers)
      else serveReceipt(request, response, attempt)
    })
    expect((await clientOf().request(url)).receipt).toBe(receipt)
    expect([paidHeaders.length, new Set(paidHeaders).size]).toEqual([3, 1])
  })

  test('behavior: if a payment’s outcome is unknown, presents that payment again and signs no other', async () => {
    let isBroken = true
    const { url, paidHeaders } = await playProvider((request, response, attempt) => {
      if (isBroken) request.socket.destroy()
      else serveReceipt(request, response, attempt)
    })
    const signTypedData = vi.fn(account.signTypedData)
    const client = clientOf({ account: { address: account.address, signTypedData }, split: 'onchain' })
    const error = await errorOf(client.request(url, { body: { n: 1 } }))
    expect(error).toMatchObject({
      outcome: 'unknown',
      advice: expect.stringContaining('Repeat the same request'),
    })
    const [half] = presentedIn(paidHeaders[0])
    expect(error.settlesUntil).toBe(Number(half?.validBefore))
    expect(error.advice).toContain(`/authorizations/${half?.from}/${half?.nonce}`)
    isBroken = false
    expect((await client.request(url, { body: { n: 1 } })).receipt).toBe(receipt)
    expect([new Set(paidHeaders).size, signTypedData.mock.calls.length]).toEqual([1, 1])
    // The outcome is now known, so another request is another payment.
    await client.request(url, { body: { n: 1 } })
    await client.request(url, { body: { n: 2 } })
    expect(signTypedData).toHaveBeenCalledTimes(3)
  })

  test.each([
    ['voided', 200, { payment_status: 'voided' }, 'not_charged', 2],
    ['accepted', 200, { payment_status: 'verified' }, 'unknown', 1],
    ['unknown', 404, { code: 'unknown_payment' }, 'unknown', 2],
    ['unavailable', 503, {}, 'unknown', 1],
  ] as const)(
    'behavior: after a seller refuses a payment that is %s at the gateway, reports the matching outcome, and pays when the caller repeats the request',
    async (_, status, body, outcome, signed) => {
      const { url, paidHeaders } = await playProvider((request, response, attempt) => {
        const code = 'invalid_signature'
        if (attempt > 1) return serveReceipt(request, response, attempt)
        answerJson(response, 402, { ...challengeFor(`http://${request.headers.host}/`), code })
      })
      playedGateway.report = { status, body }
      onTestFinished(() => {
        playedGateway.report = { status: 404, body: { code: 'unknown_payment' } }
      })
      const client = clientOf()
      const error = await errorOf(client.request(url))
      expect(error).toMatchObject({ name: 'PaymentVerificationError', outcome })
      expect((await client.request(url)).receipt).toBe(receipt)
      expect(paidHeaders).toHaveLength(2)
      const times = new Set(
        paidHeaders.map((header) =>
          presentedIn(header)
            .map(({ signature }) => signature)
            .join(),
        ),
      )
      expect(times.size <= signed).toBe(true)
    },
  )

  test('behavior: reports the outcome `served` for an error after payment, and `not_charged` for an error before payment', async () => {
    const { url } = await playProvider((_, response) =>
      answerJson(response, 404, {}, { 'Service-Payment-Id': 'pay_1', 'Service-Payment-Status': 'verified' }),
    )
    expect(await errorOf(clientOf().request(url))).toMatchObject({ status: 404, outcome: 'served' })
    const refused = await errorOf(clientOf({ limits: { perPayment: '0.01' } }).request(url))
    expect(refused).toMatchObject({ outcome: 'not_charged', settlesUntil: undefined, advice: undefined })
  })

  test('error: does not repeat a request whose connection breaks before payment', async () => {
    let requests = 0
    const url = await serve((request) => {
      requests++
      request.socket.destroy()
    })
    const error = await errorOf(clientOf().request(url))
    expect(error).toMatchObject({ code: 'network_error', payment: undefined })
    expect(requests).toBe(1)
  })

  test('error: reports a network error if no server listens', async () => {
    const error = await errorOf(clientOf().request(await closedPort()))
    expect(error).toMatchObject({ code: 'network_error' })
    expect(error.message).toMatch(/network error.*ECONNREFUSED/)
  })

  test('error: times out if no response arrives, whether before or after payment', async () => {
    const silent = await serve(() => {})
    const early = await errorOf(clientOf({ timeout: 100 }).request(silent))
    expect(early).toBeInstanceOf(RequestTimeoutError)
    expect(early).toMatchObject({ code: 'timeout', payment: undefined })
    expect(early.message).toMatch(/^Request timeout/)
    const { url } = await playProvider(() => {})
    const late = await errorOf(clientOf().request(url, { timeout: 2_000 }))
    expect(late).toMatchObject({ code: 'timeout', payment: { amount: 50_000n } })
  })

  test('error: times out on a response that never ends', async () => {
    const url = await serve((_, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' }).write('a')
    })
    expect(await errorOf(clientOf().request(url, { timeout: 200 }))).toMatchObject({ code: 'timeout' })
  })

  test('error: times out on a wallet that never signs, and does not ask for a second signature', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const asked: (() => void)[] = []
    const slow = {
      address: account.address,
      signTypedData: () =>
        new Promise<`0x${string}`>((resolve) => asked.push(() => resolve(`0x${'1'.repeat(130)}`))),
    }
    const error = await errorOf(clientOf({ account: slow }).request(url, { timeout: 2_000 }))
    expect(error).toMatchObject({ code: 'timeout', payment: undefined })
    asked[0]?.()
    await new Promise(setImmediate)
    expect(asked).toHaveLength(1)
    expect(paidHeaders).toEqual([])
  })

  test('args: puts the payment into the error if the signal fires after payment', async () => {
    const controller = new AbortController()
    const reason = new DOMException('The operation timed out', 'TimeoutError')
    const { url, paidHeaders } = await playProvider(() => controller.abort(reason))
    const error = await errorOf(clientOf().request(url, { signal: controller.signal }))
    expect(error).toMatchObject({ code: 'aborted', cause: reason, payment: { amount: 50_000n } })
    expect(paidHeaders).toHaveLength(1)
  })

  test('args: throws the reason of a signal that fires before payment', async () => {
    const { url } = await playProvider(() => {})
    const controller = new AbortController()
    const reason = new Error('changed my mind')
    const request = clientOf().request(url, { signal: controller.signal })
    controller.abort(reason)
    await expect(request).rejects.toBe(reason)
  })
})
