import { x402HTTPClient } from '@x402/core/client'
import { isPaymentRequiredV2, PaymentRequiredV1Schema } from '@x402/core/schemas'
import { describe, expect, test } from 'vitest'
import { answerJson, challengeFor } from '../../test/playProvider.ts'
import { serve } from '../../test/serve.ts'
import { paymentSignature, xPayment } from '../../test/signedPayment.ts'
import { challengeMediaType, parseChallenge } from '../protocol/challenge.ts'
import { splitterFactory } from '../protocol/deployments.ts'
import { splitterAddress } from '../protocol/splitter.ts'
import type { PaymentRequired } from '../protocol/x402.ts'
import { createGate, type GateOptions } from './gate.ts'

// Tests which client gets which form of a 402. The gateway is simulated, so that it can return false data. test/e2e shows that other clients can pay
// the real gateway's challenges.

const resource = 'https://api.example/weather?city=1'
const challenge = challengeFor(resource)
const splitter = splitterAddress({
  factory: splitterFactory,
  provider: `0x${'b'.repeat(40)}`,
  platform: `0x${'c'.repeat(40)}`,
  providerShare: 19n,
  platformShare: 1n,
})

/** Returns a 402. The simulated gateway responds to `/challenge` with this challenge, and to `/verify` with this refusal. */
async function demand({
  answered = challenge as object,
  options = {} as Partial<GateOptions>,
  refusal = { code: 'insufficient_balance' } as { code: string; status?: number },
  headers = {} as { accept?: string; paymentSignature?: string; xPayment?: string },
} = {}) {
  const gatewayUrl = await serve((request, response) =>
    request.url === '/challenge'
      ? answerJson(response, 200, answered)
      : answerJson(response, refusal.status ?? 402, refusal),
  )
  const gate = createGate({ gatewayUrl, providerId: 'prov_1', pricing: { usdcPerUnit: '0.05' }, ...options })
  const decision = await gate.check({ method: 'GET', url: resource, ...headers })
  if (decision.kind !== 'answer') throw new Error('Expected an answer')
  const { answer } = decision
  const header = answer.headers['PAYMENT-REQUIRED']
  const required = header === undefined ? undefined : readRequired(header)
  return { ...answer, body: JSON.parse(answer.body) as Record<string, unknown>, required }
}

/** Reads the header as the reference client does. */
function readRequired(header: string): PaymentRequired {
  const client = new x402HTTPClient({} as never)
  return client.getPaymentRequiredResponse((name) => (name === 'PAYMENT-REQUIRED' ? header : null)) as never
}

test('default: sends the Tollkeeper challenge in the body, and the x402 v2 offer in the header', async () => {
  const { status, headers, body, required } = await demand()
  expect([status, headers['Content-Type'], headers['Cache-Control']]).toEqual([
    402,
    'application/json',
    'no-store',
  ])
  expect(body).toEqual({ ...challenge, error: 'Payment required' })
  expect(required).toEqual({
    x402Version: 2,
    error: 'Payment required',
    resource: { url: resource, description: 'Provider payment', mimeType: 'application/json' },
    accepts: [
      {
        scheme: 'exact',
        network: 'eip155:8453',
        amount: '50000',
        asset: challenge.accepts[0].asset,
        payTo: splitter,
        maxTimeoutSeconds: 3_600,
        extra: {
          name: 'USD Coin',
          version: '2',
          primaryType: 'TransferWithAuthorization',
          macaroon: 'AgEA',
          splitter: {
            factory: splitterFactory,
            provider: `0x${'b'.repeat(40)}`,
            platform: `0x${'c'.repeat(40)}`,
            providerShare: '19',
            platformShare: '1',
          },
        },
      },
    ],
  })
  expect(isPaymentRequiredV2(required)).toBe(true)
})

describe('acceptX402V1', () => {
  test('default: puts the offer into the body in the form that v1 clients parse', async () => {
    const { body, required } = await demand({ options: { acceptX402V1: true } })
    expect(body).toMatchObject({ x402Version: 1, error: 'Payment required' })
    const { accepts } = PaymentRequiredV1Schema.parse(body)
    expect(accepts).toMatchObject([
      {
        network: 'base',
        maxAmountRequired: '50000',
        payTo: splitter,
        resource,
        maxTimeoutSeconds: 3_600,
        extra: { name: 'USD Coin', version: '2', primaryType: 'TransferWithAuthorization' },
      },
    ])
    // x402-fetch rejects an `outputSchema` of null.
    expect(accepts[0]).not.toHaveProperty('outputSchema')
    expect(required?.accepts[0].payTo).toBe(splitter)
  })

  test('behavior: sends the Tollkeeper challenge to a client whose Accept header names the challenge’s media type', async () => {
    const headers = { accept: `*/*, ${challengeMediaType}` }
    const { body } = await demand({ options: { acceptX402V1: true }, headers })
    expect(parseChallenge(body).accepts).toEqual(challenge.accepts)
  })
})

test.each([
  [600, 600],
  // Our own client signs for at most this time.
  [10 ** 9, 93_600],
])(
  'args: if the gateway offers a validity of %i seconds, the x402 offer states %i seconds',
  async (offerTimeoutSeconds, expected) => {
    for (const acceptX402V1 of [false, true]) {
      const answered = { ...challenge, offerTimeoutSeconds }
      const { required, body: shown } = await demand({ answered, options: { acceptX402V1 } })
      expect(required?.accepts[0].maxTimeoutSeconds).toBe(expected)
      const [first] = (shown as { accepts: { maxTimeoutSeconds: number }[] }).accepts
      expect(first?.maxTimeoutSeconds).toBe(acceptX402V1 ? expected : 93_600)
    }
  },
)

test('args: split determines whether our client is asked for one signature or two', async () => {
  const { body } = await demand({ options: { split: 'onchain' } })
  expect(parseChallenge(body).signatures).toBe('one')
  for (const options of [{}, { split: 'separate' }] as const)
    expect(parseChallenge((await demand({ options })).body).signatures).toBeUndefined()
})

test('args: if the option tabs is false, offers only `exact`, for buyers who support no other scheme', async () => {
  const tab = { split: `0x${'1'.repeat(64)}`, rewardShare: 0, offeredUntil: 1_800_000_000 }
  const schemesOf = async (options: Partial<GateOptions>, more: object = {}) => {
    const { body, required } = await demand({ answered: { ...challenge, tab: { ...tab, ...more } }, options })
    return [required?.accepts.map((one) => one?.scheme), 'tab' in body]
  }
  expect(await schemesOf({})).toEqual([['exact', 'tab'], true])
  expect(await schemesOf({ tabs: false })).toEqual([['exact'], false])
  // If an endpoint accepts only tabs, the offer still contains tabs.
  expect(await schemesOf({ tabs: false }, { only: true })).toEqual([['tab'], true])
})

describe('a gateway that returns false data', () => {
  test('behavior: computes the splitter from the wallets in the body, even if the gateway names another splitter', async () => {
    const thief = `0x${'d'.repeat(40)}`
    const paymentRequired = { accepts: [{ payTo: thief, extra: { splitter: { factory: thief } } }] }
    const { required } = await demand({ answered: { ...challenge, paymentRequired } })
    expect(required?.accepts[0].payTo).toBe(splitter)
    expect(required?.accepts[0].extra).toMatchObject({ splitter: { factory: splitterFactory } })
  })

  test('error: refuses wallets that are not the provider’s own, if ownWallets lists them', async () => {
    const ownWallets = [`0x${'B'.repeat(40)}`, `0x${'e'.repeat(40)}`] as const
    expect((await demand({ options: { ownWallets } })).status).toBe(402)
    const { status, required, body } = await demand({ options: { ownWallets: ownWallets.slice(1) } })
    expect([status, required, body.code]).toEqual([503, undefined, 'dependency_unavailable'])
  })

  test('behavior: offers only two authorizations if no splitter can divide the price exactly', async () => {
    const [provider, fee] = challenge.accepts
    const accepts = [
      { ...provider, maxAmountRequired: (2n ** 48n).toString() },
      { ...fee, maxAmountRequired: '1' },
    ]
    const { status, required } = await demand({
      answered: { ...challenge, accepts },
      options: { acceptX402V1: true },
    })
    expect([status, required]).toEqual([402, undefined])
  })

  test('error: does not fail for a network that the SDK does not know', async () => {
    const accepts = challenge.accepts.map((entry) => ({ ...entry, network: 'solana' }))
    const { status, required } = await demand({ answered: { ...challenge, accepts } })
    expect([status, required]).toEqual([402, undefined])
  })
})

describe('a payment that is refused', () => {
  test.each([
    ['insufficient_balance', 'insufficient_funds', 'insufficient_funds'],
    ['invalid_signature', 'invalid_exact_evm_payload_signature', 'invalid_exact_evm_payload_signature'],
    [
      'amount_mismatch',
      'invalid_exact_evm_payload_authorization_value_mismatch',
      'invalid_exact_evm_payload_authorization_value',
    ],
    ['macaroon_expired', 'invalid_payment_requirements', 'invalid_payment_requirements'],
    ['mock_mode_off', 'invalid_payload', 'invalid_payload'],
  ])('behavior: reports the gateway’s code %s as the x402 v2 reason %s', async (code, v2, v1) => {
    const options = { acceptX402V1: true, endpointId: 'ep_1' } as const
    const answer = await demand({ options, refusal: { code }, headers: { xPayment } })
    expect([answer.status, answer.body.error, answer.required?.error]).toEqual([402, v1, v2])
    const ours = await demand({
      options: { endpointId: 'ep_1' },
      refusal: { code },
      headers: { paymentSignature },
    })
    expect(ours.body).toMatchObject({ code, verified: false })
  })

  test('behavior: responds with 503 if the outcome is unknown, and asks for no second signature', async () => {
    const refusal = { code: 'dependency_unavailable', status: 503 }
    const options = { endpointId: 'ep_1', timeout: 300 }
    const { status, headers, required } = await demand({ options, refusal, headers: { paymentSignature } })
    expect([status, headers['Retry-After'], required]).toEqual([503, '1', undefined])
  })

  test('behavior: refuses a payment on a network that the middleware does not accept, without calling the gateway', async () => {
    const options = { network: 'base-sepolia', endpointId: 'ep_1' } as const
    for (const headers of [{ paymentSignature }, { xPayment }]) {
      const { status, body } = await demand({
        options,
        headers,
        refusal: { code: 'internal_error', status: 500 },
      })
      expect([status, body.code]).toEqual([402, 'challenge_network_mismatch'])
    }
  })
})

test('behavior: sends the fields for catalogs only in the header, not in the challenge in the body', async () => {
  const bazaar = { info: { input: { type: 'http', method: 'GET' } }, schema: { type: 'object' } }
  const discovery = {
    serviceName: 'Weather',
    tags: ['weather'],
    iconUrl: 'https://api.example/icon.png',
    bazaar,
  }
  const { required, body } = await demand({ answered: { ...challenge, discovery } })
  const { bazaar: _, ...service } = discovery
  expect(required).toMatchObject({ resource: { url: resource, ...service }, extensions: { bazaar } })
  expect(isPaymentRequiredV2(required as never)).toBe(true)
  expect(body).not.toHaveProperty('discovery')
  // Without `discovery` in the gateway's response, the header has no `extensions`.
  const { required: bare } = await demand()
  expect(bare).not.toHaveProperty('extensions')
})
