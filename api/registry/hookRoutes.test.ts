import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { call, type Shop } from '../../test/support/gateway.ts'
import { startHook } from '../../test/support/hookReceiver.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const other = useShop(gateway)
let hook: Awaited<ReturnType<typeof startHook>>
beforeAll(async () => {
  hook = await startHook()
})
afterAll(() => hook?.close())

type Answer = { code?: string; secret?: string; decision?: string | null; error?: string }
const own = (method: string, path: string, json?: unknown, { providerId, key }: Shop = shop) =>
  call<Answer>(gateway.app, method, `/providers/${providerId}/hook${path}`, {
    key,
    ...(json !== undefined && { json }),
  })

describe('the registration of a hook', () => {
  test('shows the secret once, keeps the secret and all other fields when one field changes, and records the change without the secret', async () => {
    const first = await own('PUT', '', { url: hook.url, headers: ['X-Api-Key', 'x-api-key'] })
    expect(first).toMatchObject({
      status: 200,
      body: {
        url: hook.url,
        headers: ['x-api-key'],
        onFailure: 'refuse',
        secret: expect.stringMatching(/^whsec_/),
      },
    })
    expect((await own('PUT', '', { url: hook.url, onFailure: 'accept' })).body).toEqual({
      url: hook.url,
      headers: ['x-api-key'],
      onFailure: 'accept',
      secretSince: expect.any(String),
      previousSecretExpiresAt: null,
    })
    const rotated = await own('POST', '/secret')
    expect(rotated.status).toBe(201)
    expect(rotated.body.secret).not.toBe(first.body.secret)
    const shown = await own('GET', '')
    expect(shown.body).toMatchObject({ url: hook.url, previousSecretExpiresAt: expect.any(String) })
    const { body } = await call<{ changes: object[] }>(
      gateway.app,
      'GET',
      `/providers/${shop.providerId}/changes`,
      { key: shop.key },
    )
    expect(body.changes[0]).toMatchObject({ after: { hookSecretSince: expect.any(String) } })
    expect(JSON.stringify([shown.body, body])).not.toContain('whsec_')
  })

  test('requests to the hook are signed with both secrets for a day after a rotation', async () => {
    const before = (await own('POST', '/secret')).body.secret as string
    const after = (await own('POST', '/secret')).body.secret as string
    hook.clear()
    await own('POST', '/test')
    for (const secret of [before, after]) expect(hook.ids(secret)).toHaveLength(1)
  })

  test('can be removed, and then no longer exists', async () => {
    expect((await own('DELETE', '')).status).toBe(204)
    for (const [method, path] of [
      ['DELETE', ''],
      ['GET', ''],
      ['POST', '/secret'],
      ['POST', '/test'],
    ] as const)
      expect(await own(method, path)).toMatchObject({ status: 404, body: { code: 'unknown_hook' } })
  })

  test('can be read and changed only by its provider', async () => {
    await own('PUT', '', { url: hook.url })
    for (const [method, json] of [['GET'], ['DELETE'], ['PUT', { url: hook.url }]] as const) {
      const stranger = await own(method, '', json, { ...shop, key: other.key })
      expect([stranger.status, stranger.body.code]).toEqual([403, 'forbidden'])
    }
  })

  test.each([
    ['a private address', { url: 'https://10.0.0.1/hook' }, 'hook_url_refused'],
    ['http', { url: 'http://shop.example/hook' }, 'hook_url_refused'],
    ['a password', { url: 'https://a:b@shop.example/hook' }, 'invalid_field'],
    ['a payment header', { url: 'https://8.8.8.8/', headers: ['payment-signature'] }, 'invalid_field'],
    ['an invalid header name', { url: 'https://8.8.8.8/', headers: ['a b'] }, 'invalid_request'],
    ['seventeen headers', { url: 'https://8.8.8.8/', headers: Array(17).fill('a') }, 'invalid_field'],
    ['an unknown rule for failures', { url: 'https://8.8.8.8/', onFailure: 'maybe' }, 'invalid_field'],
    ['an unknown field', { url: 'https://8.8.8.8/', timeout: 1 }, 'invalid_request'],
  ])('rejects %s', async (_, json, code) => {
    const app = gateway.another({ webhookAllowPrivate: false })
    const { body } = await call<Answer>(app, 'PUT', `/providers/${shop.providerId}/hook`, {
      key: shop.key,
      json,
    })
    expect(body.code).toBe(code)
  })
})

describe('a test of a hook', () => {
  test('returns the hook’s decision', async () => {
    hook.state.decide = ({ payer }) => ({ refuse: `not ${payer}` })
    expect((await own('POST', '/test')).body).toEqual({ decision: 'refuse', durationMs: expect.any(Number) })
  })

  test('returns the reason if the hook makes no decision', async () => {
    hook.state.decide = () => ({ accept: 'yes' })
    expect((await own('POST', '/test')).body).toMatchObject({
      decision: null,
      error: 'Decision: expected true as `accept`',
    })
  })
})
