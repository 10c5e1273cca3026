import { expect, test } from 'vitest'
import { decodePaymentHeader, type PaymentRequired } from '../protocol/x402.ts'
import { encodeRequired, maxRequiredLength } from './fitRequired.ts'

const words = 'What this parameter means, in some words. '

/** Returns a 402 whose bazaar extension has this schema and whose other content has this length. */
function required(schema: object, otherLength: number): PaymentRequired {
  return {
    x402Version: 2,
    resource: { url: 'https://api.example/weather', description: 'Weather', mimeType: 'application/json' },
    accepts: [],
    extensions: { bazaar: { info: { input: { type: 'http', method: 'GET' } }, schema } },
    error: 'x'.repeat(otherLength),
  } as unknown as PaymentRequired
}

const described = {
  type: 'object',
  description: words,
  properties: {
    description: { type: 'string', description: words.repeat(10), default: 'warm', enum: ['warm', 'cold'] },
  },
  required: ['description'],
}
const bare = {
  type: 'object',
  properties: { description: { type: 'string', enum: ['warm', 'cold'] } },
  required: ['description'],
}

const schemaOf = (header: string) =>
  (decodePaymentHeader(header) as { extensions: { bazaar: { schema: object } } }).extensions.bazaar.schema

test('default: does not change a header that fits', () => {
  expect(schemaOf(encodeRequired(required(described, 100)))).toEqual(described)
})

test('behavior: first omits the schema’s descriptions if the header is too long', () => {
  const header = encodeRequired(required(described, 1_700))
  expect(header.length).toBeLessThanOrEqual(maxRequiredLength)
  expect(schemaOf(header)).toEqual(bare)
})

test('behavior: after the descriptions, omits the parts that all interface schemas have in common, but keeps the schemas of parameters and response', () => {
  const interfaceOf = (queryParams: object) => ({
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      input: {
        type: 'object',
        properties: {
          type: { type: 'string', const: 'http' },
          method: { type: 'string', enum: ['GET'] },
          queryParams,
          pathParams: { type: 'object' },
        },
        required: ['type', 'method'],
        additionalProperties: false,
      },
      output: { type: 'object', properties: { type: { type: 'string' }, example: bare } },
    },
    required: ['input'],
  })
  expect(schemaOf(encodeRequired(required(interfaceOf(described), 1_700)))).toEqual({
    type: 'object',
    properties: {
      input: { type: 'object', properties: { queryParams: bare } },
      output: { type: 'object', properties: { example: bare } },
    },
  })
})

test('behavior: replaces a schema that is still too long with a schema that accepts any object', () => {
  const properties = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`p${index}`, bare]))
  const input = { type: 'object', properties: { queryParams: { type: 'object', properties } } }
  const header = encodeRequired(required({ type: 'object', properties: { input } }, 1_000))
  expect(header.length).toBeLessThanOrEqual(maxRequiredLength)
  expect(schemaOf(header)).toMatchObject({ type: 'object' })
  expect(schemaOf(header)).not.toHaveProperty('properties')
})
