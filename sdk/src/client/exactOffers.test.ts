import { describe, expect, test } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { address } from '../../test/audited.ts'
import { challengeFor } from '../../test/playProvider.ts'
import { exactOffer, payTo } from '../../test/playX402Seller.ts'
import { payload } from '../../test/signedPayment.ts'
import { networkByName, networks } from '../protocol/networks.ts'
import { parsePayload } from '../protocol/payload.ts'
import { encodePaymentHeader } from '../protocol/x402.ts'
import { isPaymentRequired, readExactOffers, readPaymentRequired } from './exactOffers.ts'

const network = networkByName('base')
const asset = { network, usdc: networks.base.usdc as `0x${string}` }
const signed = parsePayload(payload)
const offersOf = (accepts: unknown, x402Version: 1 | 2 = 2) =>
  readExactOffers({ x402Version, accepts }, asset)

describe('readExactOffers', () => {
  test.each([1, 2] as const)(
    'default: USDC on the client’s network by scheme exact, version %i',
    (version) => {
      expect(offersOf([exactOffer(version)], version)).toMatchObject([
        { amount: 50_000n, payTo, maxTimeoutSeconds: 60, nonce: expect.stringMatching(/^0x[0-9a-f]{64}$/) },
      ])
    },
  )

  test('behavior: keeps the seller’s order and skips offers that it can’t pay', () => {
    const offers = [
      exactOffer(2, { network: networks.polygon.caip2, asset: networks.polygon.usdc }),
      exactOffer(2, { amount: '3' }),
      exactOffer(2, { amount: '2' }),
    ]
    expect(offersOf(offers).map(({ amount }) => amount)).toEqual([3n, 2n])
  })

  test('behavior: accepts an address in upper or lower case', () => {
    const offer = exactOffer(2, { payTo: payTo.toUpperCase().replace('X', 'x') })
    expect(offersOf([offer])).toMatchObject([{ payTo }])
  })

  test.each<[string, object]>([
    ['another network', { network: 'eip155:1' }],
    ['a network by the name of version 1', { network: 'base' }],
    ['a look-alike token', { asset: address('e'), extra: { name: 'USD Coin', version: '2' } }],
    ['USDC of another network', { asset: networks['base-sepolia'].usdc }],
    ['another scheme', { scheme: 'upto' }],
    ['another way to transfer', { extra: { assetTransferMethod: 'permit2' } }],
    ['an amount of 0', { amount: '0' }],
    ['a negative amount', { amount: '-1' }],
    ['a fraction', { amount: '1.5' }],
    ['a number', { amount: 50_000 }],
    ['more than a payment can carry', { amount: '18446744073709551616' }],
    ['a payee that is not an address', { payTo: 'tides.eth' }],
    ['no time', { maxTimeoutSeconds: 0 }],
    ['a time that is not a number', { maxTimeoutSeconds: '60' }],
  ])('error: does not take %s', (_, change) => {
    expect(offersOf([exactOffer(2, change)])).toEqual([])
  })

  test('behavior: never throws, whatever values the fields of an offer have', () => {
    const rest = { resource: { url: 'https://tides.example', description: 'Tides' }, extensions: {} }
    for (const version of [1, 2] as const)
      for (const hostile of withHostileParts({ offer: exactOffer(version), ...rest })) {
        const { offer, ...others } = (hostile ?? {}) as { offer?: unknown }
        const offers = readExactOffers({ ...others, x402Version: version, accepts: [offer] }, asset)
        for (const { amount, description, present } of offers) {
          expect(amount).toBeTypeOf('bigint')
          expect(description).toBeTypeOf('string')
          expect(present(signed).value).toBeTypeOf('string')
        }
      }
  })
})

describe('readPaymentRequired', () => {
  const required = { x402Version: 2, accepts: [exactOffer(2)] }
  const read = (body: unknown, header?: string) =>
    readPaymentRequired({
      body,
      headers: new Headers(header === undefined ? {} : { 'payment-required': header }),
    })

  test('behavior: prefers the header of version 2, and reads the body if there is no header', () => {
    expect(read({ x402Version: 1, accepts: [exactOffer(1)] }, encodePaymentHeader(required))).toEqual(
      required,
    )
    expect(read({ x402Version: 1, accepts: [exactOffer(1)] })).toMatchObject({ x402Version: 1 })
  })

  test.each<[string, unknown, string?]>([
    ['a page', '<html>'],
    ['nothing', null],
    ['no offers', { x402Version: 2, accepts: [] }],
    ['another version', { ...required, x402Version: 3 }],
    ['an unreadable header, although the body is readable', required, 'none'],
    ['our own challenge, whose two entries are one price', challengeFor('https://api.example/')],
  ])('error: %s', (_, body, header) => {
    expect(read(body, header)).toBeUndefined()
  })

  test('behavior: classifies any value without throwing', () => {
    for (const hostile of withHostileParts(required)) expect(isPaymentRequired(hostile)).toBeTypeOf('boolean')
  })
})
