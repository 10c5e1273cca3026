import { randomBytes } from 'node:crypto'
import type { WebhookEvent } from '@tollkeeper/sdk/provider'
import { Webhook } from 'standardwebhooks'
import { expect, test } from 'vitest'
import { createReceiver } from './receiver.ts'

const secret = `whsec_${randomBytes(32).toString('base64')}`
const body = JSON.stringify({
  type: 'settlement.failed',
  timestamp: '2026-11-21T12:00:00.000Z',
  data: { attempts: 6 },
})

function setUp() {
  const events: WebhookEvent[] = []
  const app = createReceiver(secret, (event) => events.push(event))
  const post = (id: string, { key = secret, text = body, signs = body, at = new Date() } = {}) =>
    app.request('/tollkeeper', {
      method: 'POST',
      body: text,
      headers: {
        'webhook-id': id,
        'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
        'webhook-signature': new Webhook(key).sign(id, at, signs),
      },
    })
  return { events, post }
}

test('passes on a signed message with its id', async () => {
  const { events, post } = setUp()
  expect((await post('msg_1')).status).toBe(204)
  expect(events).toEqual([{ ...JSON.parse(body), id: 'msg_1' }])
})

test('passes on a message only once if it is delivered twice', async () => {
  const { events, post } = setUp()
  await post('msg_1')
  expect((await post('msg_1')).status).toBe(204)
  await post('msg_2')
  expect(events).toHaveLength(2)
})

test('rejects a wrong secret, a changed body, an old timestamp and a body that is no message', async () => {
  const { events, post } = setUp()
  expect((await post('msg_1', { key: `whsec_${randomBytes(32).toString('base64')}` })).status).toBe(401)
  expect((await post('msg_2', { text: body.replace('6', '7') })).status).toBe(401)
  expect((await post('msg_3', { at: new Date(Date.now() - 3_600_000) })).status).toBe(401)
  expect((await post('msg_4', { text: 'hello', signs: 'hello' })).status).toBe(400)
  expect(events).toEqual([])
})
