import { expect, test } from 'vitest'
import { loginChallenges } from './loginChallenges.ts'

const basic = 'Basic realm="prov_1", charset="UTF-8"'
const pass = (...values: string[]) => loginChallenges(values, 'prov_1')

test.each<[string, string[], string[]]>([
  [
    'Bearer with its parameters',
    ['Bearer realm="api", error="invalid_token"'],
    ['Bearer realm="api", error="invalid_token"'],
  ],
  ['a scheme without parameters', ['ApiKey'], ['ApiKey']],
  ['a token68', ['Custom abc=='], ['Custom abc==']],
  ['Basic, in the realm of the provider', ['Basic realm="Gateway dashboard"'], [basic]],
  [
    'several in one value',
    ['Basic realm="a, b", charset="UTF-8", Bearer realm="x"'],
    [basic, 'Bearer realm="x"'],
  ],
  ['several values', ['Bearer', 'Basic realm="a"'], ['Bearer', basic]],
  ['an escaped quote', ['Bearer realm="a\\", Digest b"'], ['Bearer realm="a\\", Digest b"']],
])('passes %s', (_, values, expected) => expect(pass(...values)).toEqual(expected))

test.each([
  ['Digest', 'Digest realm="a", nonce="b"'],
  ['Negotiate', 'Negotiate'],
  ['NTLM with a token', 'NTLM TlRMTVNTUAAC'],
  ['a payment scheme', 'L402 macaroon="a", invoice="b"'],
  ['our own scheme', 'x402 realm="a"'],
  ['an unclosed quote', 'Bearer realm="a'],
  ['a parameter without a scheme', 'realm="a", Bearer'],
  ['control characters', 'Bearer realm="a\u0000"'],
  ['letters outside ASCII', 'Bearer realm="ä"'],
])('drops %s', (_, value) => expect(pass(value)).toEqual([]))

test('drops one challenge and passes its neighbors', () => {
  expect(pass('Digest realm="a", nonce="b", Bearer realm="c"')).toEqual(['Bearer realm="c"'])
})
