import { describe, expect, test } from 'vitest'
import {
  answerJson,
  clientOf,
  errorOf,
  fetchWithKeys,
  gatewayUrl,
  playProvider,
  receipt,
  serveReceipt,
  settledReceipt,
} from '../../test/playProvider.ts'
import { closedPort, readBody, serve } from '../../test/serve.ts'
import { decodeReceipt } from '../protocol/receipt.ts'

describe('settleNow', () => {
  test('default: sends both transfers to the facilitator, and returns the hash of the transaction', async () => {
    const { url } = await playProvider(serveReceipt)
    let sent: unknown
    const facilitatorUrl = await serve(async (request, response) => {
      sent = [request.method, request.url, JSON.parse(await readBody(request))]
      answerJson(response, 200, { txHash: `0x${'9'.repeat(64)}` })
    })
    const client = clientOf({ facilitatorUrl: `${facilitatorUrl}/` })
    const { payment } = await client.request(url)
    if (!payment) throw new Error('Expected a payment')
    expect(await client.settleNow(payment)).toEqual({ paymentTxHash: `0x${'9'.repeat(64)}` })
    expect(sent).toEqual(['POST', '/submit', { network: 'base', transfers: payment.payloads }])
  })

  const payment = {
    requestId: '',
    network: 'base',
    macaroon: '',
    payloads: ['a', 'b'] as [string, string],
    amount: 1n,
  }

  test('error: reports a facilitator without gas', async () => {
    const facilitatorUrl = await serve((_, response) =>
      answerJson(response, 503, { code: 'insufficient_gas_funds', detail: 'empty' }),
    )
    const error = await errorOf(clientOf({ facilitatorUrl }).settleNow(payment))
    expect(error).toMatchObject({ name: 'InsufficientGasError', code: 'insufficient_gas_funds', payment })
    expect(error.message).toContain('Insufficient ETH for gas')
  })

  test('error: rejects a response without a hash', async () => {
    const facilitatorUrl = await serve((_, response) => answerJson(response, 200, { txHash: '0x1' }))
    expect(await errorOf(clientOf({ facilitatorUrl }).settleNow(payment))).toMatchObject({
      code: 'http_error',
    })
  })

  test('error: rejects a call of settleNow without facilitatorUrl', async () => {
    await expect(clientOf().settleNow(payment)).rejects.toThrow(/facilitatorUrl/)
  })
})

test.each([true, false])(
  'error: waitForSettlement fails for a payment that the gateway doesn’t know (client option `tabs`: %s)',
  async (tabs) => {
    const url = await serve((_, response) => answerJson(response, 404, { code: 'unknown_payment' }))
    const waiting = clientOf({ gatewayUrl: url, tabs }).waitForSettlement('pay_1', { timeoutMs: 5_000 })
    expect((await errorOf(waiting)).code).toBe('unknown_payment')
  },
)

test('behavior: waitForSettlement waits until the receipt names the transaction', async () => {
  const { paymentId, transactionHash } = decodeReceipt(settledReceipt) ?? {}
  if (!paymentId) throw new Error('Expected a receipt')
  const receipts = [receipt, settledReceipt]
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const { pathname } = new URL(String(input))
    if (pathname === `/payments/${paymentId}`) return Response.json({ payment_status: 'settled' })
    if (pathname === `/receipts/${paymentId}`) return Response.json({ receipt: receipts.shift() })
    return fetchWithKeys(input, init)
  }
  const settlement = await clientOf({ gatewayUrl, fetch }).waitForSettlement(paymentId, {
    pollingInterval: 1,
  })
  expect(settlement).toEqual({
    paymentId,
    status: 'settled',
    paymentTxHash: transactionHash,
    receipt: settledReceipt,
  })
  expect(receipts).toEqual([])
})

test('error: waitForSettlement keeps trying an unreachable gateway until its timeout', async () => {
  const client = clientOf({ gatewayUrl: await closedPort() })
  const error = await errorOf(client.waitForSettlement('pay_1', { timeoutMs: 200, pollingInterval: 20 }))
  expect(error).toMatchObject({ code: 'timeout' })
})

test('args: waitForSettlement ends when its signal fires', async () => {
  const client = clientOf({ gatewayUrl: await closedPort() })
  const reason = new Error('enough')
  await expect(client.waitForSettlement('pay_1', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
})
