import { describe, expect, test } from 'vitest'
import { findMismatch, findSchemaFault } from './jsonSchema.ts'

/** Returns a schema with this many levels. */
const nested = (levels: number): object =>
  levels === 0 ? { type: 'string' } : { properties: { a: nested(levels - 1) } }

describe('findSchemaFault', () => {
  test.each([
    [{}],
    [{ type: 'object', properties: { city: { type: 'string', pattern: '^(a+)+$' } }, required: ['city'] }],
    [{ type: ['string', 'null'], enum: ['$ref', null] }],
    [{ properties: { $ref: { type: 'string' }, pattern: { type: 'string' } } }],
    [{ anyOf: [{ type: 'string' }, true], $schema: 'https://json-schema.org/draft/2020-12/schema' }],
    [nested(15)],
  ])('default: accepts %j', (schema) => {
    expect(findSchemaFault(schema)).toBeNull()
  })

  test.each([
    ['text', 'expected an object'],
    [{ $ref: 'https://internal.example/schema' }, '/$ref'],
    [{ properties: { a: { $ref: '#' } } }, '/properties/a/$ref'],
    [{ allOf: [{ $dynamicRef: '#x' }] }, '/allOf/0/$dynamicRef'],
    [{ type: 'text' }, '/type'],
    [{ required: 'city' }, '/required'],
    [{ properties: [] }, '/properties'],
    [{ items: 7 }, '/items'],
    [nested(17), 'levels'],
    [{ anyOf: Array.from({ length: 501 }, () => ({})) }, 'more than 500'],
  ])('error: rejects %j', (schema, said) => {
    expect(findSchemaFault(schema)).toContain(said)
  })
})

describe('findMismatch', () => {
  const schema = {
    type: 'object',
    properties: { city: { type: 'string' }, days: { type: 'integer', minimum: 1 } },
    required: ['city'],
    additionalProperties: false,
  }

  test.each([[{ city: 'Oslo' }], [{ city: 'Oslo', days: 3 }]])('default: %j matches the schema', (value) => {
    expect(findMismatch(schema, value)).toBeNull()
  })

  test.each([[{}], ['Oslo'], [{ city: 7 }], [{ city: 'Oslo', days: 0 }], [{ city: 'Oslo', wind: true }]])(
    'error: rejects %j',
    (value) => {
      expect(findMismatch(schema, value)).toMatch(/^#/)
    },
  )

  test('behavior: neither runs a schema’s regular expressions nor fetches its references', () => {
    const slow = { type: 'string', pattern: '^(a+)+$', format: 'uri', $id: 'http://127.0.0.1:1/schema' }
    expect(findMismatch(slow, `${'a'.repeat(40)}!`)).toBeNull()
    expect(
      findMismatch({ patternProperties: { '^(a+)+$': false } }, { [`${'a'.repeat(40)}!`]: 1 }),
    ).toBeNull()
  })

  test('error: does not throw for a keyword with a value of the wrong kind', () => {
    expect(() => findMismatch({ minLength: 'x', maximum: {} }, 'text')).not.toThrow()
  })
})
