import type { Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/payments.json' with { type: 'json' }
import { onlySpecFields } from '../../test/playProvider.ts'
import { boundNonce, type Challenge, createChallenge, feeNonce, parseChallenge } from './challenge.ts'
import { networks } from './networks.ts'

const terms: Parameters<typeof createChallenge>[0] = {
  issuer: 'https://gateway.example',
  requestId: `req_${'0'.repeat(32)}`,
  providerId: `prov_${'1'.repeat(32)}`,
  endpointId: `ep_${'2'.repeat(32)}`,
  macaroon: 'AgEA',
  network: networks['base-sepolia'],
  asset: '0x036cbd53842c5426634e7929541ec2318f3dcf7e',
  resource: 'https://api.example/weather',
  description: 'Weather',
  payTo: `0x${'b'.repeat(40)}`,
  feePayTo: `0x${'c'.repeat(40)}`,
  amount: 47_500n,
  feeAmount: 2_500n,
  tier: 'micropayment',
}
const challenge = createChallenge(terms)

const tab = {
  split: `0x${'b'.repeat(40)}000000000013000000000001`,
  rewardShare: 1_000,
  offeredUntil: 1_800_000_000,
} as const

test('default: creates a challenge with two entries', () => {
  expect(challenge).toEqual({
    x402Version: 1,
    accepts: [
      {
        scheme: 'exact',
        network: 'base-sepolia',
        maxAmountRequired: '47500',
        resource: 'https://api.example/weather',
        description: 'Weather',
        mimeType: 'application/json',
        outputSchema: null,
        payTo: `0x${'b'.repeat(40)}`,
        maxTimeoutSeconds: 93_600,
        asset: '0x036cbd53842c5426634e7929541ec2318f3dcf7e',
        extra: { name: 'USDC', version: '2' },
      },
      expect.objectContaining({
        maxAmountRequired: '2500',
        description: 'Platform fee (micropayment)',
        payTo: `0x${'c'.repeat(40)}`,
      }),
    ],
    macaroon: 'AgEA',
    providerId: `prov_${'1'.repeat(32)}`,
    endpointId: `ep_${'2'.repeat(32)}`,
    requestId: `req_${'0'.repeat(32)}`,
    issuer: 'https://gateway.example',
  })
})

describe('parseChallenge', () => {
  test('default: reads a challenge from its JSON', () => {
    expect(parseChallenge(JSON.parse(JSON.stringify(challenge)))).toEqual(challenge)
  })

  test('args: accepts a price for tabs whose fee is rounded down to 0', () => {
    const amounts = { amount: 7n, feeAmount: 0n }
    const onTab = createChallenge({ ...terms, ...amounts, tab })
    expect(onTab).toMatchObject({ tab, accepts: [{ maxAmountRequired: '7' }, { maxAmountRequired: '0' }] })
    expect(parseChallenge({ ...onTab, tab: { ...tab, further: 1 } })).toEqual(onTab)
  })

  test('behavior: keeps error and code, and drops unknown fields', () => {
    const body = { ...challenge, error: 'expired', code: 'macaroon_expired', further: 1 }
    expect(parseChallenge(body)).toEqual({ ...challenge, error: 'expired', code: 'macaroon_expired' })
  })

  test('behavior: if our additional fields are missing, fills in a validity of one hour, the network’s domain and the assumed issuer', () => {
    const spare = JSON.parse(JSON.stringify(onlySpecFields(challenge)))
    const accepts = challenge.accepts.map((entry) => ({ ...entry, mimeType: '', maxTimeoutSeconds: 3_600 }))
    expect(parseChallenge(spare, challenge.issuer)).toEqual({ ...challenge, accepts })
    expect(() => parseChallenge(spare)).toThrow(/issuer/)
    // If the challenge has an issuer, the assumed issuer is never used, even if the challenge's issuer is malformed.
    expect(parseChallenge(challenge, 'https://other.example').issuer).toBe(challenge.issuer)
    expect(() => parseChallenge({ ...challenge, issuer: 1 }, challenge.issuer)).toThrow(/issuer/)
  })

  const [provider, fee] = challenge.accepts
  const accepts = (...entries: unknown[]): Partial<Record<keyof Challenge, unknown>> => ({ accepts: entries })
  test.each([
    ['x402 version 2', { x402Version: 2 }, 'x402Version'],
    ['no entry', accepts(), 'accepts'],
    ['one entry', accepts(provider), 'accepts'],
    ['three entries', accepts(provider, fee, fee), 'accepts'],
    ['entries that are not a list', { accepts: {} }, 'accepts'],
    ['another scheme', accepts({ ...provider, scheme: 'upto' }, fee), 'accepts[0].scheme'],
    ['two networks', accepts(provider, { ...fee, network: 'base' }), 'accepts[1].network'],
    ['two tokens', accepts(provider, { ...fee, asset: `0x${'1'.repeat(40)}` }), 'accepts[1].asset'],
    ['two resources', accepts(provider, { ...fee, resource: 'https://b.example' }), 'accepts[1].resource'],
    [
      'an amount that is a number',
      accepts({ ...provider, maxAmountRequired: 1 }, fee),
      'accepts[0].maxAmountRequired',
    ],
    [
      'an amount with a leading zero',
      accepts({ ...provider, maxAmountRequired: '00' }, fee),
      'accepts[0].maxAmountRequired',
    ],
    [
      'an amount of 21 digits',
      accepts({ ...provider, maxAmountRequired: '1'.repeat(21) }, fee),
      'accepts[0].maxAmountRequired',
    ],
    [
      'a negative amount',
      accepts({ ...provider, maxAmountRequired: '-1' }, fee),
      'accepts[0].maxAmountRequired',
    ],
    ['a payee that is not an address', accepts({ ...provider, payTo: '0x1' }, fee), 'accepts[0].payTo'],
    [
      'a timeout of zero',
      accepts({ ...provider, maxTimeoutSeconds: 0 }, fee),
      'accepts[0].maxTimeoutSeconds',
    ],
    [
      'no domain, on a network that is not in the table',
      accepts({ ...provider, network: 'solana', extra: undefined }, fee),
      'accepts[0].extra',
    ],
    ['a macaroon with a colon, which separates the header’s parts', { macaroon: 'a:b' }, 'macaroon'],
    ['no macaroon', { macaroon: undefined }, 'macaroon'],
    ['no issuer', { issuer: undefined }, 'issuer'],
    ['a requestId that is a number', { requestId: 7 }, 'requestId'],
    ['an invalid tab', { tab: 'on' }, 'tab'],
    ['a split in upper case', { tab: { ...tab, split: `0x${'A'.repeat(64)}` } }, 'tab.split'],
    ['no split', { tab: { ...tab, split: undefined } }, 'tab.split'],
    ['a reward above 100%', { tab: { ...tab, rewardShare: 10_001 } }, 'tab.rewardShare'],
    ['a reward of half a basis point', { tab: { ...tab, rewardShare: 0.5 } }, 'tab.rewardShare'],
    ['an expiry that is text', { tab: { ...tab, offeredUntil: '1800000000' } }, 'tab.offeredUntil'],
    ['a negative expiry', { tab: { ...tab, offeredUntil: -1 } }, 'tab.offeredUntil'],
  ])('error: rejects %s', (_, change, field) => {
    expect(() => parseChallenge({ ...challenge, ...change })).toThrow(
      expect.objectContaining({ code: 'invalid_challenge', details: { field } }),
    )
  })

  test.each([undefined, null, 'x', 1, []])('error: rejects %j', (body) => {
    expect(() => parseChallenge(body)).toThrow(expect.objectContaining({ code: 'invalid_challenge' }))
  })
})

test.each(vectors.payments.filter(({ requestId }) => requestId))(
  'behavior: binds nonces to the challenge: $name',
  ({ issuer, requestId, authorization, fee }) => {
    expect(boundNonce(issuer as string, requestId as string)).toBe(authorization.nonce)
    expect(feeNonce(authorization.nonce as Hex)).toBe(fee?.nonce)
  },
)
