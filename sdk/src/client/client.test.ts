import { describe, expect, onTestFinished, test, vi } from 'vitest'
import {
  account,
  answerJson,
  challengeFor,
  clientOf,
  errorOf,
  gatewayUrl,
  playProvider,
  serveReceipt,
  walletPrivateKey,
} from '../../test/playProvider.ts'
import { playX402Seller } from '../../test/playX402Seller.ts'
import { serve } from '../../test/serve.ts'
import { TollkeeperError } from '../protocol/errors.ts'
import { createClient } from './createClient.ts'
import { disposable } from './dispose.ts'
import { ChallengeRefusedError, ClientError } from './errors.ts'
import { wrapFetch } from './wrapFetch.ts'

describe('client.fetch', () => {
  test('can be called like the global fetch, and pays within the client’s limits', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const { fetch, request } = clientOf({ limits: { perDay: '0.10' } })
    const response = await fetch(url)
    expect([response.status, await response.json()]).toEqual([200, { sunny: true }])
    await request(url)
    await expect(fetch(url)).rejects.toMatchObject({ code: 'spending_limit_exceeded' })
    expect(paidHeaders).toHaveLength(2)
  })

  test.each([
    ['a GET', {}],
    ['a POST', { method: 'POST', body: '{"city":"Bern"}' }],
  ] as const)(
    'if client.request signed a payment for %s and got no response, presents that payment again',
    async (_, init) => {
      const { url, paidHeaders } = await playProvider((request, response, attempt) => {
        if (attempt > 3) serveReceipt(request, response, attempt)
        else request.socket.destroy()
      })
      const client = clientOf({ split: 'onchain' })
      expect(await errorOf(client.request(url, init))).toMatchObject({ outcome: 'unknown' })
      expect((await client.fetch(url, init)).status).toBe(200)
      expect([paidHeaders.length, new Set(paidHeaders).size]).toEqual([4, 1])
    },
  )
})

describe('maxUsdc', () => {
  test('makes the client refuse a higher price before it signs, and applies only to its own request', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const signTypedData = vi.fn(account.signTypedData)
    const client = clientOf({ account: { ...account, signTypedData } })
    const error = await errorOf(client.request(url, { maxUsdc: '$0.04' }))
    expect(error).toMatchObject({ code: 'spending_limit_exceeded', outcome: 'not_charged' })
    expect(error.message).toContain('asks for 0.050000 USDC, but maxUsdc of this request is 0.040000')
    expect(signTypedData).not.toHaveBeenCalled()
    await client.request(url, { maxUsdc: 0.05 })
    await client.request(url)
    expect(paidHeaders).toHaveLength(2)
  })

  test('also applies to sellers that don’t use Tollkeeper, in addition to limits.perPayment', async () => {
    const seller = await playX402Seller(serveReceipt)
    const client = clientOf({ otherSellers: true, limits: { perPayment: '0.04' } })
    const error = await errorOf(client.request(seller.url, { maxUsdc: '1' }))
    expect(error.message).toContain('limits.perPayment is 0.040000')
    const generous = clientOf({ otherSellers: true })
    await expect(generous.request(seller.url, { maxUsdc: '0.049999' })).rejects.toMatchObject({
      code: 'spending_limit_exceeded',
    })
    expect(seller.shown).toEqual([])
  })

  test('prevents the client from presenting an earlier payment of a higher amount, but not from presenting it with a later request', async () => {
    const { url, paidHeaders } = await playProvider((request, response, attempt) => {
      if (attempt > 3) serveReceipt(request, response, attempt)
      else request.socket.destroy()
    })
    const client = clientOf()
    const lost = await errorOf(client.request(url))
    const refused = await errorOf(client.request(url, { maxUsdc: '0.01' }))
    expect(refused).toMatchObject({ code: 'spending_limit_exceeded', outcome: 'unknown' })
    expect(refused.payment?.requestId).toBe(lost.payment?.requestId)
    const given = { payment: lost.payment as NonNullable<typeof lost.payment>, maxUsdc: '0.01' }
    expect((await errorOf(client.request(url, given))).code).toBe('spending_limit_exceeded')
    expect((await client.request(url)).status).toBe(200)
    expect([paidHeaders.length, new Set(paidHeaders).size]).toEqual([4, 1])
  })

  test.each(['', '0.0000001', '-1', '1e3', '$'])(
    'of %j is rejected as an invalid amount',
    async (maxUsdc) => {
      await expect(clientOf().request('http://127.0.0.1:1/', { maxUsdc })).rejects.toMatchObject({
        code: 'invalid_field',
      })
    },
  )
})

describe('errors', () => {
  test('have one base class, and each error has a stable code', async () => {
    const { url } = await playProvider(serveReceipt)
    const refused = await errorOf(clientOf({ limits: { perPayment: 0 } }).request(url))
    expect(refused).toBeInstanceOf(ChallengeRefusedError)
    expect(refused).toBeInstanceOf(ClientError)
    expect(refused).toBeInstanceOf(TollkeeperError)
    let thrown: unknown
    try {
      clientOf({ limits: { perPayment: 'much' } })
    } catch (error) {
      thrown = error
    }
    expect(thrown).toBeInstanceOf(TollkeeperError)
    expect(thrown).toMatchObject({ name: 'ProtocolError', code: 'invalid_field' })
  })

  test('list the existing limits if the name of a limit is misspelled', () => {
    const limits = { perPayement: '0.10' } as object
    expect(() => clientOf({ limits })).toThrow(
      new TypeError(
        'limits has no field perPayement. Known fields: perPayment, perDay, perDayAndHost, hosts, onPayment',
      ),
    )
  })
})

describe('await using', () => {
  test.each(['createClient', 'wrapFetch'] as const)('closes the tabs of %s', async (name) => {
    const shared = { gatewayUrl, walletPrivateKey, network: 'base', limits: { perDay: '1' } } as const
    const load = vi.fn(async () => [])
    const stores = { tabs: { load, save: async () => {}, remove: async () => {} } }
    {
      await using opened =
        name === 'createClient'
          ? createClient({ ...shared, tabs: true, stores })
          : wrapFetch(fetch, { ...shared, stores })
      expect(opened.close).toBeTypeOf('function')
    }
    // A client must load its tabs before it can close them, so this call shows that `close` ran.
    expect(load).toHaveBeenCalledTimes(1)
  })

  test('is not supported by a client if the runtime has no Symbol.asyncDispose', () => {
    vi.stubGlobal(
      'Symbol',
      Object.assign(() => {}, { asyncDispose: undefined }),
    )
    try {
      expect(disposable(async () => {})).toEqual({})
    } finally {
      vi.unstubAllGlobals()
    }
  })
})

describe('waitForSettlement', () => {
  test.each([
    ['the default interval', undefined, undefined, 2_000],
    ['the client’s interval', 40, undefined, 40],
    ['the call’s own interval', 40, 15, 15],
  ])('polls at %s', async (_, ofClient, ofCall, expected) => {
    // Shorten only the pause between polls, and leave other timers unchanged, such as the timers of connections.
    const { setTimeout } = globalThis
    const pauses: number[] = []
    const pause = (resume: () => void, ms = 0) => {
      if (ms !== expected) return setTimeout(resume, ms)
      pauses.push(ms)
      return setTimeout(resume, 0)
    }
    vi.stubGlobal('setTimeout', pause)
    onTestFinished(() => void vi.unstubAllGlobals())
    const states = ['verified', 'failed']
    const polling: typeof fetch = async () => Response.json({ payment_status: states.shift() })
    const client = clientOf({ fetch: polling, ...(ofClient && { pollingInterval: ofClient }) })
    const waiting = client.waitForSettlement('pay_1', { ...(ofCall && { pollingInterval: ofCall }) })
    const error = await errorOf(waiting)
    expect([error.code, pauses]).toEqual(['settlement_failed', [expected]])
  })
})

describe('the header of a payment', () => {
  test.each(['request', 'fetch'] as const)(
    'is PAYMENT-SIGNATURE if client.%s signs once, whether or not the caller sets Authorization',
    async (by) => {
      const seen: (string | undefined)[][] = []
      const url = await serve((request, response) => {
        const { authorization, 'payment-signature': payment } = request.headers
        if (payment === undefined)
          return answerJson(response, 402, challengeFor(`http://${request.headers.host}${request.url}`))
        seen.push([authorization, typeof payment])
        serveReceipt(request, response, 1)
      })
      const client = clientOf({ split: 'onchain' })
      await client[by](url)
      await client[by](url, { headers: { authorization: 'Bearer mine' } })
      await client[by](url, { headers: { authorization: 'Basic bWluZQ==' } })
      expect(seen).toEqual([
        [undefined, 'string'],
        ['Bearer mine', 'string'],
        ['Basic bWluZQ==', 'string'],
      ])
    },
  )

  test('is Authorization if the client signs twice, but never replaces the caller’s own Authorization', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const { payment } = await clientOf().request(url)
    expect(paidHeaders[0]).toMatch(/^x402 /)
    if (!payment) throw new Error('it must be paid')
    const headers = { authorization: 'Bearer mine' }
    await expect(clientOf().request(url, { headers, payment })).rejects.toThrow(/Authorization/)
    expect(paidHeaders).toHaveLength(1)
  })
})
