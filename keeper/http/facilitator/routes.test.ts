import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createLogger } from '@tollkeeper/runtime/log'
import { createRateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { describe, expect, test } from 'vitest'
import cases from '../../../test/internet/cases/signatures.json' with { type: 'json' }
import { createMetrics } from '../../settings/metrics.ts'
import type { HttpContext } from '../context.ts'
import { createOperationsApp } from '../operations.ts'
import { createFacilitator } from './routes.ts'

// The facilitator refuses these requests before it reads the chain or the database, so these tests have neither.

const log = createLogger('test', 'silent')
const rateLimiter = createRateLimiter({ sql: null, log, now: () => 0 })
const app = createOperationsApp({
  readiness: async () => ({ status: 'ok', checks: [] }),
  metrics: createMetrics(),
  metricsToken: null,
  rateLimiter,
  trustedProxies: 1,
  log,
}).route(
  '/',
  createFacilitator({
    served: [{ network: networks.base, token: cases.domain.verifyingContract }] as ServedNetwork[],
    settings: { isOpen: true },
    rateLimiter,
    trustedProxies: 1,
    signers: [],
  } as unknown as HttpContext),
)

type Body = {
  x402Version?: unknown
  paymentPayload: Record<string, unknown>
  paymentRequirements: Record<string, unknown>
}

function bodyOf(version: 1 | 2): Body {
  const kind = { scheme: 'exact', network: version === 1 ? 'base' : 'eip155:8453' }
  const payload = { signature: cases.signatures[0]?.value, authorization: cases.message }
  const amount = version === 1 ? { maxAmountRequired: '10000' } : { amount: '10000' }
  return {
    x402Version: version,
    paymentPayload:
      version === 1
        ? { x402Version: 1, ...kind, payload }
        : { x402Version: 2, accepted: { ...kind }, payload },
    paymentRequirements: {
      ...kind,
      ...amount,
      asset: cases.domain.verifyingContract,
      payTo: cases.message.to,
    },
  }
}

/** Values for a field: missing, null, of a wrong type, and unknown. */
const wrongTypes = [undefined, null, true, [], {}, ['exact'], { name: 'base' }, 7.5]
const unknownNetworks = [
  ...['', 'base ', 'BASE', 'solana', 'base-sepolia', 'eip155:84532', 'eip155:1', 'eip155:'],
  ...['__proto__', 'constructor', 'x'.repeat(5_000)],
]

/** The expected answer: a verdict with the standard's reason, or 400. */
type Expected = { status: 200; reason: string } | { status: 400; reason: 'invalid_payload' }

const malformed = { status: 400, reason: 'invalid_payload' } as const
const fields: [field: string, set: (body: Body, value: unknown) => void, [unknown, Expected][]][] = [
  [
    'paymentRequirements.network',
    (body, value) => {
      body.paymentRequirements.network = value
    },
    [
      ...[...wrongTypes, 8453].map((value): [unknown, Expected] => [value, malformed]),
      ...unknownNetworks.map((value): [unknown, Expected] => [
        value,
        { status: 200, reason: 'invalid_network' },
      ]),
    ],
  ],
  [
    'paymentRequirements.scheme',
    (body, value) => {
      body.paymentRequirements.scheme = value
    },
    [
      ...[...wrongTypes, 1].map((value): [unknown, Expected] => [value, malformed]),
      ...['', 'Exact', 'upto', '__proto__'].map((value): [unknown, Expected] => [
        value,
        { status: 200, reason: 'invalid_scheme' },
      ]),
    ],
  ],
  [
    'x402Version',
    (body, value) => {
      body.x402Version = value
      body.paymentPayload.x402Version = value
    },
    [
      ...[...wrongTypes.filter((value) => value !== 7.5), '1', '2'].map((value): [unknown, Expected] => [
        value,
        malformed,
      ]),
      ...[0, -1, 3, 7.5, 1e21].map((value): [unknown, Expected] => [
        value,
        { status: 200, reason: 'invalid_x402_version' },
      ]),
    ],
  ],
]

const routes = [
  { path: '/verify', no: 'isValid', reasonField: 'invalidReason' },
  { path: '/settle', no: 'success', reasonField: 'errorReason' },
] as const

describe.each(routes)('POST $path', ({ path, no, reasonField }) => {
  describe.each([1, 2] as const)('x402 v%i', (version) => {
    test.each(fields)(
      'error: refuses a request whose %s is missing, has another type, or is not served',
      async (_, set, values) => {
        for (const [value, { status, reason }] of values) {
          const body = bodyOf(version)
          set(body, value)
          const response = await app.request(path, { method: 'POST', body: JSON.stringify(body) })
          expect([value, response.status, await response.json()]).toEqual([
            value,
            status,
            expect.objectContaining({ [no]: false, [reasonField]: reason }),
          ])
        }
      },
    )

    test('error: refuses a network name that only the other x402 version uses', async () => {
      const body = bodyOf(version)
      body.paymentRequirements.network = version === 1 ? 'eip155:8453' : 'base'
      const response = await app.request(path, { method: 'POST', body: JSON.stringify(body) })
      expect([response.status, await response.json()]).toEqual([
        200,
        expect.objectContaining({ [no]: false, [reasonField]: 'invalid_network' }),
      ])
    })
  })

  test.each(['', '{', 'null', '7', '[]', '{}', '{"x402Version":2}', '{"paymentPayload":null}'])(
    'error: answers 400 to a body of %j',
    async (body) => {
      const response = await app.request(path, { method: 'POST', body })
      expect([response.status, await response.json()]).toEqual([
        400,
        expect.objectContaining({ [no]: false, [reasonField]: 'invalid_payload' }),
      ])
    },
  )
})
