import { describe, expect, test, vi } from 'vitest'
import { answerJson, challengeFor } from '../../test/playProvider.ts'
import { readBody, serve } from '../../test/serve.ts'
import { authorization } from '../../test/signedPayment.ts'
import { parseChallenge } from '../protocol/challenge.ts'
import { createGate } from './gate.ts'
import { createPrices, type Pricing, parsePrice } from './pricing.ts'

const url = 'https://api.example/weather?units=3'
const providerId = 'prov_1'

/** Starts a gateway that records requests to it, and refuses each payment because its amount is too low. */
async function playGateway() {
  const asked: { path: string | undefined; pricing: unknown }[] = []
  const gatewayUrl = await serve(async (request, response) => {
    const { pricing } = JSON.parse(await readBody(request)) as { pricing?: unknown }
    asked.push({ path: request.url, pricing })
    if (request.url === '/challenge') answerJson(response, 200, challengeFor(url))
    else answerJson(response, 402, { code: 'challenge_price_too_low' })
  })
  return { gatewayUrl, asked }
}

describe('parsePrice', () => {
  test.each([
    ['$0.05', 50_000n],
    ['0.05', 50_000n],
    [{ usdcPerUnit: '0.05' }, 50_000n],
    [{ usdcPerUnit: 0.05 }, 50_000n],
  ])('reads %j', (price, amount) => {
    expect(parsePrice(price)).toBe(amount)
  })

  test.each([
    ['$0', 'price_below_minimum'],
    ['-0.01', 'invalid_field'],
    ['$1e30', 'invalid_field'],
    ['$99999999999999', 'amount_too_high'],
    ['$$1', 'invalid_field'],
    ['', 'invalid_field'],
    [undefined, 'invalid_field'],
    [null, 'invalid_field'],
    [{}, 'invalid_field'],
    [Number.NaN, 'invalid_field'],
  ])('rejects %j', (price, code) => {
    expect(() => parsePrice(price)).toThrow(expect.objectContaining({ code }))
  })
})

describe('a function of the request', () => {
  const byUnits: Pricing = ({ url, headers }) =>
    headers.get('X-Tier') === 'gold' ? '$0.01' : `$0.0${new URL(url).searchParams.get('units')}`

  test('determines the price in the challenge for each request', async () => {
    const { gatewayUrl, asked } = await playGateway()
    const gate = createGate({ gatewayUrl, providerId, pricing: byUnits })
    const headers = { get: (name: string) => (name.toLowerCase() === 'x-tier' ? 'gold' : null) }
    await gate.check({ method: 'GET', url })
    await gate.check({ method: 'GET', url, headers })
    expect(asked).toEqual([
      { path: '/challenge', pricing: { usdcPerUnit: '0.03' } },
      { path: '/challenge', pricing: { usdcPerUnit: '0.01' } },
    ])
  })

  test('is called once for a paid request, whose payment is checked against the returned price', async () => {
    const { gatewayUrl, asked } = await playGateway()
    const pricing = vi.fn(() => '$0.02')
    const gate = createGate({ gatewayUrl, providerId, pricing, endpointId: 'ep_1' })
    const decision = await gate.check({ method: 'GET', url, authorization })
    expect(asked).toEqual([
      { path: '/verify', pricing: { usdcPerUnit: '0.02' } },
      { path: '/challenge', pricing: { usdcPerUnit: '0.02' } },
    ])
    expect(pricing).toHaveBeenCalledTimes(1)
    // The simulated gateway refuses the payment because its amount is too low, so nothing is charged and the buyer gets a new challenge.
    expect(decision).toMatchObject({ kind: 'answer', answer: { status: 402 } })
  })

  test.each<[string, Pricing]>([
    [
      'throws',
      () => {
        throw new Error('no tariff')
      },
    ],
    ['rejects', () => Promise.reject(new Error('no tariff'))],
    ['returns nothing', (() => undefined) as never],
    ['returns 0', () => '$0'],
    ['returns a negative price', () => '$-1'],
    ['never resolves', () => new Promise(() => {})],
  ])('sells nothing if it %s', async (_, pricing) => {
    const { gatewayUrl, asked } = await playGateway()
    const warned: string[] = []
    const warn = (message: string) => warned.push(message)
    for (const presented of [undefined, authorization]) {
      const gate = createGate({ gatewayUrl, providerId, pricing, warn, timeout: 100 })
      const decision = await gate.check({ method: 'GET', url, authorization: presented })
      if (decision.kind !== 'answer') throw new Error('Expected an answer')
      const { status, headers, body } = decision.answer
      expect([status, headers['Retry-After']]).toEqual([503, '1'])
      // The buyer must not see the reason for the failure.
      expect(body).not.toContain('tariff')
    }
    expect(asked).toEqual([])
    expect(warned).toEqual(Array(2).fill(expect.stringContaining('pricing_failed')))
  })

  test('also determines the price of mock payments', async () => {
    const gate = createGate({
      gatewayUrl: 'https://gateway.example',
      providerId,
      pricing: async () => '$0.20',
      mockPayments: true,
    })
    const decision = await gate.check({ method: 'GET', url })
    if (decision.kind !== 'answer') throw new Error('Expected an answer')
    const { accepts } = parseChallenge(JSON.parse(decision.answer.body))
    const amounts = accepts.map(({ maxAmountRequired }) => BigInt(maxAmountRequired))
    expect(amounts.reduce((sum, amount) => sum + amount)).toBe(200_000n)
  })

  test('has no fixed price', () => {
    expect(createPrices(() => '$1', 100).fixed).toBeUndefined()
    expect(createPrices('$1', 100).fixed).toBe(1_000_000n)
  })
})
