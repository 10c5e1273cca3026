import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { address, word } from '../../test/audited.ts'
import {
  account,
  answerJson,
  challengeFor,
  clientOf,
  errorOf,
  fetchWithKeys,
  gatewayUrl,
  type Handler,
  playProvider,
  serveReceipt,
  signerOf,
} from '../../test/playProvider.ts'
import {
  contentsOf,
  demand,
  exactOffer,
  payTo,
  playX402Seller,
  presentedBy,
  settled,
} from '../../test/playX402Seller.ts'
import { serve } from '../../test/serve.ts'
import { encodePaymentHeader } from '../protocol/x402.ts'
import { ClientError } from './errors.ts'
import { isWritable } from './exactOffers.ts'
import type { OtherSellersOptions } from './otherSellers.ts'
import type { PaymentOptions } from './paymentFlow.ts'
import { createSpendingMemory } from './spending.ts'
import { wrapFetch } from './wrapFetch.ts'

const transaction = word('7')
const serveTides: Handler = (_, response) => answerJson(response, 200, { tide: 'low' })

/** An account that counts how often it signs. */
function countingAccount() {
  const signTypedData = vi.fn(account.signTypedData)
  return { account: { ...account, signTypedData }, signed: () => signTypedData.mock.calls.length }
}

type Options = Partial<PaymentOptions> & { fetch?: typeof fetch }

/** Requests a URL. Returns the status of the response, or the code of the error. */
type Ask = (url: string, signal?: AbortSignal) => Promise<number | string>

const codeOf = (error: unknown) => {
  if (error instanceof ClientError) return error.status ?? error.code
  throw error
}
const buyers: Record<string, (options: Options) => Ask> = {
  createClient(options) {
    const client = clientOf({ otherSellers: true, ...options })
    return (url, signal) =>
      client.request(url, { ...(signal && { signal }) }).then(({ status }) => status, codeOf)
  },
  wrapFetch({ fetch = fetchWithKeys, ...options }) {
    const shared = { gatewayUrl, network: 'base', limits: { perPayment: '1' }, account } as const
    const paying = wrapFetch(fetch, { ...shared, otherSellers: true, ...options })
    return (url, signal) =>
      paying(url, { ...(signal && { signal }) })
        .then(async (response) => {
          await response.text()
          return response.status
        })
        .catch(codeOf)
  },
}
const names = Object.keys(buyers)
const buyerOf = (name: string, options: Options = {}) => (buyers[name] as (options: Options) => Ask)(options)

describe('payment', () => {
  test.each(names.flatMap((name) => [[name, 1] as const, [name, 2] as const]))(
    'default: %s pays a seller of x402 version %i with one authorization',
    async (name, version) => {
      const seller = await playX402Seller(serveTides, { version })
      const { account, signed } = countingAccount()
      const before = Math.floor(Date.now() / 1000)
      expect(await buyerOf(name, { account })(seller.url)).toBe(200)
      expect([signed(), seller.requests(), seller.shown.length]).toEqual([1, 2, 1])
      const authorization = presentedBy(seller.shown[0])
      expect(authorization).toMatchObject({ to: payTo, value: 50_000n, validAfter: 0n })
      expect(Number(authorization.validBefore) - before).toBeOneOf([60, 61])
      expect(await signerOf(authorization)).toBe(account.address)
      const repeated = version === 1 ? { scheme: 'exact', network: 'base' } : { accepted: exactOffer(2) }
      expect(contentsOf(seller.shown[0])).toMatchObject({ x402Version: version, ...repeated })
    },
  )

  test.each([1, 2] as const)(
    'behavior: returns the settlement report of a seller of x402 version %i together with the response',
    async (version) => {
      const { url } = await playX402Seller(
        (_, response) => answerJson(response, 200, { tide: 'low' }, settled(version, transaction)),
        { version },
      )
      const { data, payment, paymentId, paymentTxHash, sellerReport } = await clientOf({
        otherSellers: true,
      }).request(url)
      expect(data).toEqual({ tide: 'low' })
      expect(payment).toMatchObject({ network: 'base', amount: 50_000n, header: {} })
      expect(sellerReport).toEqual({ success: true, transaction })
      // Only a receipt of the client's own gateway sets these fields.
      expect([paymentId, paymentTxHash]).toEqual([undefined, undefined])
    },
  )

  test('behavior: pays sellers of the client’s own gateway through that gateway', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    for (const name of names) expect(await buyerOf(name, { tabs: false })(url)).toBe(200)
    expect(paidHeaders).toHaveLength(2)
  })

  test('behavior: pays a seller of another Tollkeeper gateway through its x402 offer', async () => {
    const body = (url: string) => challengeFor(url, { issuer: 'https://other.example' })
    const shown: unknown[] = []
    let hasHeader = true
    const url = await serve((request, response) => {
      const header = request.headers['payment-signature']
      if (header !== undefined) {
        shown.push(header)
        return answerJson(response, 200, {})
      }
      const required = encodePaymentHeader({ x402Version: 2, accepts: [exactOffer(2)] })
      answerJson(response, 402, body(`http://${request.headers.host}/`), {
        ...(hasHeader && { 'payment-required': required }),
      })
    })
    const client = clientOf({ otherSellers: true })
    expect((await client.request(url)).status).toBe(200)
    expect(shown).toHaveLength(1)
    // Without the header, only the gateway's own challenge is left. The client must not pay it as an x402 offer: its price is the sum of two entries,
    // and the first entry alone would be too little.
    hasHeader = false
    expect(await errorOf(client.request(url))).toMatchObject({ code: 'challenge_refused' })
  })
})

describe('a 402 that is not paid', () => {
  test('default: without the option otherSellers, is refused by a client, and returned by a wrapped fetch', async () => {
    const seller = await playX402Seller(serveTides)
    const { account, signed } = countingAccount()
    const [client, fetching] = names.map((name) =>
      buyerOf(name, { account, otherSellers: undefined as never }),
    )
    expect(await client?.(seller.url)).toBe(402)
    expect(await fetching?.(seller.url)).toBe(402)
    expect([signed(), seller.requests()]).toEqual([0, 2])
  })

  test('behavior: is returned by a wrapped fetch if the caller presented a payment', async () => {
    const seller = await playX402Seller((_, response) => demand(response, 2))
    const { account, signed } = countingAccount()
    const paying = wrapFetch(fetch, {
      gatewayUrl,
      network: 'base',
      account,
      limits: { perPayment: '1' },
      otherSellers: true,
    })
    const response = await paying(seller.url, { headers: { 'payment-signature': 'own' } })
    expect([response.status, signed(), seller.shown]).toEqual([402, 0, ['own']])
  })
})

describe('limits', () => {
  test.each<[string, PaymentOptions | object, object, string]>([
    [
      'the price is above limits.perPayment',
      { limits: { perPayment: '0.049999' } },
      {},
      'spending_limit_exceeded',
    ],
    ['the price is above limits.perDay', { limits: { perDay: '0.04' } }, {}, 'spending_limit_exceeded'],
    [
      'the price is above limits.perDayAndHost',
      { limits: { perDayAndHost: '0.04' } },
      {},
      'spending_limit_exceeded',
    ],
    ['the host is not allowed', { limits: { hosts: ['tides.example'] } }, {}, 'host_not_allowed'],
    ['onPayment refuses', { limits: { onPayment: () => false } }, {}, 'payment_declined'],
    ['the seller asks for USDC on another network', {}, { network: 'eip155:137' }, 'challenge_refused'],
    ['the seller asks for a look-alike token', {}, { asset: address('e') }, 'challenge_refused'],
  ])('error: signs nothing if %s', async (_, options, change, code) => {
    const seller = await playX402Seller(serveTides, { offers: [exactOffer(2, change)] })
    const { account, signed } = countingAccount()
    const client = clientOf({ otherSellers: true, account, ...options })
    expect(await errorOf(client.request(seller.url))).toMatchObject({
      code,
      outcome: 'not_charged',
      payment: undefined,
    })
    expect([signed(), seller.shown]).toEqual([0, []])
  })

  test.each([
    ['1000000', 200],
    ['1000001', 402],
  ])(
    'args: without limits.perPayment, a request at a price of %s base units ends with status %i',
    async (amount, status) => {
      const seller = await playX402Seller(serveTides, { offers: [exactOffer(2, { amount })] })
      const options = { limits: { perPayment: undefined } as never, warn: () => {} }
      for (const name of names) expect(await buyerOf(name, options)(seller.url)).toBe(status)
    },
  )

  test('behavior: never exceeds limits.perDay in many concurrent requests', async () => {
    const seller = await playX402Seller(serveTides)
    const provider = await playProvider(serveReceipt)
    const { account, signed } = countingAccount()
    const shared = {
      account,
      limits: { perPayment: '0.05', perDay: '0.2' },
      stores: { spending: createSpendingMemory() },
    }
    const asks = names.map((name) => buyerOf(name, { ...shared, tabs: false }))
    expect(await asks[0]?.(provider.url)).toBe(200)
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) => asks[index % 2]?.(`${seller.url}?${index}`)),
    )
    expect(answers.filter((status) => status === 200)).toHaveLength(3)
    expect(seller.signatures()).toBe(3)
    // The three payments to `seller` have one signature each, and the payment to `provider` has two.
    expect(signed()).toBe(5)
  })

  test('args: passes the requested payment to onPayment', async () => {
    const seller = await playX402Seller(serveTides)
    const onPayment = vi.fn()
    await clientOf({ otherSellers: true, limits: { onPayment } }).request(seller.url)
    const { nonce } = presentedBy(seller.shown[0])
    const proposed = { url: seller.url, host: '127.0.0.1', amount: 50_000n, network: 'base', payTo }
    expect(onPayment.mock.calls).toEqual([[{ ...proposed, description: '', requestId: nonce }]])
  })
})

describe('validity', () => {
  const now = 1_800_000_000_900
  test.each<[string, string, OtherSellersOptions, number | undefined, number]>([
    ['the time that the seller asks for', '60', {}, undefined, 60],
    ['an hour at most', '31536000', {}, undefined, 3_600],
    ['an hour if the seller asks for Infinity', '1e999', {}, undefined, 3_600],
    ['the maxValiditySeconds in otherSellers', '600', { maxValiditySeconds: 30 }, undefined, 30],
    ['the client’s maxValiditySeconds', '600', {}, 300, 300],
    ['the shorter of the two maxValiditySeconds', '600', { maxValiditySeconds: 120 }, 300, 120],
  ])('args: a signature is valid for %s', async (_, maxTimeoutSeconds, options, clientSeconds, seconds) => {
    const offer = JSON.stringify(exactOffer(1, { maxTimeoutSeconds: 'T' })).replace('"T"', maxTimeoutSeconds)
    const body = `{"x402Version":1,"accepts":[${offer}]}`
    const shown: unknown[] = []
    const url = await serve((request, response) => {
      shown.push(request.headers['x-payment'])
      response.writeHead(shown.length > 1 ? 200 : 402, { 'content-type': 'application/json' }).end(body)
    })
    vi.useFakeTimers({ toFake: ['Date'], now })
    onTestFinished(() => void vi.useRealTimers())
    await clientOf({
      otherSellers: options,
      ...(clientSeconds !== undefined && { maxValiditySeconds: clientSeconds }),
    }).request(url)
    const { validBefore } = presentedBy(shown[1] as string)
    expect(validBefore).toBe(BigInt(Math.floor(now / 1000) + seconds))
  })

  test.each([0, -1, Number.NaN])('error: rejects maxValiditySeconds of %s', (maxValiditySeconds) => {
    expect(() => clientOf({ otherSellers: { maxValiditySeconds } })).toThrow(TypeError)
  })
})

const refusals: [string, Handler][] = [
  ['refuses the payment', (_, response) => demand(response, 2, [exactOffer(2)], 'invalid_transaction_state')],
  [
    'asks for a higher price to another wallet',
    (_, response) => demand(response, 2, [exactOffer(2, { amount: '60000', payTo: address('e') })]),
  ],
  ['asks for the payment in version 1', (_, response) => demand(response, 1)],
  [
    'responds with a challenge of the client’s own gateway',
    (request, response) => answerJson(response, 402, challengeFor(`http://${request.headers.host}/tides`)),
  ],
  ['responds with 404', (_, response) => answerJson(response, 404, {})],
  ['responds with 409', (_, response) => answerJson(response, 409, {})],
  ['is busy', (_, response) => answerJson(response, 429, {})],
  ['fails', (_, response) => answerJson(response, 500, {})],
  [
    'reports the settlement in an error response',
    (_, response) => answerJson(response, 500, {}, settled(2, transaction)),
  ],
  [
    'claims to be a Tollkeeper seller that charged the payment',
    (_, response) => answerJson(response, 404, {}, { 'service-payment-id': 'pay_1', 'service-charged': '0' }),
  ],
  [
    'claims that the payment was voided',
    (_, response) =>
      answerJson(response, 500, {}, { 'service-payment-id': 'pay_1', 'service-payment-status': 'voided' }),
  ],
  ['is unavailable for a while', (_, response) => answerJson(response, 503, {}, { 'retry-after': '0' })],
  ['hangs up', (request) => request.socket.destroy()],
  [
    'breaks off its response',
    (request, response) => {
      response.writeHead(200, { 'content-length': '100' })
      response.write('low', () => request.socket.destroy())
    },
  ],
]

describe('repeats', () => {
  test.each(names.flatMap((name) => refusals.map(([how, handler]) => [name, how, handler] as const)))(
    'behavior: %s presents only one payment to a seller that %s, until that payment expires',
    async (name, _, refuse) => {
      const seller = await playX402Seller(refuse)
      const { account, signed } = countingAccount()
      const ask = buyerOf(name, { account })
      const read = () => ask(seller.url).catch(() => 'broken')
      for (let count = 0; count < 3; count++) expect(await read()).not.toBe(200)
      expect([seller.signatures(), signed()]).toEqual([1, 1])
      // A different request is another purchase.
      await ask(`${seller.url}?city=Bern`).catch(() => 'broken')
      expect(signed()).toBe(2)
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 })
      onTestFinished(() => void vi.useRealTimers())
      await read()
      expect([seller.signatures(), signed()]).toEqual([3, 3])
    },
  )

  test.each(names)(
    'behavior: %s presents the same payment until the seller serves the request, and pays again for the next request',
    async (name) => {
      let count = 0
      const seller = await playX402Seller((request, response, attempt) =>
        ++count > 2 ? serveTides(request, response, attempt) : demand(response, 2),
      )
      const ask = buyerOf(name)
      expect([await ask(seller.url), await ask(seller.url), await ask(seller.url)]).toEqual([402, 402, 200])
      expect(seller.signatures()).toBe(1)
      // All requests except the first carried the payment.
      expect([seller.requests(), seller.shown.length]).toEqual([4, 3])
      expect(await ask(seller.url)).toBe(200)
      expect(seller.signatures()).toBe(2)
    },
  )

  test.each(names)(
    'behavior: %s presents the same payment again after the caller aborted the first request',
    async (name) => {
      let reached = () => {}
      const seller = await playX402Seller((request, response, attempt) => {
        reached()
        if (attempt > 1) serveTides(request, response, attempt)
      })
      const ask = buyerOf(name)
      const leaving = new AbortController()
      reached = () => leaving.abort()
      expect(await ask(seller.url, leaving.signal)).toBe('aborted')
      expect(await ask(seller.url)).toBe(200)
      expect([seller.shown.length, seller.signatures()]).toEqual([2, 1])
    },
  )

  test.each(names)(
    'behavior: %s signs two payments for two concurrent requests, and no third payment when the requests are repeated',
    async (name) => {
      const seller = await playX402Seller((_, response) => demand(response, 2))
      const ask = buyerOf(name)
      for (let count = 0; count < 3; count++)
        expect(await Promise.all([ask(seller.url), ask(seller.url)])).toEqual([402, 402])
      expect([seller.shown.length, seller.signatures()]).toEqual([6, 2])
    },
  )

  test('behavior: another client can present the payment from this client’s error', async () => {
    let isRefusing = true
    const seller = await playX402Seller((request, response, attempt) =>
      isRefusing ? demand(response, 2) : serveTides(request, response, attempt),
    )
    const { payment } = await errorOf(clientOf({ otherSellers: true }).request(seller.url))
    isRefusing = false
    const { account, signed } = countingAccount()
    const other = clientOf({ account })
    expect((await other.request(seller.url, { ...(payment && { payment }) })).status).toBe(200)
    expect([signed(), seller.signatures()]).toEqual([0, 1])
    if (!payment) throw new Error('The error must carry the payment')
    const settling = clientOf({ facilitatorUrl: 'https://facilitator.example' }).settleNow(payment)
    await expect(settling).rejects.toThrow(TypeError)
  })
})

describe('a refusal', () => {
  test.each<[string, Handler]>([
    ['the 402 of version 2', (_, response) => demand(response, 2, undefined, 'insufficient_funds')],
    [
      'the report of version 2',
      (_, response) => {
        const report = { success: false, errorReason: 'insufficient_funds', transaction: '', network: 'base' }
        answerJson(response, 402, {}, { 'payment-response': encodePaymentHeader(report) })
      },
    ],
    ['the 402 of version 1', (_, response) => demand(response, 1, undefined, 'insufficient_funds')],
  ])(
    'default: the error has the seller’s reason from %s, and the payment may still settle',
    async (_, refuse) => {
      const { url } = await playX402Seller(refuse)
      const error = await errorOf(clientOf({ otherSellers: true }).request(url))
      expect(error).toMatchObject({
        name: 'PaymentVerificationError',
        code: 'payment_refused',
        status: 402,
        outcome: 'unknown',
        isAccepted: undefined,
        sellerReport: { reason: 'insufficient_funds' },
      })
      expect(error.message).toContain('insufficient_funds')
      expect(error.settlesUntil).toBe(Number(presentedBy(error.payment?.header?.value).validBefore))
      expect(error.advice).toMatch(/Repeat the same request: the same payment is presented again/)
      // No gateway can report on a payment to a seller that doesn't use Tollkeeper.
      expect(error.advice).not.toMatch(/gateway/)
    },
  )

  test('behavior: ignores the unreadable parts of a seller’s report', async () => {
    let report = ''
    const { url } = await playX402Seller((_, response) =>
      answerJson(response, 200, {}, { 'payment-response': report }),
    )
    const client = clientOf({ otherSellers: true })
    const reports = [...withHostileParts({ success: true, transaction, errorReason: 'none' })].filter(
      isWritable,
    )
    const headers = reports.map((hostile) => encodePaymentHeader(hostile as object))
    // Leave out longer headers, because Node's servers and clients reject them.
    for (const header of [...headers.filter(({ length }) => length < 8_000), 'none', '!']) {
      report = header
      const { sellerReport = {} } = await client.request(url)
      for (const [name, value] of Object.entries(sellerReport))
        expect(value).toBeTypeOf(name === 'success' ? 'boolean' : 'string')
    }
  })
})

describe('redirects', () => {
  test.each(names)('error: %s does not pay if the seller redirects to another origin', async (name) => {
    const elsewhere = await playX402Seller(serveTides)
    const url = await serve((_, response) => response.writeHead(307, { location: elsewhere.url }).end())
    const { account, signed } = countingAccount()
    expect(await buyerOf(name, { account })(url)).toBe(402)
    expect([signed(), elsewhere.shown]).toEqual([0, []])
  })

  test.each([1, 2] as const)(
    'behavior: follows a redirect of a paid request without sending the payment to the new URL (x402 version %i)',
    async (version) => {
      const elsewhere = await playX402Seller(serveTides, { version })
      const seller = await playX402Seller(
        (_, response) => response.writeHead(307, { location: elsewhere.url }).end(),
        { version },
      )
      for (const name of names) expect(await buyerOf(name)(seller.url)).toBe(402)
      expect([seller.shown.length, elsewhere.shown]).toEqual([2, []])
    },
  )
})
