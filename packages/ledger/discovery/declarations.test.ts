import { describe, expect, test } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { type Declared, isIconUrl, readDeclaration } from './declarations.ts'

const payment = { chainId: 8453, payTo: `0x${'1'.repeat(40)}`, amount: 10_000n, providerId: null } as const
const info = { input: { type: 'http', method: 'GET', queryParams: { city: 'Oslo' } } }
const schema = {
  type: 'object',
  properties: {
    input: {
      type: 'object',
      properties: {
        queryParams: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      },
    },
  },
}
const declared: Declared = {
  resource: 'https://api.example/weather',
  x402Version: 2,
  description: 'Weather',
  mimeType: 'application/json',
  maxTimeoutSeconds: 60,
  serviceName: 'Weather',
  tags: ['weather'],
  iconUrl: 'https://api.example/icon.png',
  bazaar: { info, schema },
}

describe('readDeclaration', () => {
  test('default: accepts an extension that matches its own schema', () => {
    expect(readDeclaration(declared, payment)).toEqual({ ...declared, ...payment })
  })

  test.each<[string, Partial<Declared>, RegExp]>([
    [
      'info that does not match its schema',
      {
        bazaar: {
          info: { input: { ...info.input, queryParams: { city: 7 } } },
          schema,
        },
      },
      /info does not match schema/,
    ],
    ['a missing schema', { bazaar: { info } }, /extensions.bazaar.schema/],
    [
      'an unknown type of input',
      { bazaar: { info: { input: { type: 'ftp' } }, schema } },
      /expected http or mcp/,
    ],
    ['a resource with another URL scheme', { resource: 'ftp://api.example/' }, /^resource:/],
    ['a resource with a password', { resource: 'https://user:secret@api.example/' }, /^resource:/],
    ['a long description', { description: 'x'.repeat(501) }, /^resource.description/],
    ['a timeout of 0', { maxTimeoutSeconds: 0 }, /^maxTimeoutSeconds/],
    ['a character that cannot be stored', { bazaar: { info, schema, note: '\u0000' } }, /U\+0000/],
    ['half of a surrogate pair', { bazaar: { info, schema, note: '\ud800' } }, /incomplete characters/],
    ['a description that cannot be stored', { description: 'Weather\0' }, /^resource: U\+0000/],
    [
      'a number that Postgres would write with hundreds of digits instead of an exponent',
      { bazaar: { info, schema, note: [1e308] } },
      /exponent/,
    ],
    [
      'an extension that is nested too deeply for recursion',
      { bazaar: { info, schema, note: JSON.parse(`${'['.repeat(8_000)}${']'.repeat(8_000)}`) } },
      /at most 64 levels/,
    ],
    [
      'a method that is not a string',
      { bazaar: { info: { input: { ...info.input, method: { toString: 1 } } }, schema } },
      /info.input.method/,
    ],
    [
      'an extension that is too large',
      { bazaar: { info, schema, note: 'x'.repeat(16_384) } },
      /at most 16384 bytes/,
    ],
  ])('error: rejects %s', (_, change, reason) => {
    expect(readDeclaration({ ...declared, ...change }, payment)).toMatch(reason)
  })

  test('behavior: accepts or rejects an extension with any value anywhere in it, and never throws', () => {
    const tool = { type: 'mcp', toolName: 'tides', inputSchema: { type: 'object' }, transport: 'sse' }
    const posted = { ...info.input, method: 'POST', bodyType: 'json', body: {} }
    const inputs = [info.input, posted, tool].flatMap((input) => [
      ...withHostileParts({ info: { input }, schema }),
    ])
    const read = inputs.map((bazaar) => readDeclaration({ ...declared, bazaar }, payment))
    const kinds = new Set(read.map((one) => (typeof one === 'string' ? 'refused' : 'taken')))
    expect(kinds).toEqual(new Set(['taken', 'refused']))
  })

  test.each(['serviceName', 'tags', 'iconUrl'])(
    'behavior: accepts a declaration with any value as its %s, and never throws',
    (name) => {
      for (const value of withHostileParts(['weather']))
        expect(readDeclaration({ ...declared, [name]: value }, payment)).toMatchObject({
          resource: declared.resource,
        })
    },
  )

  test('behavior: leaves out service metadata that breaks the standard’s rules', () => {
    const change = { serviceName: 'x'.repeat(33), tags: ['ok', '', 7], iconUrl: 'https://10.0.0.1/icon.png' }
    expect(readDeclaration({ ...declared, ...change }, payment)).toMatchObject({
      serviceName: null,
      tags: ['ok'],
      iconUrl: null,
    })
  })
})

test.each([
  ['https://api.example/icon.png', true],
  ['https://127.0.0.1/icon.png', false],
  ['https://2130706433/icon.png', false],
  ['https://[::1]/icon.png', false],
  ['https://localhost/icon.png', false],
  ['https://user@api.example/icon.png', false],
  ['data:image/png;base64,AA', false],
])('default: returns whether pages may show the icon %s: %s', (url, expected) => {
  expect(isIconUrl(url)).toBe(expected)
})
