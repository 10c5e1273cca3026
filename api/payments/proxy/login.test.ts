import type { IncomingMessage } from 'node:http'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { paid, useProxiedSale, voided } from '../../../test/support/proxiedSale.ts'
import { useGateway } from '../../../test/support/useGateway.ts'

// A provider whose callers both pay and log in. The payment is sent in PAYMENT-SIGNATURE, so Authorization is free for the login.

const gateway = useGateway()
const { sale, restart, own, at, buy, statusOf } = useProxiedSale(gateway)
const basic = (user: string, password: string) => `Basic ${btoa(`${user}:${password}`)}`
const right = basic('ada', 'secret')

const forward = (forwardAuthorization: boolean) =>
  own('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2`, forwardAuthorization })
const client = () =>
  createClient({
    gatewayUrl: sale.url,
    network: 'localhost',
    account: sale.buyer,
    usdcAddress: gateway.served.token,
    limits: { perPayment: '0.05' },
  })
/** The provider's server: it serves one login, and returns who is logged in. */
function logIn(seen: IncomingMessage[] = []) {
  sale.handler = (request, response) => {
    seen.push(request)
    if (request.headers.authorization === right) return void response.end('for ada')
    response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="Reports"' }).end('who are you?')
  }
  return seen
}

describe('an upstream with logins', () => {
  beforeAll(async () => {
    expect((await forward(true)).body).toMatchObject({ forwardAuthorization: true })
  })
  afterAll(() => forward(false))

  test('gets the caller’s login unchanged, and never the payment', async () => {
    const seen = logIn()
    const { data, paymentId } = await client().request(at('/report'), { headers: { authorization: right } })
    expect(data).toBe('for ada')
    expect(seen.map(({ headers }) => headers.authorization)).toEqual([right])
    expect(seen[0]?.headers).not.toHaveProperty('payment-signature')
    expect(seen[0]?.headers).toMatchObject({ 'service-payment-id': paymentId })
  })

  test('gets no Authorization that is the payment itself', async () => {
    const seen = logIn()
    const response = await buy('/report')
    expect([response.status, seen[0]?.headers.authorization]).toEqual([401, undefined])
    expect(await statusOf(response)).toEqual(voided)
  })

  test.each([401, 403])('is not paid for a login that it refuses with %i', async (status) => {
    sale.handler = (_, response) => response.writeHead(status, { 'WWW-Authenticate': 'Bearer' }).end('no')
    const response = await buy('/report')
    expect([response.status, await response.text(), await statusOf(response)]).toEqual([status, 'no', voided])
    expect(response.headers.get('www-authenticate')).toBe('Bearer')
  })

  test('charges a caller only once if its first login was wrong', async () => {
    logIn()
    const before = await client()
      .request(at('/report'), { headers: { authorization: basic('ada', 'guess') } })
      .catch((error: unknown) => error)
    expect(before).toMatchObject({ status: 401, outcome: 'not_charged' })
    const { data } = await client().request(at('/report'), { headers: { authorization: right } })
    expect(data).toBe('for ada')
  })

  test('is paid for an answer with status 404', async () => {
    sale.handler = (_, response) => response.writeHead(404).end()
    expect(await statusOf(await buy('/report'))).toEqual(paid)
  })

  test('has a separate realm, so that a browser doesn’t send the password to another provider', async () => {
    logIn()
    const response = await buy('/report')
    expect(response.headers.get('www-authenticate')).toBe(
      `Basic realm="${sale.provider.providerId}", charset="UTF-8"`,
    )
  })

  test('returns a stored answer only to a request with the same login', async () => {
    logIn()
    const { present } = await signOnce()
    const first = await present(right)
    expect([first.status, await first.text()]).toEqual([200, 'for ada'])
    const again = await present(right)
    expect([again.status, await again.text(), again.headers.get('idempotent-replayed')]).toEqual([
      200,
      'for ada',
      expect.anything(),
    ])
    for (const other of [basic('eve', 'secret'), undefined]) expect((await present(other)).status).toBe(409)
  })

  test('web pages may send Authorization and PAYMENT-SIGNATURE', async () => {
    const response = await fetch(at('/report'), {
      method: 'OPTIONS',
      headers: {
        origin: 'https://a.example',
        'access-control-request-method': 'GET',
        'access-control-request-headers': 'authorization,payment-signature',
      },
    })
    expect(response.status).toBe(204)
    expect(response.headers.get('access-control-allow-headers')).toBe('authorization,payment-signature')
  })

  test('keeps the login setting when its URL changes', async () => {
    expect((await own('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2` })).body).toMatchObject({
      forwardAuthorization: true,
    })
    restart()
  })

  /** Signs a payment that can be presented several times, each time with another login. */
  async function signOnce() {
    const sent: string[] = []
    const recording = createClient({
      gatewayUrl: sale.url,
      network: 'localhost',
      account: sale.buyer,
      usdcAddress: gateway.served.token,
      limits: { perPayment: '0.05' },
      fetch: async (url, init) => {
        const header = new Headers(init?.headers).get('payment-signature')
        if (header === null) return fetch(url, init)
        sent.push(header)
        throw new TypeError('cut')
      },
    })
    await recording.request(at('/report'), { headers: { authorization: right } }).catch(() => {})
    const [payment = ''] = sent
    return {
      present: (login: string | undefined) =>
        fetch(at('/report'), {
          headers: { 'payment-signature': payment, ...(login !== undefined && { authorization: login }) },
        }),
    }
  }
})

describe('an upstream without logins', () => {
  test('gets no Authorization header, its WWW-Authenticate is removed, and buyers pay for its 401 and 403 responses', async () => {
    expect((await forward(false)).body).toMatchObject({ forwardAuthorization: false })
    restart()
    const seen = logIn()
    const answer = await client()
      .request(at('/report'), { headers: { authorization: right } })
      .catch((error: unknown) => error)
    expect(answer).toMatchObject({ status: 401 })
    expect(seen[0]?.headers.authorization).toBeUndefined()
    const response = await buy('/report')
    expect([response.headers.get('www-authenticate'), await statusOf(response)]).toEqual([null, paid])
  })
})
