import { expect, test } from 'vitest'
import { loginChallenges } from './loginChallenges.ts'

const basic = 'Basic realm="prov_1", charset="UTF-8"'
const pass = (...values: string[]) => loginChallenges(values, 'prov_1')

test.each<[string, string[], string[]]>([
  [
    'a Bearer challenge with its parameters',
    ['Bearer realm="api", error="invalid_token"'],
    ['Bearer realm="api", error="invalid_token"'],
  ],
  ['a challenge without parameters', ['ApiKey'], ['ApiKey']],
  ['a challenge with a token68', ['Custom abc=='], ['Custom abc==']],
  ['a Basic challenge, with the provider’s id as its realm', ['Basic realm="Gateway dashboard"'], [basic]],
  [
    'several challenges in one header value',
    ['Basic realm="a, b", charset="UTF-8", Bearer realm="x"'],
    [basic, 'Bearer realm="x"'],
  ],
  ['several header values', ['Bearer', 'Basic realm="a"'], ['Bearer', basic]],
  ['a challenge with an escaped quote', ['Bearer realm="a\\", Digest b"'], ['Bearer realm="a\\", Digest b"']],
])('passes on %s', (_, values, expected) => expect(pass(...values)).toEqual(expected))

test.each([
  ['a Digest challenge', 'Digest realm="a", nonce="b"'],
  ['a Negotiate challenge', 'Negotiate'],
  ['an NTLM challenge with a token', 'NTLM TlRMTVNTUAAC'],
  ['a challenge of a payment scheme', 'L402 macaroon="a", invoice="b"'],
  ['a challenge of our own scheme', 'x402 realm="a"'],
  ['a challenge with an unclosed quote', 'Bearer realm="a'],
  ['a parameter without a scheme', 'realm="a", Bearer'],
  ['a challenge with control characters', 'Bearer realm="a\u0000"'],
  ['a challenge with letters outside ASCII', 'Bearer realm="ä"'],
])('drops %s', (_, value) => expect(pass(value)).toEqual([]))

test('drops one challenge and passes on the other challenges in the same value', () => {
  expect(pass('Digest realm="a", nonce="b", Bearer realm="c"')).toEqual(['Bearer realm="c"'])
})
