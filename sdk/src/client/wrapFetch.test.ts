import { describe, expect, onTestFinished, test, vi } from 'vitest'
import {
  account,
  answerJson,
  challengeFor,
  errorOf,
  fetchWithKeys,
  gatewayUrl,
  playProvider,
  receipt,
  serveReceipt,
  walletPrivateKey,
} from '../../test/playProvider.ts'
import { closedPort, readBody, serve } from '../../test/serve.ts'
import type { PaidReceipt } from './receipts.ts'
import { wrapFetch } from './wrapFetch.ts'

const signTypedData = vi.fn(account.signTypedData)

function payingFetch(
  options: Partial<Parameters<typeof wrapFetch>[1]> = {},
  inner: typeof fetch = fetchWithKeys,
) {
  signTypedData.mockClear()
  const payer = { address: account.address, signTypedData }
  return wrapFetch(inner, {
    gatewayUrl,
    account: payer,
    network: 'base',
    limits: { perPayment: '1' },
    ...options,
  })
}

/** A provider that records the requests it receives. A request that is paid is recorded twice: without and with the payment. */
async function playEcho() {
  const seen: unknown[] = []
  const url = await serve(async (request, response) => {
    const { method, headers } = request
    seen.push([method, headers['x-own'], headers['content-type']?.split(';')[0], await readBody(request)])
    if (headers.authorization) serveReceipt(request, response, 1)
    else answerJson(response, 402, challengeFor(`http://${headers.host}${request.url}`))
  })
  return { url, seen }
}

test('default: returns the paid response unchanged', async () => {
  const { url, paidHeaders } = await playProvider(serveReceipt)
  const response = await payingFetch()(`${url}/weather`)
  expect([response.status, response.url, response.bodyUsed]).toEqual([200, `${url}/weather`, false])
  expect(response.headers.get('service-receipt')).toBe(receipt)
  expect(await response.json()).toEqual({ sunny: true })
  expect(paidHeaders).toHaveLength(1)
})

test('behavior: streams the paid body: the caller reads the beginning before the server sends the end', async () => {
  let end = () => {}
  const { url } = await playProvider((_, response) => {
    response.writeHead(200).write('first')
    end = () => response.end('last')
  })
  const reader = (await payingFetch()(url)).body?.getReader()
  expect(new TextDecoder().decode((await reader?.read())?.value)).toBe('first')
  end()
  expect(new TextDecoder().decode((await reader?.read())?.value)).toBe('last')
})

test('behavior: sends a free request once, even if its body is a stream, and throws the errors that fetch throws', async () => {
  const bodies: string[] = []
  const url = await serve(async (request, response) => {
    bodies.push(await readBody(request))
    response.end('free')
  })
  const inner = vi.fn(fetch)
  const wrapped = payingFetch({}, inner)
  const body = new Blob(['streamed']).stream()
  expect(await (await wrapped(url, { method: 'POST', body, duplex: 'half' } as RequestInit)).text()).toBe(
    'free',
  )
  expect(await (await wrapped(new Request(url, { method: 'POST', body: 'text' }))).text()).toBe('free')
  expect(bodies).toEqual(['streamed', 'text'])
  expect(inner).toHaveBeenCalledTimes(2)
  const nobody = await closedPort()
  await expect(wrapped(nobody)).rejects.toThrow(new TypeError('fetch failed'))
  await expect(wrapped('http://user:secret@127.0.0.1/')).rejects.toThrow(TypeError)
})

const form = new FormData()
form.set('a', '1')
const streamed = () => new Blob(['streamed']).stream()
const posted = (body: BodyInit) => ({ method: 'POST', body, headers: { 'x-own': 'kept' } })

test.each<[string, (url: string) => Parameters<typeof fetch>, unknown[]]>([
  ['a URL', (url) => [new URL(url)], ['GET', undefined, undefined, '']],
  ['text', (url) => [url, posted('text')], ['POST', 'kept', 'text/plain', 'text']],
  ['bytes', (url) => [url, posted(new TextEncoder().encode('bytes'))], ['POST', 'kept', undefined, 'bytes']],
  ['a Blob', (url) => [url, posted(new Blob(['blob']))], ['POST', 'kept', undefined, 'blob']],
  [
    'URLSearchParams',
    (url) => [url, posted(new URLSearchParams({ a: '1' }))],
    ['POST', 'kept', 'application/x-www-form-urlencoded', 'a=1'],
  ],
  [
    'a form',
    (url) => [url, posted(form)],
    ['POST', 'kept', 'multipart/form-data', expect.stringContaining('"a"')],
  ],
  ['a Request', (url) => [new Request(url, posted('text'))], ['POST', 'kept', 'text/plain', 'text']],
  [
    'a Request whose body is a stream',
    (url) => [new Request(url, { ...posted(streamed()), duplex: 'half' } as RequestInit)],
    ['POST', 'kept', undefined, 'streamed'],
  ],
  [
    'a Request whose headers and body are replaced',
    (url) => [new Request(url, posted('text')), { headers: { 'x-own': 'new' }, body: 'other' }],
    ['POST', 'new', 'text/plain', 'other'],
  ],
])(
  'args: sends the same method, headers and body with and without the payment if the caller passes %s',
  async (_, argumentsFor, sent) => {
    const { url, seen } = await playEcho()
    const response = await payingFetch()(...argumentsFor(url))
    expect(response.status).toBe(200)
    expect(seen).toEqual([sent, sent])
  },
)

test.each([
  ['missing', {}],
  ['known', { 'content-type': 'multipart/form-data; boundary=b' }],
])(
  'behavior: if the runtime can’t read a form, sends the form unchanged (the form’s content type is %s)',
  async (_, headers) => {
    // Behaves like the Response of whatwg-fetch in React Native.
    class FormResponse extends Response {
      constructor(body?: BodyInit | null, init?: ResponseInit) {
        super(body instanceof FormData ? null : body, body instanceof FormData ? { headers } : init)
        if (!(body instanceof FormData)) return
        this.arrayBuffer = () => {
          throw new Error('could not read FormData body as blob')
        }
      }
    }
    const { url, seen } = await playEcho()
    const inner = vi.fn(fetch)
    const wrapped = payingFetch({}, inner)
    vi.stubGlobal('Response', FormResponse)
    onTestFinished(() => void vi.unstubAllGlobals())
    const response = await wrapped(url, { method: 'POST', body: form })
    expect(response.status).toBe(200)
    expect(inner.mock.calls.map(([, init]) => init?.body)).toEqual([form, form])
    expect(seen).toHaveLength(2)
  },
)

test.each([
  ['a stream', streamed],
  [
    'an iterable',
    async function* () {
      yield new TextEncoder().encode('streamed')
    },
  ],
])('error: does not pay for %s, which can’t be sent again', async (_, body) => {
  const { url, seen } = await playEcho()
  const init = { method: 'POST', body: body(), duplex: 'half' } as unknown as RequestInit
  const error = await errorOf(payingFetch()(url, init))
  expect(error).toMatchObject({ name: 'ChallengeRefusedError', code: 'body_not_replayable' })
  expect(seen).toEqual([['POST', undefined, undefined, 'streamed']])
  expect(signTypedData).not.toHaveBeenCalled()
})

describe('402', () => {
  test('behavior: returns a 402 unchanged if it contains no challenge', async () => {
    const url = await serve((_, response) => answerJson(response, 402, { upgrade: 'to gold' }))
    const response = await payingFetch()(url)
    expect([response.status, response.bodyUsed, await response.json()]).toEqual([
      402,
      false,
      { upgrade: 'to gold' },
    ])
  })

  test('behavior: forwards a payment that the caller presents', async () => {
    const { url, paidHeaders } = await playProvider((request, response) =>
      answerJson(response, 402, challengeFor(`http://${request.headers.host}/`)),
    )
    for (const presented of ['x402 a:b', 'X402 a:b']) {
      expect((await payingFetch()(url, { headers: { authorization: presented } })).status).toBe(402)
    }
    expect(paidHeaders).toEqual(['x402 a:b', 'X402 a:b'])
    expect(signTypedData).not.toHaveBeenCalled()
  })

  test('behavior: returns the response after payment, whatever its status', async () => {
    const statuses = [402, 404, 500, 503]
    for (const status of statuses) {
      const { url, requests } = await playProvider((request, response) =>
        answerJson(response, status, challengeFor(`http://${request.headers.host}/`)),
      )
      const response = await payingFetch()(url)
      expect([response.status, (await response.json()).x402Version]).toEqual([status, 1])
      expect([requests(), signTypedData.mock.calls.length]).toEqual([status === 503 ? 4 : 2, 2])
    }
  })

  test.each([
    ['without a body', {}],
    // The digest of this body takes longer than the caller's next request.
    ['with a body', { method: 'POST', body: new Uint8Array(1_000) }],
  ])(
    'behavior: repeats a request %s with the same payment after its paid response broke off',
    async (_, init) => {
      const { url, paidHeaders } = await playProvider((request, response, attempt) => {
        if (attempt > 1) return serveReceipt(request, response, attempt)
        response.writeHead(200, { 'content-length': '100' })
        response.write('half', () => request.socket.destroy())
      })
      const wrapped = payingFetch({ split: 'onchain' })
      const broken = await wrapped(url, init)
      expect(broken.status).toBe(200)
      await expect(broken.text()).rejects.toThrow()
      expect(await (await wrapped(url, init)).json()).toEqual({ sunny: true })
      expect([paidHeaders.length, new Set(paidHeaders).size, signTypedData.mock.calls.length]).toEqual([
        2, 1, 1,
      ])
      await (await wrapped(url, init)).text()
      expect(signTypedData).toHaveBeenCalledTimes(2)
    },
  )

  test('behavior: after a broken response, presents the payment again with an equal request, but not with a range request', async () => {
    const { url, paidHeaders } = await playProvider((request, response, attempt) => {
      if (request.headers.range || attempt > 1) return serveReceipt(request, response, attempt)
      response.writeHead(200, { 'content-length': '100' })
      response.write('half', () => request.socket.destroy())
    })
    const wrapped = payingFetch({ split: 'onchain' })
    await expect((await wrapped(url)).text()).rejects.toThrow()
    expect(signTypedData).toHaveBeenCalledTimes(1)
    await (await wrapped(url, { headers: { range: 'bytes=4-' } })).text()
    expect(signTypedData).toHaveBeenCalledTimes(2)
    await (await wrapped(url)).text()
    expect([paidHeaders.length, signTypedData.mock.calls.length]).toEqual([3, 2])
  })

  test('behavior: streams the body of a request to another URL while a payment’s outcome is unknown', async () => {
    const broken = await playProvider((request, response) => {
      response.writeHead(200, { 'content-length': '100' })
      response.write('half', () => request.socket.destroy())
    })
    const free = await serve((_, response) => response.end('free'))
    const wrapped = payingFetch({ split: 'onchain' })
    await expect((await wrapped(broken.url)).text()).rejects.toThrow()
    const endless = new ReadableStream({ start: (controller) => controller.enqueue(new Uint8Array(1)) })
    const request = new Request(free, { method: 'POST', body: endless, duplex: 'half' } as RequestInit)
    const response = await wrapped(request)
    expect(response.status).toBe(200)
  })

  test('behavior: pays again for the next request if the caller stopped reading on purpose', async () => {
    const { url, paidHeaders } = await playProvider((request, response, attempt) => {
      if (attempt > 1) return serveReceipt(request, response, attempt)
      response.writeHead(200).write('first')
    })
    const wrapped = payingFetch({ split: 'onchain' })
    const leaving = new AbortController()
    const reader = (await wrapped(url, { signal: leaving.signal })).body?.getReader()
    await reader?.read()
    const rest = reader?.read()
    leaving.abort()
    await expect(rest).rejects.toThrow()
    expect(await (await wrapped(url)).json()).toEqual({ sunny: true })
    expect(paidHeaders).toHaveLength(2)
    expect(signTypedData).toHaveBeenCalledTimes(2)
  })

  test('behavior: applies the limits of a client: pays 10 of 30 concurrent calls if the budget covers 10', async () => {
    const { url, paidHeaders } = await playProvider(serveReceipt)
    const wrapped = payingFetch({ limits: { perDay: '0.50' } })
    const calls = Array.from({ length: 30 }, () =>
      wrapped(url).then(
        ({ status }) => status,
        ({ code }) => code,
      ),
    )
    expect((await Promise.all(calls)).sort()).toEqual([
      ...Array(10).fill(200),
      ...Array(20).fill('spending_limit_exceeded'),
    ])
    expect([paidHeaders.length, signTypedData.mock.calls.length]).toEqual([10, 20])
  })

  test('behavior: follows a redirect within the origin, according to the caller’s option', async () => {
    const url = await serve((request, response) => {
      if (request.url === '/old') response.writeHead(307, { location: '/new' }).end()
      else if (request.url === '/away') response.writeHead(307, { location: `${stranger}/` }).end()
      else if (request.headers.authorization) serveReceipt(request, response, 1)
      else answerJson(response, 402, challengeFor(`http://${request.headers.host}/new`))
    })
    const stranger = await serve((_, response) => answerJson(response, 402, challengeFor(`${url}/away`)))
    const wrapped = payingFetch()
    const response = await wrapped(`${url}/old`)
    expect([response.status, response.url, response.redirected]).toEqual([200, `${url}/new`, true])
    expect((await wrapped(`${url}/old`, { redirect: 'manual' })).status).toBe(307)
    await expect(wrapped(`${url}/old`, { redirect: 'error' })).rejects.toThrow('fetch failed')
    expect(await errorOf(wrapped(`${url}/away`))).toMatchObject({ code: 'challenge_refused' })
    expect(signTypedData).toHaveBeenCalledTimes(2)
  })
})

describe('faults', () => {
  test('behavior: repeats the payment and the body after a broken connection and a pending settlement', async () => {
    const bodies: string[] = []
    const paid: (string | undefined)[] = []
    const url = await serve(async (request, response) => {
      const body = await readBody(request)
      const { authorization, host } = request.headers
      if (!authorization) return answerJson(response, 402, challengeFor(`http://${host}/`))
      bodies.push(body)
      if (paid.push(authorization) === 1) return request.socket.destroy()
      const pending = { code: 'settlement_pending' }
      if (paid.length === 2) return answerJson(response, 503, pending, { 'retry-after': '0' })
      serveReceipt(request, response, 1)
    })
    const response = await payingFetch()(new Request(url, { method: 'POST', body: 'same' }))
    expect(await response.json()).toEqual({ sunny: true })
    expect([bodies, new Set(paid).size]).toEqual([['same', 'same', 'same'], 1])
  })

  test('error: times out if a settlement stays pending, with the payment in the error', async () => {
    const { url, paidHeaders } = await playProvider((_, response) =>
      answerJson(response, 503, { code: 'settlement_pending' }, { 'retry-after': '0' }),
    )
    const error = await errorOf(payingFetch({ pendingTimeout: 600 })(url))
    expect(error).toMatchObject({
      name: 'RequestTimeoutError',
      code: 'timeout',
      payment: { amount: 50_000n },
    })
    expect(new Set(paidHeaders).size).toBe(1)
    expect(paidHeaders.length).toBeGreaterThan(1)
  })

  test('error: times out if the seller reports a pending settlement once and then stops responding', async () => {
    const { url, paidHeaders } = await playProvider((_, response, attempt) => {
      if (attempt === 1) answerJson(response, 503, { code: 'settlement_pending' }, { 'retry-after': '0' })
    })
    const error = await errorOf(payingFetch({ pendingTimeout: 600 })(url))
    expect(error).toMatchObject({ code: 'timeout', payment: { amount: 50_000n } })
    expect(paidHeaders).toHaveLength(2)
  })

  test('behavior: does not apply the timeout of a pending settlement to the body that follows', async () => {
    const finished = Promise.withResolvers<void>()
    const { url } = await playProvider(async (_, response, attempt) => {
      if (attempt === 1) {
        answerJson(response, 503, { code: 'settlement_pending' }, { 'retry-after': '0' })
        return
      }
      response.writeHead(200, { 'content-type': 'text/plain' }).write('half, ')
      await finished.promise
      response.end('whole')
    })
    const pendingTimeout = 500
    const response = await payingFetch({ pendingTimeout })(url)
    const isOver = AbortSignal.timeout(pendingTimeout)
    isOver.addEventListener('abort', () => finished.resolve())
    expect(await response.text()).toBe('half, whole')
  })

  test('error: fails if the connection keeps breaking, with the payment in the error', async () => {
    const { url, paidHeaders } = await playProvider((request) => request.socket.destroy())
    expect(await errorOf(payingFetch()(url))).toMatchObject({
      code: 'network_error',
      payment: { amount: 50_000n },
    })
    expect([paidHeaders.length, new Set(paidHeaders).size]).toEqual([3, 1])
  })

  test.each(['init', 'Request'])(
    'args: if the signal in the %s argument fires, throws the signal’s reason or, once the payment was sent, an error that contains the payment',
    async (kind) => {
      const reason = new Error('changed my mind')
      const call = (wrapped: typeof fetch, url: string, { signal }: AbortController) =>
        kind === 'init' ? wrapped(url, { signal }) : wrapped(new Request(url, { signal }))
      const early = new AbortController()
      const silent = await serve(() => early.abort(reason))
      await expect(call(payingFetch(), silent, early)).rejects.toBe(reason)

      const asked = new AbortController()
      const { url, paidHeaders } = await playProvider(() => late.abort(reason))
      const hesitant = payingFetch({ limits: { onPayment: () => asked.abort(reason) } })
      await expect(call(hesitant, url, asked)).rejects.toBe(reason)
      expect(paidHeaders).toEqual([])

      const late = new AbortController()
      expect(await errorOf(call(payingFetch(), url, late))).toMatchObject({
        code: 'aborted',
        cause: reason,
        payment: { amount: 50_000n },
      })
    },
  )
})

test('args: passes the receipt to onReceipt before it returns the response, and warns if onReceipt throws', async () => {
  const { url } = await playProvider(serveReceipt)
  const kept: PaidReceipt[] = []
  const warn = vi.fn()
  const onReceipt = (paid: PaidReceipt) => {
    if (kept.push(paid) === 2) throw new Error('the disk is full')
  }
  const wrapped = payingFetch({ onReceipt, warn })
  await wrapped(`${url}/a`)
  expect(kept).toEqual([{ receipt, url: `${url}/a`, paymentId: expect.stringMatching(/^pay_/) }])
  expect(warn).not.toHaveBeenCalled()
  expect((await wrapped(url)).status).toBe(200)
  expect(warn.mock.calls).toEqual([['[tollkeeper] A receipt was not kept: Error: the disk is full']])
})

test('args: presents mock credentials with mockPayments', async () => {
  const { url, paidHeaders } = await playProvider(serveReceipt)
  const wrapped = wrapFetch(fetch, { gatewayUrl, walletPrivateKey, network: 'localhost', mockPayments: true })
  expect((await wrapped(url)).status).toBe(200)
  expect(paidHeaders).toEqual(['x402 mock:mock'])
})

test('error: rejects invalid options', () => {
  expect(() => payingFetch({ gatewayUrl: 'gateway' })).toThrow(/gatewayUrl/)
  expect(() => payingFetch({ limits: { perDay: '-1' } })).toThrow(/decimal/)
})
