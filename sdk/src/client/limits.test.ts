import type { IncomingMessage } from 'node:http'
import { beforeEach, describe, expect, test, vi } from 'vitest'
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
import { serve } from '../../test/serve.ts'
import type { ClientOptions, PaidResponse } from './createClient.ts'
import { type ClientError, RequestTimeoutError } from './errors.ts'
import type { ProposedPayment } from './limits.ts'
import { createDailySums, createSpendingMemory, type SpendingStore } from './spending.ts'

// Each request costs 0.05 USDC.

const signTypedData = vi.fn(account.signTypedData)
beforeEach(() => {
  signTypedData.mockClear()
})

/** Returns a client, and counts its signatures. Each payment has two signatures. */
const buyerOf = (options: Partial<ClientOptions>, more: Partial<ClientOptions> = {}) =>
  clientOf({ account: { ...account, signTypedData }, ...options, ...more })

const signedPayments = () => signTypedData.mock.calls.length / 2

/** Returns how many of several concurrent requests were paid, and the errors of the requests that were not paid. */
async function outcomesOf(requests: Promise<PaidResponse>[]) {
  const settled = await Promise.allSettled(requests)
  const refusals = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason as ClientError] : []))
  return { paid: requests.length - refusals.length, refusals }
}

/** Makes the provider's server available to the client under another host name. */
const atHost =
  (real: string): typeof fetch =>
  async (input, init) => {
    const { protocol, host, pathname } = new URL(String(input))
    const headers = new Headers(init?.headers)
    headers.set('x-host', `${protocol}//${host}`)
    return fetch(new URL(pathname, real), { ...init, headers })
  }

/** Starts a provider, and returns a `fetch` that reaches it under any host name. */
async function playHosts() {
  const url = await serve((request: IncomingMessage, response) => {
    if (request.headers.authorization) serveReceipt(request, response, 1)
    else answerJson(response, 402, challengeFor(`${request.headers['x-host']}${request.url}`))
  })
  // The responses have no URL, as in tests and behind proxies.
  return async (input: Parameters<typeof fetch>[0], init?: RequestInit) => {
    const answer = await atHost(url)(input, init)
    return new Response(answer.body, answer)
  }
}

describe('amounts', () => {
  test('args: perPayment limits the sum of both authorizations', async () => {
    const { url } = await playProvider(serveReceipt)
    const error = await errorOf(buyerOf({ limits: { perPayment: '0.049999' } }).request(url))
    expect(error).toMatchObject({
      name: 'ChallengeRefusedError',
      code: 'spending_limit_exceeded',
      status: 402,
    })
    expect(error.message).toContain('asks for 0.050000 USDC, but limits.perPayment is 0.049999')
    expect(signedPayments()).toBe(0)
    await buyerOf({ limits: { perPayment: '0.05' } }).request(url)
    expect(signedPayments()).toBe(1)
  })

  test('behavior: pays exactly 10 of 100 concurrent calls if the budget covers 10', async () => {
    const provider = await playProvider(serveReceipt)
    const client = buyerOf({ limits: { perDay: '0.549999' } })
    const { paid, refusals } = await outcomesOf(
      Array.from({ length: 100 }, () => client.request(provider.url)),
    )
    expect([paid, signedPayments(), provider.paidHeaders.length]).toEqual([10, 10, 10])
    expect(new Set(refusals.map(({ code }) => code))).toEqual(new Set(['spending_limit_exceeded']))
    expect(refusals[0]?.message).toContain('limits.perDay is 0.549999, of which 0.500000 is already spent')
  })

  test('behavior: applies limits.perDayAndHost to a host in any spelling, and leaves the rest of limits.perDay to other hosts', async () => {
    const fetch = await playHosts()
    const client = buyerOf({ limits: { perDay: '0.25', perDayAndHost: '0.10' } }, { fetch })
    const spellings = [
      'https://api.example/a',
      'https://API.EXAMPLE/b',
      'https://api.example:443/c',
      'https://api.example:8443/d',
      'http://api.example/e',
      'https://api.example./f',
    ]
    const { paid, refusals } = await outcomesOf(spellings.map((url) => client.request(url)))
    expect(paid).toBe(2)
    expect(refusals.map(({ message }) => message)).toEqual(
      Array(4).fill(
        expect.stringContaining('limits.perDayAndHost is 0.100000, of which 0.100000 is already spent'),
      ),
    )
    const others = [1, 2, 3, 4, 5].map((n) => client.request(`https://${n}.example/`))
    expect((await outcomesOf(others)).paid).toBe(3)
    expect(signedPayments()).toBe(5)
  })

  test.each([
    [
      'the local machine',
      [
        ...[
          'http://localhost:1/',
          'http://127.0.0.1:2/',
          'http://127.1/',
          'http://127.8.8.8/',
          'http://0.0.0.0/',
        ],
        ...['http://[::1]:3/', 'http://[::]/', 'http://[::ffff:127.0.0.1]/', 'http://LOCALHOST./'],
        'http://api.localhost/',
      ],
    ],
    [
      'one IPv4 address',
      ['https://93.184.216.34/', 'https://[::ffff:93.184.216.34]/', 'https://[::FFFF:5DB8:D822]/'],
    ],
  ])('behavior: counts all names of %s as one host', async (_, urls) => {
    const client = buyerOf({ limits: { perDayAndHost: '0.05' } }, { fetch: await playHosts() })
    const { paid, refusals } = await outcomesOf(urls.map((url) => client.request(url)))
    expect([paid, refusals.length]).toEqual([1, urls.length - 1])
    expect((await outcomesOf([client.request('https://localhost.example/')])).paid).toBe(1)
    expect((await outcomesOf([client.request('https://127.0.0.1.example/')])).paid).toBe(1)
  })

  test('behavior: still counts an amount as spent after the signature was sent, whatever the seller responds', async () => {
    const answers: (typeof serveReceipt)[] = [
      (request) => request.socket.destroy(),
      (_, response) => answerJson(response, 503, { code: 'dependency_unavailable' }),
      (_, response) => answerJson(response, 402, { code: 'insufficient_balance' }),
      // The seller rejects the payment and sends a new challenge at the same price.
      (request, response) => answerJson(response, 402, challengeFor(`http://${request.headers.host}/`)),
      (_, response) => answerJson(response, 500, {}, { 'Service-Payment-Status': 'voided' }),
    ]
    for (const answer of answers) {
      const { url } = await playProvider(answer)
      const client = buyerOf({ limits: { perDay: '0.05' } })
      await expect(client.request(url)).rejects.toMatchObject({ payment: { amount: 50_000n } })
      const another = client.request(`${url}/another`)
      await expect(another).rejects.toMatchObject({ code: 'spending_limit_exceeded' })
    }
    expect(signedPayments()).toBe(answers.length)
  })

  test('behavior: does not count a payment again when it is presented again', async () => {
    const { url } = await playProvider((request, response, attempt) =>
      attempt < 4 ? request.socket.destroy() : serveReceipt(request, response, attempt),
    )
    const client = buyerOf({ limits: { perDay: '0.05' } })
    const { payment } = await errorOf(client.request(url))
    if (!payment) throw new Error('The error must carry the payment')
    expect((await client.request(url, { payment })).status).toBe(200)
  })

  test('behavior: releases the amount if no signature was sent because onPayment refused, the caller aborted, or signing took too long', async () => {
    const { url } = await playProvider(serveReceipt)
    const stores = { spending: createSpendingMemory() }
    const perDay = '0.05'
    const limits = { limits: { perDay }, stores }
    const failing = buyerOf(limits, {
      account: { ...account, signTypedData: () => Promise.reject(new Error('no')) },
    })
    await expect(failing.request(url)).rejects.toThrow()
    await expect(
      buyerOf({ stores, limits: { perDay, onPayment: () => false } }).request(url),
    ).rejects.toThrow('onPayment')
    const controller = new AbortController()
    const aborting = buyerOf({
      stores,
      limits: { perDay, onPayment: () => controller.abort(new Error('enough')) },
    })
    await expect(aborting.request(url, { signal: controller.signal })).rejects.toThrow('enough')
    const silent = buyerOf({ stores, limits: { perDay, onPayment: () => new Promise(() => {}) } })
    await expect(silent.request(url, { timeout: 200 })).rejects.toBeInstanceOf(RequestTimeoutError)
    await buyerOf(limits).request(url)
    await expect(buyerOf(limits).request(url)).rejects.toMatchObject({ code: 'spending_limit_exceeded' })
    expect(signedPayments()).toBe(1)
  })

  test('behavior: signs nothing if the store fails, or responds only after the caller has stopped waiting', async () => {
    const { url } = await playProvider(serveReceipt)
    const fail = () => Promise.reject(new Error('the disk is full'))
    const broken: SpendingStore = { reserve: fail, check: fail }
    const error = await errorOf(
      buyerOf({ limits: { perDay: '1' }, stores: { spending: broken } }).request(url),
    )
    expect(error).toMatchObject({ code: 'spending_store_failed', cause: new Error('the disk is full') })
    const released = vi.fn(async () => {})
    const late = Promise.withResolvers<void>()
    const asked = Promise.withResolvers<void>()
    const slow: SpendingStore = {
      reserve: () => {
        asked.resolve()
        return late.promise.then(() => ({ isReserved: true, release: released }))
      },
      check: async () => undefined,
    }
    const onPayment = vi.fn()
    const leaving = new AbortController()
    const request = buyerOf({ limits: { onPayment }, stores: { spending: slow } }).request(url, {
      signal: leaving.signal,
    })
    await asked.promise
    leaving.abort(new Error('too late'))
    await expect(request).rejects.toThrow('too late')
    late.resolve()
    await expect.poll(() => released.mock.calls.length).toBe(1)
    expect(onPayment).not.toHaveBeenCalled()
    expect(signedPayments()).toBe(0)
  })
})

test('args: pays only the hosts in limits.hosts, and sends only unpaid requests to other hosts', async () => {
  const fetch = await playHosts()
  const hosts = [
    'API.example',
    'port.example:8443',
    'http://plain.example',
    'http://[::1]:80',
    'dot.example.',
  ]
  const client = buyerOf({ limits: { hosts } }, { fetch })
  const codeOf = (url: string) =>
    client.request(url).then(
      () => 'paid',
      ({ code }) => code,
    )
  const urls = {
    'https://api.example/': 'paid',
    'https://api.example.:443/': 'paid',
    'https://dot.example/': 'paid',
    'https://port.example:8443/': 'paid',
    'http://plain.example/': 'paid',
    'http://[0:0::1]/': 'paid',
    // Over http, a man in the middle could be paid instead.
    'http://api.example/': 'host_not_allowed',
    'https://api.example:8443/': 'host_not_allowed',
    'https://port.example/': 'host_not_allowed',
    'https://plain.example/': 'host_not_allowed',
    'https://evil.api.example/': 'host_not_allowed',
    'https://api.example.evil.example/': 'host_not_allowed',
  }
  const codes = await Promise.all(Object.keys(urls).map(async (url) => [url, await codeOf(url)]))
  expect(Object.fromEntries(codes)).toEqual(urls)
  expect(signedPayments()).toBe(6)
  for (const host of ['', '*.example', 'ftp://a.example', 'a.example/path', 'user@a.example', 'a b']) {
    expect(() => clientOf({ limits: { hosts: [host] } }), host).toThrow(/^limits.hosts takes hosts/)
  }
})

test('args: passes the requested payment to onPayment before signing, and lets onPayment refuse the payment', async () => {
  const { url } = await playProvider(serveReceipt)
  const seen: [ProposedPayment, number][] = []
  const onPayment = async (payment: ProposedPayment) => {
    seen.push([{ ...payment }, signedPayments()])
    payment.amount = 0n
    if (seen.length === 2) throw new Error('ask my mother')
    return seen.length !== 3
  }
  const client = buyerOf({ limits: { onPayment } })
  expect((await client.request(`${url}/a`)).payment?.amount).toBe(50_000n)
  expect(seen).toEqual([
    [
      {
        url: `${url}/a`,
        host: '127.0.0.1',
        amount: 50_000n,
        network: 'base',
        payTo: `0x${'b'.repeat(40)}`,
        description: 'Provider payment',
        requestId: `req_${'0'.repeat(32)}`,
      },
      0,
    ],
  ])
  for (const message of [/onPayment refused the payment: ask my mother$/, /onPayment refused the payment$/]) {
    const error = await errorOf(client.request(url))
    expect(error).toMatchObject({ name: 'ChallengeRefusedError', code: 'payment_declined' })
    expect(error.message).toMatch(message)
  }
  expect(signedPayments()).toBe(1)
})

test('behavior: warns once per process about a client without limits', async () => {
  vi.resetModules()
  const { createClient } = await import('./createClient.ts')
  const shared = { gatewayUrl, walletPrivateKey, network: 'base' } as const
  const warn = vi.fn()
  for (const limit of [
    { limits: { perPayment: 1 } },
    { limits: { perDay: 0 } },
    { limits: { perDayAndHost: 1 } },
    { limits: { onPayment() {} } },
  ]) {
    createClient({ ...shared, ...limit, warn })
  }
  createClient({ ...shared, mockPayments: true, warn })
  expect(warn).not.toHaveBeenCalled()
  createClient({ ...shared, limits: { hosts: ['api.example'] }, warn })
  createClient({ ...shared, warn })
  expect(warn.mock.calls).toEqual([[expect.stringContaining('Set limits: { perPayment, perDay }')]])
  expect(warn.mock.calls.join()).not.toContain(walletPrivateKey.slice(2))
})

describe('the last 24 hours', () => {
  const dayMs = 86_400_000
  const host = 'api.example'

  test('behavior: counts any 24 hours as a day', () => {
    const sums = createDailySums()
    const claim = (at: number, amount = 5n) => sums.claim(`${at}`, { host, amount, at }, { perDay: 10n })
    expect(claim(0)).toBeUndefined()
    expect(claim(dayMs - 2)).toBeUndefined()
    expect(claim(dayMs - 1)).toEqual({ limit: 'perDay', spent: 10n })
    expect(claim(dayMs)).toBeUndefined()
    expect(claim(dayMs + 1)).toEqual({ limit: 'perDay', spent: 10n })
    expect(claim(2 * dayMs - 2)).toBeUndefined()
  })

  test('behavior: does not count a refused payment, and releases an amount only once', () => {
    const sums = createDailySums()
    const claim = (id: string, amount: bigint) =>
      sums.claim(id, { host, amount, at: 0 }, { perDay: 10n, perDayAndHost: 8n })
    expect(claim('a', 7n)).toBeUndefined()
    expect(claim('b', 2n)).toEqual({ limit: 'perDayAndHost', spent: 7n })
    expect(claim('c', 1n)).toBeUndefined()
    sums.release('a')
    sums.release('a')
    sums.release('b')
    expect(claim('d', 8n)).toEqual({ limit: 'perDayAndHost', spent: 1n })
    expect(claim('e', 7n)).toBeUndefined()
  })

  test('behavior: checks each payment against the limits of its own client, and counts the payment for all clients', () => {
    const sums = createDailySums()
    expect(sums.claim('a', { host, amount: 20n, at: 0 }, {})).toBeUndefined()
    expect(sums.claim('b', { host: 'b', amount: 1n, at: 0 }, { perDay: 20n })).toEqual({
      limit: 'perDay',
      spent: 20n,
    })
    expect(sums.claim('c', { host: 'b', amount: 1n, at: 0 }, { perDayAndHost: 1n })).toBeUndefined()
  })
})
