import { describe, expect, test, vi } from 'vitest'
import receipts from '../../../test/vectors/receipts.json' with { type: 'json' }
import {
  account,
  answerJson,
  challengeFor,
  clientOf,
  errorOf,
  fetchWithKeys,
  forgedReceipt,
  gatewayUrl,
  onlySpecFields,
  playProvider,
  presentedIn,
  receipt,
  receiptOfAnother,
  serveReceipt,
  settledReceipt,
  signerOf,
  walletPrivateKey,
} from '../../test/playProvider.ts'
import { readBody, serve } from '../../test/serve.ts'
import { boundNonce, type Challenge, challengeMediaType, feeNonce } from '../protocol/challenge.ts'
import { splitterFactory } from '../protocol/deployments.ts'
import { parsePayload } from '../protocol/payload.ts'
import { splitterAddress } from '../protocol/splitter.ts'
import { createClient } from './createClient.ts'
import type { PaidReceipt } from './receipts.ts'

const nonce = boundNonce(gatewayUrl, `req_${'0'.repeat(32)}`)

describe('request', () => {
  test('default: pays what a 402 requests, and returns the data, the receipt and the payment', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const result = await clientOf().request<{ sunny: boolean }>(`${url}/weather`)
    expect(result).toMatchObject({
      data: { sunny: true },
      status: 200,
      receipt,
      paymentTxHash: undefined,
      paymentId: receipts.receipts[0]?.claims.paymentId,
      payment: { network: 'base', amount: 50_000n, requestId: `req_${'0'.repeat(32)}` },
    })
    expect(paidHeaders).toHaveLength(1)
  })

  test.each([
    ['if the option says so', { split: 'onchain' }, {}],
    ['if the provider asks for one signature', {}, { signatures: 'one' }],
  ] as const)(
    'args: signs one authorization of the whole price to the splitter %s',
    async (_, options, asked) => {
      const challenged = (challenge: Challenge) => ({ ...challenge, ...asked })
      const { url, paidHeaders } = await playProvider(serveReceipt, challenged)
      const { payment } = await clientOf(options).request(`${url}/weather`)
      const presented = presentedIn(paidHeaders[0])
      expect(presented).toEqual(payment?.payloads.map(parsePayload))
      expect(presented).toMatchObject([
        {
          to: splitterAddress({
            provider: `0x${'b'.repeat(40)}`,
            platform: `0x${'c'.repeat(40)}`,
            factory: splitterFactory,
            providerShare: 19n,
            platformShare: 1n,
          }),
          value: 50_000n,
          nonce,
        },
      ])
    },
  )

  test('behavior: passes each receipt to onReceipt, even the receipt of an error response, and returns the response even if onReceipt throws', async () => {
    const { url } = await playProvider((_request, response, attempt) => {
      response.setHeader('service-receipt', attempt === 2 ? forgedReceipt : receipt)
      response.statusCode = attempt === 3 ? 404 : 200
      response.end('{}')
    })
    const kept: PaidReceipt[] = []
    const onReceipt = async (paid: PaidReceipt) => {
      kept.push(paid)
      if (kept.length === 1) throw new Error('the disk is full')
    }
    const first = await clientOf({ onReceipt }).request(`${url}/weather`)
    expect(first).toMatchObject({ status: 200, receipt, receiptError: new Error('the disk is full') })
    const second = await clientOf({ onReceipt }).request(`${url}/weather`)
    expect(second.receiptError).toBeUndefined()
    await expect(clientOf({ onReceipt }).request(`${url}/weather`)).rejects.toMatchObject({ status: 404 })
    const paidFor = { url: `${url}/weather` }
    expect(kept).toEqual([
      { ...paidFor, receipt, paymentId: first.paymentId },
      { ...paidFor, receipt: forgedReceipt, paymentId: undefined },
      { ...paidFor, receipt, paymentId: first.paymentId },
    ])
  })

  test('args: signs two authorizations if the client’s option says so, although the provider asks for one signature', async () => {
    const { url } = await playProvider(serveReceipt, (challenge) => ({ ...challenge, signatures: 'one' }))
    const { payment } = await clientOf({ split: 'separate' }).request(`${url}/weather`)
    expect(payment?.payloads).toHaveLength(2)
  })

  test('behavior: adds the challenge’s media type to the Accept header of the caller', async () => {
    const asked: unknown[] = []
    const url = await serve((request, response) => {
      asked.push(request.headers.accept)
      answerJson(response, 200, {})
    })
    await clientOf().request(url)
    await clientOf().request(url, { headers: { Accept: 'text/csv' } })
    expect(asked).toEqual([`*/*, ${challengeMediaType}`, `text/csv, ${challengeMediaType}`])
  })

  test('behavior: signs the provider’s payment first and the platform’s payment second, with the challenge’s nonces', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const before = BigInt(Math.floor(Date.now() / 1000))
    await clientOf().request(`${url}/weather`)
    expect(paidHeaders[0]).toMatch(/^x402 AgEA:/)
    const presented = presentedIn(paidHeaders[0])
    expect(presented).toMatchObject([
      { to: `0x${'b'.repeat(40)}`, value: 47_500n, validAfter: 0n, nonce },
      { to: `0x${'c'.repeat(40)}`, value: 2_500n, validAfter: 0n, nonce: feeNonce(nonce) },
    ])
    for (const half of presented) {
      expect(half.validBefore - before).toBeGreaterThanOrEqual(93_600n)
      expect(half.validBefore - before).toBeLessThan(93_700n)
      expect(await signerOf(half)).toBe(account.address)
    }
  })

  test('behavior: pays a challenge that has only the fields of the specification, and signs the same nonces each time it pays that challenge', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt, onlySpecFields)
    const now = Math.floor(Date.now() / 1000)
    expect(await clientOf().request(url)).toMatchObject({ receipt, payment: { amount: 50_000n } })
    await clientOf().request(url)
    const [first, again] = paidHeaders.map(presentedIn)
    expect(first?.map((half) => half.nonce)).toEqual([nonce, feeNonce(nonce)])
    expect(again?.map((half) => half.nonce)).toEqual([nonce, feeNonce(nonce)])
    for (const half of first ?? []) {
      expect(Number(half.validBefore) - now).toBeGreaterThanOrEqual(3_600)
      expect(Number(half.validBefore) - now).toBeLessThan(3_700)
      expect(await signerOf(half)).toBe(account.address)
    }
  })

  test('behavior: returns the response of a free request', async () => {
    const url = await serve((_, response) => answerJson(response, 200, { free: true }))
    const unpaid = { data: { free: true }, receipt: undefined, payment: undefined }
    expect(await clientOf().request(url)).toMatchObject(unpaid)
  })

  test.each([
    ['returns the transaction that a receipt names', settledReceipt, `0x${'6'.repeat(64)}`],
    ['returns no transaction for a forged receipt', forgedReceipt, undefined],
    ['returns no transaction for the receipt of another payment', receiptOfAnother, undefined],
    ['returns no transaction for a text that is not a receipt', 'x.y.z', undefined],
  ])('behavior: %s', async (_, jws, transaction) => {
    const { url } = await playProvider((_, response) =>
      answerJson(response, 200, 1, { 'Service-Receipt': jws }),
    )
    const { data, receipt: shown, paymentId, paymentTxHash } = await clientOf().request(url)
    expect([data, shown, paymentTxHash]).toEqual([1, jws, transaction])
    expect(paymentId === undefined).toBe(transaction === undefined)
  })

  test('behavior: fetches the gateway’s receipt keys once, and returns the data even if the keys can’t be fetched', async () => {
    const { url } = await playProvider(serveReceipt)
    const asked: string[] = []
    const counting: typeof fetch = (input, init) => {
      if (String(input).endsWith('jwks.json')) asked.push(String(input))
      return fetchWithKeys(input, init)
    }
    const client = clientOf({ fetch: counting })
    for (let n = 0; n < 3; n++) expect((await client.request(url)).paymentId).toBeDefined()
    expect(asked).toEqual([`${gatewayUrl}/.well-known/jwks.json`])
    const without: typeof fetch = async (input, init) =>
      String(input).endsWith('jwks.json') ? new Response(null, { status: 503 }) : fetch(input, init)
    expect(await clientOf({ fetch: without }).request(url)).toMatchObject({
      data: { sunny: true },
      receipt,
      paymentId: undefined,
    })
  })

  test('args: maxResponseBytes limits an endless response', async () => {
    let written = 0
    let isClosed = false
    const url = await serve((_, response) => {
      response.writeHead(402)
      response.on('close', () => {
        isClosed = true
      })
      const write = () => {
        while (!isClosed && response.write('x'.repeat(10_000))) written += 10_000
      }
      response.on('drain', write)
      write()
    })
    const error = await errorOf(clientOf({ maxResponseBytes: 100_000 }).request(url))
    expect(error).toMatchObject({ name: 'HttpError', code: 'response_too_large', status: 402 })
    await expect.poll(() => isClosed).toBe(true)
    expect(written).toBeLessThan(50_000_000)
    const short = await serve((_, response) => response.end('x'.repeat(100_000)))
    expect((await clientOf({ maxResponseBytes: 100_000 }).request(short)).status).toBe(200)
  })

  test('args: sends the method, body and headers to a path on baseUrl', async () => {
    const seen: unknown[] = []
    const url = await serve(async (request, response) => {
      seen.push([
        request.method,
        request.url,
        request.headers['x-own'],
        request.headers['content-type'],
        await readBody(request),
      ])
      if (request.headers.authorization) serveReceipt(request, response, 1)
      else answerJson(response, 402, challengeFor(`http://${request.headers.host}/`))
    })
    const client = clientOf({ baseUrl: url })
    await client.request('/ask', { method: 'PUT', body: { question: 1 }, headers: { 'X-Own': 'kept' } })
    const sent = ['PUT', '/ask', 'kept', 'application/json', '{"question":1}']
    expect(seen).toEqual([sent, sent])
    await client.request('/ask', { body: 'plain' })
    expect(seen.at(-1)).toMatchObject(['POST', '/ask', undefined, 'text/plain;charset=UTF-8', 'plain'])
  })

  test('args: signs with an account instead of a key, and changes a signature’s v from 0 or 1 to 27 or 28', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const ledger = {
      address: account.address,
      signTypedData: async (typedData: Parameters<typeof account.signTypedData>[0]) => {
        const signature = await account.signTypedData(typedData)
        return `0x${signature.slice(2, 130)}0${Number.parseInt(signature.slice(130), 16) - 27}` as const
      },
    }
    const client = clientOf({ account: ledger })
    expect(client.address).toBe(account.address)
    await client.request(url)
    expect(paidHeaders[0]).toMatch(/(1b|1c)$/)
  })

  test('args: returns text as a string, other content as bytes, and null without a body', async () => {
    const bodies: [string, string | Uint8Array][] = [
      ['text/plain', 'hello'],
      ['application/octet-stream', Uint8Array.of(1, 2)],
      ['application/problem+json', '{"a":1}'],
      ['application/json', '{broken'],
      ['application/json', ''],
    ]
    const url = await serve((request, response) => {
      const [type, body] = bodies[Number(request.url?.slice(1))] ?? ['', '']
      response.writeHead(200, { 'content-type': type }).end(body)
    })
    const results = await Promise.all(bodies.map((_, index) => clientOf().request(`${url}/${index}`)))
    expect(results.map(({ data }) => data)).toEqual(['hello', Uint8Array.of(1, 2), { a: 1 }, '{broken', null])
  })

  test('behavior: reads responses in runtimes without iterable streams, such as Safari', async () => {
    const { url } = await playProvider(serveReceipt)
    const fetchInSafari: typeof fetch = async (input, init) => {
      const response = await fetchWithKeys(input, init)
      if (response.body) Object.defineProperty(response.body, Symbol.asyncIterator, { value: undefined })
      return response
    }
    const { data } = await clientOf({ fetch: fetchInSafari }).request(url)
    expect(data).toEqual({ sunny: true })
  })

  test('behavior: follows a redirect within the origin, with the payment', async () => {
    const paidHeaders: (string | undefined)[] = []
    const url = await serve((request, response) => {
      if (request.url === '/old') {
        response.writeHead(307, { location: '/new' }).end()
        return
      }
      paidHeaders.push(request.headers.authorization)
      if (request.headers.authorization) serveReceipt(request, response, 1)
      else answerJson(response, 402, challengeFor(`http://${request.headers.host}/new`))
    })
    expect((await clientOf().request(`${url}/old`)).receipt).toBe(receipt)
    expect(paidHeaders).toEqual([undefined, expect.stringMatching(/^x402 /)])
  })

  test('behavior: signs nothing in mock mode', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    await createClient({ gatewayUrl, account, network: 'localhost', mockPayments: true }).request(url)
    expect(paidHeaders).toEqual(['x402 mock:mock'])
  })
})

describe('guards', () => {
  const both = (change: object) => (challenge: Challenge) => ({
    ...challenge,
    accepts: challenge.accepts.map((entry) => ({ ...entry, ...change })),
  })
  test.each<[string, (challenge: Challenge) => unknown]>([
    ['another origin', both({ resource: 'https://evil.example/' })],
    ['another port', both({ resource: 'http://127.0.0.1/' })],
    ['a resource that is not a URL', both({ resource: '/weather' })],
    ['another network', both({ network: 'ethereum' })],
    ['another token', both({ asset: `0x${'e'.repeat(40)}` })],
    ['another token name in the EIP-712 domain', both({ extra: { name: 'USDC', version: '2' } })],
    ['another token version in the EIP-712 domain', both({ extra: { name: 'USD Coin', version: '1' } })],
    ['another gateway', (challenge) => ({ ...challenge, issuer: 'https://gateway.example.evil' })],
    ['a single entry in accepts', ({ accepts, ...rest }) => ({ ...rest, accepts: accepts.slice(0, 1) })],
    ['three entries in accepts', ({ accepts, ...rest }) => ({ ...rest, accepts: [...accepts, accepts[1]] })],
    ['a text in place of its fields', () => 'Payment Required'],
  ])('error: refuses a challenge with %s', async (_, change) => {
    const { url, paidHeaders } = await playProvider(serveReceipt, change)
    const error = await errorOf(clientOf().request(url))
    expect(error).toMatchObject({ name: 'ChallengeRefusedError', code: 'challenge_refused', status: 402 })
    // Conformance 7-7 requires this message for a wrong network and for a wrong gateway URL.
    expect(error.message).toMatch(/^Payment verification failed \(402\)/)
    expect(paidHeaders).toEqual([])
  })

  test('error: refuses the challenge of another origin after a redirect, even if the challenge names the requested origin', async () => {
    let own = ''
    const signTypedData = vi.fn(account.signTypedData)
    const stranger = await serve((_, response) => answerJson(response, 402, challengeFor(own)))
    const url = await serve((_, response) => response.writeHead(302, { location: stranger }).end())
    own = url
    const client = clientOf({ account: { ...account, signTypedData } })
    const error = await errorOf(client.request(url))
    expect(error).toMatchObject({ code: 'challenge_refused' })
    expect(error.message).toContain(`${url} redirected to ${stranger}`)
    expect(signTypedData).not.toHaveBeenCalled()
  })

  test('behavior: accepts the gateway’s URL in another spelling', async () => {
    const { url } = await playProvider(serveReceipt)
    await clientOf({ gatewayUrl: 'https://GATEWAY.example:443/', baseUrl: url }).request('/')
  })

  test('behavior: limits the validity of a signature to 26 hours, whatever the challenge requests', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt, both({ maxTimeoutSeconds: 10 ** 9 }))
    await clientOf().request(url)
    const latest = BigInt(Math.ceil(Date.now() / 1000)) + 93_600n
    for (const half of presentedIn(paidHeaders[0])) expect(half.validBefore).toBeLessThanOrEqual(latest)
  })

  test('args: limits the validity of a signature to maxValiditySeconds', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt, both({ maxTimeoutSeconds: 93_600 }))
    const before = BigInt(Math.floor(Date.now() / 1000))
    await clientOf({ maxValiditySeconds: 3_600 }).request(url)
    await clientOf({ maxValiditySeconds: 3_600.5 }).request(url)
    for (const { validBefore } of paidHeaders.flatMap(presentedIn)) {
      expect(validBefore).toBeGreaterThanOrEqual(before + 3_600n)
      expect(validBefore).toBeLessThan(before + 3_700n)
    }
    for (const maxValiditySeconds of [269, 0, Number.NaN])
      expect(() => clientOf({ maxValiditySeconds })).toThrow('maxValiditySeconds must be 270 or more')
  })
})

describe('refusals', () => {
  test.each([
    [402, 'insufficient_balance', 'InsufficientBalanceError', 'Insufficient USDC balance'],
    [402, 'macaroon_expired', 'PaymentVerificationError', 'Payment verification failed'],
    [402, 'invalid_signature', 'PaymentVerificationError', 'Payment verification failed'],
    [409, 'payment_replayed', 'PaymentReplayedError', 'already used'],
    [422, 'network_not_served', 'HttpError', 'status 422'],
    [503, 'dependency_unavailable', 'HttpError', 'status 503'],
  ])('error: reports a refusal with status %i and code %s', async (status, code, name, message) => {
    const provider = await playProvider((_, response) =>
      answerJson(response, status, { code, detail: 'because', paymentId: 'pay_1' }),
    )
    const error = await errorOf(clientOf().request(provider.url))
    expect(error).toMatchObject({ name, code, status, paymentId: 'pay_1', payment: { amount: 50_000n } })
    expect(error.message).toContain(message)
    expect(error.message).toContain('because')
    if (status === 402) expect(error.message).toContain('402')
    // The client signs only once. After a 503, the outcome isn't known, so the client sends the same payment three times in all.
    expect(new Set(provider.paidHeaders).size).toBe(1)
    expect(provider.requests()).toBe(status === 503 ? 4 : 2)
  })

  test('error: reports a refusal without a code', async () => {
    const { url } = await playProvider((_, response) => response.writeHead(402).end())
    expect(await errorOf(clientOf().request(url))).toMatchObject({ code: 'payment_refused', status: 402 })
  })

  test('error: reports that the handler failed and the payment was voided', async () => {
    const { url } = await playProvider((_, response) =>
      answerJson(response, 500, {}, { 'Service-Payment-Id': 'pay_2', 'Service-Payment-Status': 'voided' }),
    )
    const error = await errorOf(clientOf().request(url))
    expect(error).toMatchObject({ code: 'http_error', status: 500, paymentId: 'pay_2' })
    expect(error.message).toContain('voided')
  })

  test('error: reports a 404 before any payment', async () => {
    const url = await serve((_, response) => response.writeHead(404).end('no'))
    const error = await errorOf(clientOf().request(url))
    expect(error).toMatchObject({ code: 'http_error', status: 404, payment: undefined })
  })
})

describe('secrets', () => {
  test('behavior: never logs a key or a signature, even with debug', async () => {
    const debug = vi.spyOn(console, 'debug').mockImplementation(() => {})
    const { url, paidHeaders } = await playProvider(serveReceipt)
    await clientOf({ debug: true }).request(url)
    const log = debug.mock.calls.flat().join('\n')
    debug.mockRestore()
    expect(log).toContain('402')
    expect(log).not.toContain(walletPrivateKey.slice(2))
    for (const part of paidHeaders[0]?.split(/[:,]/).filter(({ length }) => length > 100) ?? []) {
      expect(log).not.toContain(part)
    }
  })

  test('error: does not include a malformed key in the message', () => {
    const wrong = `${walletPrivateKey}ff`
    expect(() => clientOf({ walletPrivateKey: wrong })).toThrow(/walletPrivateKey/)
    expect(() => clientOf({ walletPrivateKey: wrong })).not.toThrow(new RegExp(walletPrivateKey.slice(2)))
    // This value has as many digits as a key, but is larger than the curve's order.
    expect(() => clientOf({ walletPrivateKey: `0x${'f'.repeat(64)}` })).toThrow(/^walletPrivateKey/)
    expect(() => clientOf({ walletPrivateKey: undefined })).toThrow(/^walletPrivateKey/)
  })

  test('error: rejects invalid options', () => {
    expect(() => clientOf({ network: 'solana' as 'base' })).toThrow(/solana/)
    expect(() => clientOf({ network: 'localhost' })).toThrow(/usdcAddress/)
    expect(() => clientOf({ gatewayUrl: 'gateway' })).toThrow(/gatewayUrl/)
    expect(() => clientOf({ baseUrl: 'api.example' })).toThrow(/baseUrl/)
    expect(() => clientOf({ limits: { perPayment: '0.0000001' } })).toThrow(/decimals/)
  })
})

test.each([
  ['a path that leads to another host', '//evil.example/x', {}, /path on https:\/\/gateway\.example/],
  [
    'a path with a backslash that leads to another host',
    '/\\evil.example/x',
    {},
    /path on https:\/\/gateway\.example/,
  ],
  ['another scheme', 'data:text/plain,hello', {}, /http\(s\) URL/],
  ['credentials in the URL', 'https://user:secret@api.example', {}, /^A URL that contains credentials/],
  ['GET with a body', '/', { method: 'GET', body: {} }, /GET request has no body/],
  ['a form', '/', { body: new URLSearchParams({ a: '1' }) }, /got URLSearchParams/],
  ['bytes', '/', { body: new Uint8Array(1) }, /got Uint8Array/],
  ['a stream', '/', { body: new ReadableStream() }, /got ReadableStream/],
] as const)('error: rejects a request that can’t be sent: %s', async (_, path, options, message) => {
  const fetch = vi.fn()
  const request = clientOf({ fetch }).request(path, options)
  await expect(request).rejects.toThrow(TypeError)
  await expect(request).rejects.toThrow(message)
  expect(fetch).not.toHaveBeenCalled()
})

describe('options', () => {
  test.each([
    ['gatewayUrl', 'localhost:4020'],
    ['gatewayUrl', 'ftp://gateway.example'],
    ['gatewayUrl', undefined],
    ['baseUrl', 'api.example'],
    ['facilitatorUrl', 'ws://facilitator.example'],
  ])('error: rejects %s if its value is %s', (name, value) => {
    const message = `${name} must be an http(s) URL like https://gateway.example, got ${value}`
    expect(() => clientOf({ [name]: value })).toThrow(new TypeError(message))
  })

  test.each([undefined, null, 1, 'Base'])(
    'error: rejects the network %s, and lists the existing networks',
    (network) => {
      const message = /^Expected one of .*base.*, got (undefined|null|1|"Base")$/
      expect(() => clientOf({ network: network as never })).toThrow(message)
    },
  )
})
