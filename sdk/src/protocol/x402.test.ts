import { x402HTTPClient } from '@x402/core/client'
import { encodePaymentSignatureHeader } from '@x402/core/http'
import { describe, expect, test } from 'vitest'
import tabs from '../../../test/vectors/tabs.json' with { type: 'json' }
import { challengeFor } from '../../test/playProvider.ts'
import { payload, x402Payload } from '../../test/signedPayment.ts'
import { maxTimeoutSeconds } from './challenge.ts'
import { splitterFactory } from './deployments.ts'
import { encodePaymentHeader, parsePaymentHeader, readTabResponse, toPaymentRequired } from './x402.ts'

// Tests that we read data of other programs, that other programs read ours, and that malicious forms are rejected.

const { authorization, signature } = x402Payload
const accepted = {
  scheme: 'exact',
  network: 'eip155:8453',
  amount: authorization.value,
  asset: `0x${'c'.repeat(40)}`,
  payTo: authorization.to,
  maxTimeoutSeconds: 93_600,
  extra: { name: 'USD Coin', version: '2', macaroon: 'AgEA' },
}
const v2 = { x402Version: 2, accepted, payload: x402Payload }
const v1 = { x402Version: 1, scheme: 'exact', network: 'base', payload: x402Payload }

const { payload: tab } = tabs.payloads.valid[0] ?? { payload: undefined }
const onTab = {
  x402Version: 2,
  accepted: { scheme: 'tab', network: 'eip155:8453', extra: { macaroon: 'AgEA' } },
  payload: tab,
}

describe('parsePaymentHeader', () => {
  test('default: reads a payment of x402 v2', () => {
    expect(parsePaymentHeader(encodePaymentHeader(v2))).toEqual({
      x402Version: 2,
      scheme: 'exact',
      network: 'base',
      macaroon: 'AgEA',
      payload,
    })
  })

  test('args: reads a payment of v1, which contains no challenge', () => {
    expect(parsePaymentHeader(encodePaymentHeader(v1))).toEqual({
      x402Version: 1,
      scheme: 'exact',
      network: 'base',
      macaroon: undefined,
      payload,
    })
  })

  test('args: reads a payment on a tab, and drops irrelevant fields', () => {
    const claims = { ...onTab, payload: { ...tab, further: 1 }, accepted: { ...onTab.accepted, amount: '1' } }
    expect(parsePaymentHeader(encodePaymentHeader(claims))).toEqual({
      x402Version: 2,
      scheme: 'tab',
      network: 'base',
      macaroon: 'AgEA',
      tab,
    })
  })

  test.each([{}, null, undefined])(
    'args: accepts a payment whose field extra is %j, from a client that does not return the macaroon',
    (extra) => {
      const payment = { ...v2, accepted: { ...accepted, extra } }
      expect(parsePaymentHeader(encodePaymentHeader(payment)).macaroon).toBeUndefined()
    },
  )

  test('behavior: reads a payment of the reference client, and ignores its claims about the challenge', () => {
    const claims = { ...accepted, amount: '1', payTo: `0x${'d'.repeat(40)}`, asset: `0x${'e'.repeat(40)}` }
    const header = encodePaymentSignatureHeader({ ...v2, accepted: claims } as never)
    expect(parsePaymentHeader(header)).toEqual(parsePaymentHeader(encodePaymentHeader(v2)))
  })

  test('behavior: ignores a macaroon in v1, which has no field for it', () => {
    const payment = { ...v1, extra: accepted.extra, accepted }
    expect(parsePaymentHeader(encodePaymentHeader(payment)).macaroon).toBeUndefined()
  })

  test.each([
    ['x402Version', { ...v2, x402Version: 3 }],
    ['x402Version', { ...v2, x402Version: '2' }],
    ['accepted', { ...v2, accepted: [accepted] }],
    ['scheme', { ...v2, accepted: { ...accepted, scheme: 'upto' } }],
    ['network', { ...v2, accepted: { ...accepted, network: 8453 } }],
    ['accepted.extra.macaroon', { ...v2, accepted: { ...accepted, extra: { macaroon: 'a:b' } } }],
    ['payload', { ...v2, payload: 'signed' }],
    ['payload.authorization', { ...v2, payload: { signature } }],
    [
      'payload.authorization.value',
      { ...v2, payload: { signature, authorization: { ...authorization, value: 0.5 } } },
    ],
    [
      'payload.authorization.to',
      { ...v2, payload: { signature, authorization: { ...authorization, to: `${authorization.to},1` } } },
    ],
    ['payload.signature', { ...v2, payload: { authorization, signature: '' } }],
    ['sequence', { ...onTab, payload: { ...tab, sequence: 0 } }],
    ['payload', { ...onTab, payload: [tab] }],
    ['accepted.extra.macaroon', { ...onTab, accepted: { ...onTab.accepted, extra: { macaroon: 'a:b' } } }],
    ['scheme', { ...v1, scheme: 'tab', payload: tab }],
  ])('error: rejects an invalid %s', (field, payment) => {
    const read = () => parsePaymentHeader(encodePaymentHeader(payment))
    expect(read).toThrow(expect.objectContaining({ code: 'invalid_payload', details: { field } }))
  })

  test.each(['eip155:999999', 'base', 'solana:mainnet'])('error: rejects the network %s', (network) => {
    const header = encodePaymentHeader({ ...v2, accepted: { ...accepted, network } })
    expect(() => parsePaymentHeader(header)).toThrow(expect.objectContaining({ code: 'unknown_network' }))
  })

  const header = encodePaymentHeader(v2)
  test.each([
    ['sent twice, and joined with a comma', `${header}, ${header}`],
    ['in base64url', header.replaceAll('=', '').concat('-_')],
    ['not base64', '{}'],
    ['not JSON', btoa('{')],
    ['not UTF-8', btoa('"\xff"')],
    ['over 12,288 characters', encodePaymentHeader({ ...v2, padding: 'x'.repeat(9_300) })],
  ])('error: rejects a header that is %s', (_, text) => {
    expect(() => parsePaymentHeader(text)).toThrow(
      expect.objectContaining({ code: 'invalid_payload', details: { field: 'header' } }),
    )
  })
})

test('behavior: writes headers that the reference client can read, with text in any script', () => {
  const response = { success: true, transaction: '', network: 'eip155:8453', extra: { note: '価格 €' } }
  const client = new x402HTTPClient({} as never)
  const header = encodePaymentHeader(response)
  expect(client.getPaymentSettleResponse((name) => (name === 'PAYMENT-RESPONSE' ? header : null))).toEqual(
    response,
  )
})

describe('readTabResponse', () => {
  const id = `tab_${'0'.repeat(32)}`
  const read = (tab: unknown) => readTabResponse(encodePaymentHeader({ success: true, extra: { tab } }))

  test('default: reads the state of a tab', () => {
    expect(read({ id, sequence: 3, known: 2, further: 1 })).toEqual({ id, sequence: 3, known: 2 })
    expect(read({ id, sequence: 3, known: 2, closing: true })).toEqual({
      id,
      sequence: 3,
      known: 2,
      closing: true,
    })
  })

  test.each([
    undefined,
    {},
    { id: 1, sequence: 3, known: 2 },
    { id, sequence: -1, known: 2 },
    { id, sequence: 3 },
  ])('behavior: %j contains nothing about a tab', (tab) => {
    expect(read(tab)).toBeUndefined()
  })

  test.each([null, '', '{}', btoa('[]'), btoa('{"extra":null}')])(
    'behavior: the header %j contains nothing about a tab',
    (header) => {
      expect(readTabResponse(header)).toBeUndefined()
    },
  )
})

test.each([
  [60, 60],
  [10 * maxTimeoutSeconds, maxTimeoutSeconds],
])(
  'args: a challenge for %d seconds asks for a signature that is valid for %d seconds',
  (asked, expected) => {
    const challenge = { ...challengeFor('https://api.example/weather'), offerTimeoutSeconds: asked }
    const required = toPaymentRequired(challenge, splitterFactory)
    expect(required?.accepts[0]?.maxTimeoutSeconds).toBe(expected)
  },
)
