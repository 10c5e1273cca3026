import { randomBytes } from 'node:crypto'
import { Webhook } from 'standardwebhooks'
import { expect, test } from 'vitest'
import { ProtocolError } from '../protocol/errors.ts'
import { unwrapWebhook, type WebhookHeaders } from './webhooks.ts'

const newSecret = () => `whsec_${randomBytes(24).toString('base64')}`
const secret = newSecret()
const at = new Date('2026-11-29T09:00:00Z')
const now = at.getTime()
const data = { paymentId: null, txHash: null, webhookId: 'wh_1' }
const text = JSON.stringify({ type: 'webhook.test', timestamp: at.toISOString(), data })

/** Signs a message as any library for Standard Webhooks does. */
function message({ body = text, id = 'msg_1', secrets = [secret], sentAt = at } = {}) {
  return {
    body,
    headers: {
      'webhook-id': id,
      'webhook-timestamp': String(sentAt.getTime() / 1_000),
      'webhook-signature': secrets.map((one) => new Webhook(one).sign(id, sentAt, body)).join(' '),
    },
  }
}

async function codeOf(unwrapped: Promise<unknown>): Promise<string> {
  const error = await unwrapped.catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(ProtocolError)
  return (error as ProtocolError).code
}

test('returns a message that another library signed, including the message’s id', async () => {
  const { body, headers } = message()
  expect(await unwrapWebhook(body, headers, secret, { now })).toEqual({
    id: 'msg_1',
    type: 'webhook.test',
    timestamp: '2026-11-29T09:00:00.000Z',
    data,
  })
})

test('accepts the signature of the example in the Standard Webhooks specification', async () => {
  const headers = {
    'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  }
  // The signature is accepted, but the body isn't a message of the gateway.
  const unwrapped = unwrapWebhook('{"test": 2432232314}', headers, 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', {
    now: 1_614_265_330_000,
  })
  expect(await codeOf(unwrapped)).toBe('webhook_malformed')
})

test.each<[string, (headers: Record<string, string>) => WebhookHeaders]>([
  ['of fetch', (headers) => new Headers(headers)],
  ['of node:http', (headers) => headers],
  [
    'of a server that keeps the case of their names',
    (headers) => ({ 'Webhook-Id': headers['webhook-id'], ...upper(headers) }),
  ],
  [
    'whose values are lists',
    (headers) => Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]])),
  ],
])('accepts headers %s', async (_, write) => {
  const { body, headers } = message()
  expect(await unwrapWebhook(body, write(headers), secret, { now })).toMatchObject({ id: 'msg_1' })
})

function upper(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]))
}

test('accepts the body as bytes', async () => {
  const { body, headers } = message({
    body: JSON.stringify({ type: 'a', timestamp: 'b', data: { name: 'Zoë €' } }),
  })
  const bytes = new TextEncoder().encode(body)
  expect(await unwrapWebhook(bytes, headers, secret, { now })).toMatchObject({ data: { name: 'Zoë €' } })
})

test('accepts messages with both secrets during a rotation, in any order', async () => {
  const next = newSecret()
  // The gateway signs with both secrets. The receiver may know one of them or both.
  const { body, headers } = message({ secrets: [next, secret] })
  for (const known of [secret, next, [secret, next], [next, newSecret()]])
    expect(await unwrapWebhook(body, headers, known, { now })).toMatchObject({ id: 'msg_1' })
  const late = message({ secrets: [next] })
  expect(await unwrapWebhook(late.body, late.headers, [secret, next], { now })).toMatchObject({ id: 'msg_1' })
  expect(await codeOf(unwrapWebhook(late.body, late.headers, secret, { now }))).toBe(
    'webhook_signature_invalid',
  )
})

const signed = message()
const other = message({ id: 'msg_2' })

test.each<[string, string, Record<string, string>]>([
  ['a body that was not signed', text.replace('wh_1', 'wh_2'), signed.headers],
  ['an id that was not signed', text, { ...signed.headers, 'webhook-id': 'msg_2' }],
  ['a time that was not signed', text, { ...signed.headers, 'webhook-timestamp': String(now / 1_000 + 1) }],
  [
    "another message's signature",
    text,
    { ...signed.headers, 'webhook-signature': other.headers['webhook-signature'] },
  ],
  [
    'a signature of another version',
    text,
    { ...signed.headers, 'webhook-signature': signed.headers['webhook-signature'].replace('v1', 'v1a') },
  ],
  [
    'a signature without a version',
    text,
    { ...signed.headers, 'webhook-signature': signed.headers['webhook-signature'].slice(3) },
  ],
  ['a signature that is not base64', text, { ...signed.headers, 'webhook-signature': 'v1,%%%' }],
  ['an empty signature', text, { ...signed.headers, 'webhook-signature': 'v1,' }],
])('rejects %s', async (_, body, headers) => {
  expect(await codeOf(unwrapWebhook(body, headers, secret, { now }))).toBe('webhook_signature_invalid')
})

test('rejects a valid signature that comes after more than ten invalid signatures', async () => {
  const { headers } = signed
  const junk = Array(10).fill('v1,AAAA').join(' ')
  const padded = { ...headers, 'webhook-signature': `${junk} ${headers['webhook-signature']}` }
  expect(await codeOf(unwrapWebhook(text, padded, secret, { now }))).toBe('webhook_signature_invalid')
})

test.each([
  [-300, 'webhook.test'],
  [300, 'webhook.test'],
  [-301, 'webhook_expired'],
  [301, 'webhook_expired'],
])('a message dated %i s from now results in %s', async (seconds, expected) => {
  const { body, headers } = message({ sentAt: new Date(now + seconds * 1_000) })
  const unwrapped = unwrapWebhook(body, headers, secret, { now })
  expect(expected.includes('.') ? (await unwrapped).type : await codeOf(unwrapped)).toBe(expected)
})

test('rejects a message that is older than the given tolerance', async () => {
  const { body, headers } = message({ sentAt: new Date(now - 10_000) })
  expect(await codeOf(unwrapWebhook(body, headers, secret, { now, toleranceSeconds: 5 }))).toBe(
    'webhook_expired',
  )
})

test.each(['webhook-id', 'webhook-timestamp', 'webhook-signature'])(
  'rejects a message without %s',
  async (name) => {
    const { [name]: _, ...headers } = signed.headers as Record<string, string>
    expect(await codeOf(unwrapWebhook(text, headers, secret, { now }))).toBe('webhook_malformed')
  },
)

test.each(['1e3', '-1', 'now', 'NaN'])('rejects the time %j', async (timestamp) => {
  const headers = { ...signed.headers, 'webhook-timestamp': timestamp }
  expect(await codeOf(unwrapWebhook(text, headers, secret, { now }))).toBe('webhook_malformed')
})

test.each(['[]', 'null', 'hello', '{"type":1,"timestamp":"a","data":{}}', '{"type":"a","timestamp":"b"}'])(
  'rejects the body %s, even if it is signed',
  async (body) => {
    const { headers } = message({ body })
    expect(await codeOf(unwrapWebhook(body, headers, secret, { now }))).toBe('webhook_malformed')
  },
)

test('returns a message with the type unrecognized if this version does not know the message’s type', async () => {
  const { body, headers } = message({
    body: JSON.stringify({ type: 'coupon.used', timestamp: at.toISOString(), data: { coupon: 'c' } }),
  })
  expect(await unwrapWebhook(body, headers, secret, { now })).toEqual({
    id: 'msg_1',
    type: 'unrecognized',
    eventType: 'coupon.used',
    timestamp: at.toISOString(),
    data: { coupon: 'c' },
  })
})

test.each(['', 'whsec_', 'whsec_%%'])('throws for the secret %j', async (wrong) => {
  await expect(unwrapWebhook(text, signed.headers, wrong, { now })).rejects.toThrow(/secret: expected whsec_/)
})

test('checking a message’s type narrows the TypeScript type of its data', async () => {
  const { body, headers } = message()
  const event = await unwrapWebhook(body, headers, secret, { now })
  switch (event.type) {
    case 'payment.settled':
      expect([event.data.paymentId, event.data.providerUsdc] satisfies string[]).toBeDefined()
      break
    case 'settlement.failed':
      expect(event.data.nextAttemptAt satisfies string | null).toBeDefined()
      break
    case 'unrecognized':
      expect(event.eventType satisfies string).toBeDefined()
      break
    case 'webhook.test':
      expect(event.data.webhookId satisfies string).toBe('wh_1')
  }
  expect.assertions(1)
})
