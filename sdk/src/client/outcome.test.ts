import { describe, expect, test } from 'vitest'
import { payloads } from '../../test/signedPayment.ts'
import { encodeTabPayload } from '../protocol/tab.ts'
import { askGateway, isFree, isServed, isUnclear, outcomeOf } from './outcome.ts'
import type { Answer } from './transport.ts'

const answerOf = (status: number, headers: Record<string, string> = {}): Answer => ({
  url: 'https://api.example/',
  status,
  headers: new Headers(headers),
  body: null,
})
const paid = { 'service-payment-id': 'pay_1' }
const voided = { ...paid, 'service-payment-status': 'voided' }

describe('askGateway', () => {
  const { signal } = new AbortController()
  const ask = (status: number, body: object) =>
    askGateway(
      async () => Response.json(body, { status }),
      'https://gateway.example',
      { payloads: payloads },
      signal,
    )

  test.each([
    [200, { payment_status: 'verified' }, 'charged'],
    [200, { payment_status: 'settled' }, 'charged'],
    [200, { payment_status: 'voided' }, 'not_charged'],
    [200, { payment_status: 'failed' }, 'not_charged'],
    [200, { chargedUsdc: '0.000001' }, 'charged'],
    [200, { chargedUsdc: '0.000000' }, 'not_charged'],
    [200, {}, 'unknown'],
    [404, { code: 'unknown_payment' }, 'absent'],
    [404, { code: 'unknown_tab' }, 'absent'],
    [404, {}, 'unknown'],
    [500, { payment_status: 'voided' }, 'unknown'],
  ])('default: reads status %d with %j as %s', async (status, body, expected) => {
    expect(await ask(status, body)).toBe(expected)
  })

  test('behavior: sends the signature of a tab’s state to ask about a request on the tab', async () => {
    const tab = encodeTabPayload({
      tabId: `tab_${'0'.repeat(32)}`,
      payer: `0x${'d'.repeat(40)}`,
      sequence: 3,
      expiry: 1_800_093_600,
      line: 0,
      known: 1,
      splits: [],
      amounts: [3_000n],
      signature: `0x${'a'.repeat(130)}`,
    })
    const asked: [string, string | null][] = []
    const fetch: typeof globalThis.fetch = async (input, init) => {
      const request = new Request(input, init)
      asked.push([new URL(request.url).pathname, request.headers.get('tab-signature')])
      return Response.json({ chargedUsdc: '0.000001' })
    }
    await askGateway(fetch, 'https://gateway.example', { tab, payloads: [] }, signal)
    expect(asked).toEqual([[`/tabs/${tab.tab}/requests/3`, tab.signature]])
  })

  test('error: reports unknown if the gateway does not respond', async () => {
    const fetch = async () => Promise.reject(new TypeError('fetch failed'))
    expect(await askGateway(fetch, 'https://gateway.example', { payloads }, signal)).toBe('unknown')
  })
})

test.each([
  [402, 'absent', true],
  [402, 'not_charged', true],
  [402, 'unknown', false],
  [402, 'charged', false],
  [500, 'absent', false],
  [500, 'not_charged', true],
] as const)(
  'default: after status %d and the gateway’s report %s, isFree returns %s',
  (status, report, expected) => {
    expect(isFree({ answer: answerOf(status), report })).toBe(expected)
  },
)

test.each([
  ['true for a voided payment', answerOf(500, voided), true],
  ['false for an error of a charged request', answerOf(500, paid), false],
  ['true for a refusal', answerOf(402), true],
  ['true for an outage', answerOf(503), true],
  ['true for a payment whose request is in progress', answerOf(409, { 'retry-after': '1' }), true],
  ['false for a replay', answerOf(409), false],
  ['false for a malformed request', answerOf(400), false],
])('default: isUnclear returns %s', (_, answer, expected) => {
  expect(isUnclear(answer)).toBe(expected)
})

test('default: isServed returns false if the payment is voided, or if there is no payment', () => {
  expect([answerOf(200, paid), answerOf(200, voided), answerOf(200)].map(isServed)).toEqual([
    true,
    false,
    false,
  ])
})

test('default: the outcome is not_charged if the gateway reports not_charged, and otherwise unknown', () => {
  expect(outcomeOf('charged')).toEqual({ outcome: 'unknown', isAccepted: true })
  expect(outcomeOf('not_charged')).toEqual({ outcome: 'not_charged', isAccepted: false })
  expect(outcomeOf('absent')).toEqual({ outcome: 'unknown', isAccepted: false })
  expect(outcomeOf('unknown')).toEqual({ outcome: 'unknown', isAccepted: undefined })
})
