import { z } from 'zod'
import { bodies } from './facilitator/request.ts'

/*
 * `GET /openapi.json` of the facilitator, for its callers. `/submit` and the operator's routes are described in the docs instead.
 */

const requirementsExample = {
  scheme: 'exact',
  network: 'eip155:8453',
  amount: '10000',
  asset: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
  payTo: '0x1000000000000000000000000000000000000001',
  maxTimeoutSeconds: 300,
  extra: { name: 'USD Coin', version: '2' },
}
const paymentExample = {
  x402Version: 2,
  paymentPayload: {
    x402Version: 2,
    resource: {
      url: 'https://seller.example/weather',
      description: 'The weather',
      mimeType: 'application/json',
    },
    accepted: requirementsExample,
    payload: {
      signature: `0x${'1b'.repeat(65)}`,
      authorization: {
        from: '0x2000000000000000000000000000000000000002',
        to: requirementsExample.payTo,
        value: '10000',
        validAfter: '0',
        validBefore: '1900000000',
        nonce: `0x${'ab'.repeat(32)}`,
      },
    },
  },
  paymentRequirements: requirementsExample,
}

const text = { type: 'string' }
const json = (description: string, schema: object, more: object = {}) => ({
  description,
  ...more,
  content: { 'application/json': { schema } },
})
const objectOf = (properties: Record<string, object>, required = Object.keys(properties)) => ({
  type: 'object',
  properties,
  required,
})
const problem = {
  description: 'An error (RFC 9457). It is not a verdict on the payment.',
  content: {
    'application/problem+json': {
      schema: objectOf({ title: text, status: { type: 'integer' }, detail: text, code: text }, [
        'code',
        'status',
      ]),
    },
  },
}
const listed = {
  headers: {
    'EXTENSION-RESPONSES': {
      description:
        'Base64 of JSON: whether the resource that the payment declares was listed (extension `bazaar`)',
      schema: text,
    },
  },
}

const verdict = objectOf(
  { isValid: { type: 'boolean' }, payer: text, invalidReason: text, invalidMessage: text },
  ['isValid'],
)
const settlement = objectOf(
  {
    success: { type: 'boolean' },
    transaction: text,
    network: text,
    payer: text,
    errorReason: text,
    errorMessage: text,
    extra: objectOf({ batchId: text, logIndex: { type: ['integer', 'null'] }, nonce: text }, []),
  },
  ['success', 'transaction', 'network'],
)

function payment(operationId: string, summary: string, description: string, answer: object) {
  return {
    post: {
      operationId,
      summary,
      description,
      tags: ['Payments'],
      security: [{}, { apiKey: [] }],
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema: {
              oneOf: [bodies[2], bodies[1]].map((schema) => z.toJSONSchema(schema, { io: 'input' })),
            },
            example: paymentExample,
          },
        },
      },
      responses: {
        200: json('The verdict, positive or negative', answer, listed),
        400: json("The body is not in x402's format", answer),
        401: problem,
        409: json('The payment identifier was already used with another payment', answer),
        429: problem,
        503: problem,
      },
    },
  }
}

const filters = [
  ['type', { type: 'string', enum: ['http', 'mcp'] }],
  ['payTo', text],
  ['scheme', text],
  ['network', text],
  ['extensions', text],
  ['limit', { type: 'integer', minimum: 1, maximum: 100, default: 20 }],
] as const
const resource = objectOf(
  {
    resource: text,
    type: { type: 'string', enum: ['http', 'mcp'] },
    x402Version: { type: 'integer' },
    accepts: { type: 'array', items: { type: 'object' } },
    lastUpdated: { type: 'string', format: 'date-time' },
    description: text,
    mimeType: text,
    serviceName: text,
    tags: { type: 'array', items: text },
    iconUrl: text,
    extensions: { type: 'object' },
    quality: {
      type: 'object',
      description: 'Settled payments of the last 30 days, and whether the origin is proven',
    },
  },
  ['resource', 'type', 'x402Version', 'accepts', 'lastUpdated', 'extensions'],
)
const resources = { type: 'array', items: { $ref: '#/components/schemas/DiscoveryResource' } }

function listing(name: string, summary: string, more: Record<string, object>, list: string) {
  const parameters = Object.entries({ ...Object.fromEntries(filters), ...more }).map(
    ([parameter, schema]) => ({
      name: parameter,
      in: 'query',
      schema,
      ...((parameter === 'query' || (name === 'merchant' && parameter === 'payTo')) && { required: true }),
    }),
  )
  return {
    get: {
      operationId: `${name}Discovery`,
      summary,
      tags: ['Discovery'],
      security: [],
      parameters,
      responses: {
        200: json(
          'A page of resources, best first',
          objectOf({ [list]: resources, pagination: { type: 'object' } }),
        ),
        422: problem,
        429: problem,
        503: problem,
      },
    },
  }
}

/** Returns the facilitator's OpenAPI document. @param hasDiscovery whether this keeper lists resources */
export function describeFacilitator(hasDiscovery: boolean): object {
  const offset = { offset: { type: 'integer', minimum: 0, default: 0 } }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Tollkeeper facilitator',
      version: '1',
      description: 'Verifies and settles x402 payments (versions 1 and 2, scheme `exact`, EIP-3009).',
      license: { name: 'MIT', url: 'https://spdx.org/licenses/MIT' },
      contact: { name: 'The operator of this facilitator' },
    },
    servers: [{ url: '/' }],
    tags: [
      { name: 'Payments', description: 'Routes for sellers' },
      ...(hasDiscovery ? [{ name: 'Discovery', description: 'Routes for buyers' }] : []),
    ],
    paths: {
      '/verify': payment(
        'verify',
        'Verify a payment',
        'A valid payment is reserved for its seller for 90 seconds.',
        verdict,
      ),
      '/settle': payment('settle', 'Settle a payment', 'Answers after the transaction is mined.', settlement),
      '/supported': {
        get: {
          operationId: 'supported',
          summary: 'List the supported payments',
          tags: ['Payments'],
          security: [],
          responses: {
            200: json(
              'Versions, schemes, networks and extensions, and the wallets that send the transactions',
              objectOf({
                kinds: { type: 'array', items: { type: 'object' } },
                extensions: { type: 'array', items: text },
                signers: { type: 'object' },
              }),
            ),
            429: problem,
          },
        },
      },
      ...(hasDiscovery && {
        '/discovery/resources': listing('list', 'List resources', offset, 'items'),
        '/discovery/search': listing(
          'search',
          'Search resources by words',
          { query: text, cursor: text },
          'resources',
        ),
        '/discovery/merchant': listing(
          'merchant',
          'List resources whose payments go to a wallet',
          offset,
          'resources',
        ),
      }),
    },
    components: {
      securitySchemes: {
        apiKey: { type: 'http', scheme: 'bearer', description: "A provider's API key, tk_…" },
      },
      schemas: { ...(hasDiscovery && { DiscoveryResource: resource }) },
    },
  }
}
