import { describe, expect, test, vi } from 'vitest'
import {
  account,
  answerJson,
  challengeFor,
  clientOf,
  errorOf,
  gatewayUrl,
  playProvider,
  serveReceipt,
} from '../../test/playProvider.ts'
import { playTabs } from '../../test/playTabs.ts'
import { demand, exactOffer, payTo, playX402Seller } from '../../test/playX402Seller.ts'
import { serve } from '../../test/serve.ts'
import type { ClientOptions } from './createClient.ts'

const signTypedData = vi.fn(account.signTypedData)

/** A client that must not sign anything. */
const askerOf = (options: Partial<ClientOptions> = {}) =>
  clientOf({ account: { ...account, signTypedData }, ...options })

describe('a seller of the gateway', () => {
  test('is quoted with its price, fee and description, and nothing is signed', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    expect(await askerOf().quote(`${url}/weather`)).toEqual({
      url: `${url}/weather`,
      amount: 50_000n,
      price: '0.05',
      fee: 2_500n,
      network: 'base',
      payTo: `0x${'b'.repeat(40)}`,
      description: 'Provider payment',
      mimeType: 'application/json',
      seller: 'tollkeeper',
      schemes: ['exact'],
      isOnTab: false,
      isAllowed: true,
      refusal: undefined,
    })
    expect([paidHeaders, signTypedData.mock.calls]).toEqual([[], []])
  })

  test('is quoted on a tab if the client uses tabs', async () => {
    const played = await playTabs()
    const options = { fetch: played.fetch, baseUrl: played.url }
    const quoted = await askerOf({ ...options, tabs: true }).quote('/1000/b/weather')
    expect(quoted).toMatchObject({ amount: 1_000n, isOnTab: true, isAllowed: true })
    expect(quoted.schemes).toContain('tab')
    const alone = await askerOf({ ...options, tabs: false }).quote('/1000/b/weather')
    expect(alone.isOnTab).toBe(false)
    expect(signTypedData).not.toHaveBeenCalled()
  })

  test.each<[string, Partial<ClientOptions>, object, string]>([
    ['limits.perPayment', { limits: { perPayment: '0.049999' } }, {}, 'spending_limit_exceeded'],
    ['limits.perDay', { limits: { perDay: '0.04' } }, {}, 'spending_limit_exceeded'],
    ['limits.perDayAndHost', { limits: { perDayAndHost: '0.04' } }, {}, 'spending_limit_exceeded'],
    ['limits.hosts', { limits: { hosts: ['api.example'] } }, {}, 'host_not_allowed'],
    ['the call’s own maxUsdc', {}, { maxUsdc: '$0.04' }, 'spending_limit_exceeded'],
    ['the client’s network', { network: 'polygon' }, {}, 'challenge_refused'],
    ['the client’s gateway', { gatewayUrl: 'https://other.example' }, {}, 'challenge_refused'],
  ])('is quoted as not allowed if the request conflicts with %s', async (_, options, own, code) => {
    const { url } = await playProvider(serveReceipt)
    const quote = await askerOf(options).quote(url, own)
    expect(quote).toMatchObject({ amount: 50_000n, isAllowed: false, refusal: { code } })
  })

  test('uses no budget when it is quoted, and is quoted as not allowed if the budget is spent', async () => {
    const { url } = await playProvider(serveReceipt)
    const onPayment = vi.fn()
    const client = clientOf({ limits: { perDay: '0.10', onPayment } })
    for (let n = 0; n < 5; n++) expect((await client.quote(url)).isAllowed).toBe(true)
    expect(onPayment).not.toHaveBeenCalled()
    await client.request(url)
    await client.request(url)
    expect((await client.quote(url)).refusal?.message).toContain('limits.perDay is 0.100000')
  })
})

describe('an x402 seller that doesn’t use Tollkeeper', () => {
  test.each([1, 2] as const)(
    'of version %i is quoted, and is allowed only with the option otherSellers',
    async (version) => {
      const seller = await playX402Seller(serveReceipt, { version })
      const price = {
        amount: 50_000n,
        price: '0.05',
        fee: undefined,
        payTo,
        seller: 'x402',
        schemes: ['exact'],
      }
      const allowed = await askerOf({ otherSellers: true }).quote(seller.url)
      expect(allowed).toMatchObject({ ...price, isAllowed: true, refusal: undefined })
      const refused = await askerOf().quote(seller.url)
      expect(refused).toMatchObject({ ...price, isAllowed: false, refusal: { code: 'challenge_refused' } })
      expect(refused.refusal?.message).toContain('otherSellers: true')
      expect(seller.shown).toEqual([])
    },
  )

  test('is not allowed above 1 USDC if the client sets no limits.perPayment', async () => {
    const offers = [exactOffer(2, { amount: '1000001' })]
    const seller = await playX402Seller(serveReceipt, { offers })
    const { isAllowed } = await askerOf({ otherSellers: true, limits: { perDay: '5' } }).quote(seller.url)
    expect(isAllowed).toBe(false)
    const generous = askerOf({ otherSellers: true, limits: { perPayment: '2' } })
    expect((await generous.quote(seller.url)).isAllowed).toBe(true)
  })

  test('is not quoted if the seller accepts only another token', async () => {
    const offers = [exactOffer(2, { asset: `0x${'1'.repeat(40)}` })]
    const seller = await playX402Seller(serveReceipt, { offers })
    const error = await errorOf(askerOf({ otherSellers: true }).quote(seller.url))
    expect(error).toMatchObject({ code: 'challenge_refused', outcome: 'not_charged' })
  })
})

test('quotes 0 for a free request, and throws if the seller returns an error other than 402 or can’t be reached', async () => {
  const url = await serve((request, response) =>
    request.url === '/free' ? answerJson(response, 200, {}) : answerJson(response, 404, {}),
  )
  expect(await askerOf().quote(`${url}/free`)).toMatchObject({ amount: 0n, price: '0', isAllowed: true })
  expect(await errorOf(askerOf().quote(`${url}/lost`))).toMatchObject({ name: 'HttpError', status: 404 })
  const gone = await errorOf(askerOf({ timeout: 2_000 }).quote('http://127.0.0.1:1/'))
  expect(gone.code).toBe('network_error')
})

test('throws for an unreadable 402', async () => {
  const url = await serve((_, response) => answerJson(response, 402, { error: 'pay me' }))
  expect((await errorOf(askerOf().quote(url))).code).toBe('challenge_refused')
  const mixed = await serve((request, response) => {
    if (request.url === '/x402') demand(response, 2)
    else answerJson(response, 402, challengeFor(`http://${request.headers.host}${request.url}`))
  })
  const client = askerOf({ otherSellers: true })
  expect((await client.quote(`${mixed}/x402`)).seller).toBe('x402')
  expect((await client.quote(`${mixed}/own`)).seller).toBe('tollkeeper')
  expect(gatewayUrl).toBe('https://gateway.example')
})
