import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { expect, test } from 'vitest'
import { serve } from '../../test/serve.ts'
import { authorization, sellerOptions } from '../../test/signedPayment.ts'
import { createToolGate } from './toolGate.ts'

const result: CallToolResult = { content: [{ type: 'text', text: 'sunny' }] }
const paid = { name: 'forecast', meta: { 'tollkeeper/authorization': authorization }, hasOutputSchema: false }

/** Creates a gate whose gateway accepts each payment once. `asked` lists the paths that the gate requested from the gateway. */
async function openGate() {
  const asked: (string | undefined)[] = []
  const gatewayUrl = await serve(({ url }, response) => {
    const isRepeated = asked.includes(url)
    asked.push(url)
    if (url !== '/verify') return response.end('{}')
    if (isRepeated) return response.writeHead(409).end('{"code":"payment_replayed"}')
    return response.end('{"verified":true,"receipt":"a.b.c","paymentId":"pay_1"}')
  })
  const options = { ...sellerOptions, gatewayUrl, endpointId: 'ep_1', apiKey: 'tk_1', warn: () => {} }
  return { answerCall: createToolGate(options), asked }
}

test('default: charges for the result of a tool', async () => {
  const { answerCall, asked } = await openGate()
  const answer = await answerCall(paid, async () => result)
  const _meta = { 'tollkeeper/receipt': { paymentId: 'pay_1', status: 'verified' } }
  expect(answer).toMatchObject({ kind: 'result', result: { ...result, _meta } })
  expect(asked).toEqual(['/verify'])
})

test('behavior: voids the payment if the tool throws, and throws the same error', async () => {
  const { answerCall, asked } = await openGate()
  const failure = new Error('no weather')
  const answer = answerCall(paid, async () => {
    throw failure
  })
  await expect(answer).rejects.toBe(failure)
  expect(asked).toEqual(['/verify', '/payments/pay_1/void'])
})

test('behavior: voids the payment if the result has `isError`', async () => {
  const { answerCall, asked } = await openGate()
  const answer = await answerCall(paid, async () => ({ ...result, isError: true }))
  const _meta = { 'tollkeeper/receipt': { paymentId: 'pay_1', status: 'voided' } }
  expect(answer).toMatchObject({ kind: 'result', result: { isError: true, _meta } })
  expect(asked).toEqual(['/verify', '/payments/pay_1/void'])
})

test('behavior: replays a kept result only for the same arguments', async () => {
  const { answerCall } = await openGate()
  let runs = 0
  const callFor = (city: string) =>
    answerCall({ ...paid, arguments: { city } }, async () => {
      runs += 1
      return result
    })
  await callFor('Lisbon')
  const _meta = { 'tollkeeper/replayed': true }
  expect(await callFor('Lisbon')).toMatchObject({ kind: 'result', result: { ...result, _meta } })
  expect(await callFor('Porto')).toMatchObject({
    kind: 'result',
    result: { isError: true, _meta: { 'tollkeeper/problem': { status: 409, code: 'payment_replayed' } } },
  })
  expect(runs).toBe(1)
})

test('error: does not run a tool for a call without payment', async () => {
  const { answerCall } = await openGate()
  let runs = 0
  const answer = await answerCall({ ...paid, meta: undefined }, async () => {
    runs += 1
    return result
  })
  expect(answer).toMatchObject({ kind: 'result', result: { isError: true } })
  expect(runs).toBe(0)
})

test.each(['1h', 100, { within: '1d', boundTo: 'bearer' }] as const)(
  'error: rejects the pricing of a tool if its pass is the invalid value %j',
  (pass) => {
    const pricing = { usdcPerUnit: '1', pass }
    expect(() => createToolGate({ ...sellerOptions, apiKey: 'tk_1', pricing })).toThrow(
      new TypeError(
        'pricing.pass: a tool call has no header for a pass; sell the pass at an HTTP endpoint, or set a price per call',
      ),
    )
  },
)
