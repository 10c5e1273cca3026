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
    'default: reads an offer of scheme exact in USDC on the client’s network, in version %i',
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
    ['the network name that version 1 uses', { network: 'base' }],
    ['a look-alike token', { asset: address('e'), extra: { name: 'USD Coin', version: '2' } }],
    ['USDC of another network', { asset: networks['base-sepolia'].usdc }],
    ['another scheme', { scheme: 'upto' }],
    ['another transfer method', { extra: { assetTransferMethod: 'permit2' } }],
    ['an amount of 0', { amount: '0' }],
    ['a negative amount', { amount: '-1' }],
    ['a fractional amount', { amount: '1.5' }],
    ['an amount as a number', { amount: 50_000 }],
    ['an amount that is too large for a payment', { amount: '18446744073709551616' }],
    ['a payee that is not an address', { payTo: 'tides.eth' }],
    ['a timeout of 0', { maxTimeoutSeconds: 0 }],
    ['a timeout that is not a number', { maxTimeoutSeconds: '60' }],
  ])('error: skips an offer with %s', (_, change) => {
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
    ['an HTML page', '<html>'],
    ['an empty body', null],
    ['no offers', { x402Version: 2, accepts: [] }],
    ['another version of x402', { ...required, x402Version: 3 }],
    ['an unreadable header, although the body is readable', required, 'none'],
    ['a Tollkeeper challenge, whose two entries add up to one price', challengeFor('https://api.example/')],
  ])('error: finds no PaymentRequired in a 402 with %s', (_, body, header) => {
    expect(read(body, header)).toBeUndefined()
  })

  test('behavior: isPaymentRequired returns true or false for any value, and never throws', () => {
    for (const hostile of withHostileParts(required)) expect(isPaymentRequired(hostile)).toBeTypeOf('boolean')
  })
})
