import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { createLogger } from '@tollkeeper/runtime/log'
import { Webhook as Verifier } from 'standardwebhooks'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { call, openShop, pay, type Shop } from '../../test/support/gateway.ts'
import { codeIn, type MailServer, type ReceivedMail, startMailServer } from '../../test/support/mailServer.ts'
import { until } from '../../test/support/until.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { startWebhookReceiver } from '../../test/support/webhookReceiver.ts'
import { startBackgroundWork } from '../backgroundWork.ts'
import type { App } from '../http/app.ts'
import { createDeliveryLoop, type DeliveryLoop } from './deliveryLoop.ts'
import { createMailer, type Mailer } from './mailer.ts'

const gateway = useGateway()
let loop: DeliveryLoop
const shop = useShop(gateway)
let at: string

beforeAll(async () => {
  loop = createDeliveryLoop({
    sql: gateway.database,
    guard: createAddressGuard({ allowPrivate: true }),
    log: createLogger('test', 'silent'),
  })
  at = `/providers/${shop.providerId}/webhooks`
})
afterAll(async () => {
  await loop?.close()
})

type Registered = { webhookId: string; secret: string; url: string }
type Log = { deliveries: { deliveryId: string; status: string; messageId: string }[]; cursor: string | null }

const send = <T = Record<string, unknown>>(method: string, path: string) =>
  call<T>(gateway.app, method, path, { key: shop.key })
const register = (json: unknown, app = gateway.app) =>
  call<Registered>(app, 'POST', at, { json, key: shop.key })

test('default: registers a webhook, notifies it, shows the log, sends again, and removes it', async () => {
  await using receiver = await startWebhookReceiver()
  const { url, received } = receiver
  const { status, body } = await register({ url, events: ['settlement.failed'], description: 'mine' })
  expect({ status, body }).toEqual({
    status: 201,
    body: {
      webhookId: expect.stringMatching(/^wh_[0-9a-f]{32}$/),
      providerId: shop.providerId,
      url,
      description: 'mine',
      events: ['settlement.failed'],
      createdAt: expect.any(String),
      disabledAt: null,
      previousSecretExpiresAt: null,
      secret: expect.stringMatching(/^whsec_/),
    },
  })
  const { webhookId, secret } = body
  const { secret: _, ...shown } = body
  expect((await send('GET', at)).body).toEqual({ webhooks: [shown] })
  expect((await send('GET', `${at}/${webhookId}`)).body).toEqual(shown)

  for (let i = 0; i < 3; i++) {
    await gateway.database`
      insert into outbox (event, provider_id, data) values ('settlement.failed', ${shop.providerId}, '{}')`
  }
  expect(await loop.deliverDue()).toBe(3)
  for (const { body, headers } of received)
    expect(new Verifier(secret).verify(body, headers as Record<string, string>)).toBeDefined()

  const log = await send<Log>('GET', `${at}/${webhookId}/deliveries?limit=2`)
  expect(log.body.deliveries).toHaveLength(2)
  expect(log.body.deliveries[0]).toMatchObject({
    status: 'delivered',
    attempts: [{ attempt: 1, httpStatus: 204 }],
  })
  const rest = await send<Log>('GET', `${at}/${webhookId}/deliveries?limit=2&cursor=${log.body.cursor}`)
  expect(rest.body).toMatchObject({ deliveries: [{ status: 'delivered' }], cursor: null })
  const ids = [...log.body.deliveries, ...rest.body.deliveries].map(({ deliveryId }) => deliveryId)
  expect(new Set(ids).size).toBe(3)

  const again = await send('POST', `${at}/${webhookId}/deliveries/${ids[0]}/redeliver`)
  expect(again.status).toBe(202)
  expect(await loop.deliverDue()).toBe(1)
  expect(received[3]?.headers['webhook-id']).toBe(log.body.deliveries[0]?.messageId)

  const rotated = await send<Registered>('POST', `${at}/${webhookId}/rotate`)
  expect(rotated.body).toMatchObject({ webhookId, previousSecretExpiresAt: expect.any(String) })
  expect(rotated.body.secret).not.toBe(secret)

  expect((await send('DELETE', `${at}/${webhookId}`)).status).toBe(204)
  expect((await send('GET', `${at}/${webhookId}`)).status).toBe(404)
  expect((await send('DELETE', `${at}/${webhookId}`)).body).toMatchObject({
    code: 'unknown_webhook',
  })
})

test.each([
  ['text that is not a URL', 'nonsense'],
  ['a URL with http instead of https', 'http://93.184.215.14/'],
  ['a private address', 'https://10.0.0.1/'],
  ['the IPv6 loopback address', 'https://[::1]/'],
  ['the address of a cloud’s metadata server', 'https://169.254.169.254/latest/meta-data'],
  ['a name for loopback', 'https://localhost/'],
])('error: a webhook URL is refused if it is %s', async (_, url) => {
  const app = gateway.another({ webhookAllowPrivate: false })
  expect((await register({ url }, app)).body).toMatchObject({ status: 422, code: 'webhook_url_refused' })
})

test.each([
  ['an unknown event', { url: 'https://127.0.0.1/', events: ['payment.refunded'] }],
  ['no events', { url: 'https://127.0.0.1/', events: [] }],
  ['no URL', {}],
])('error: rejects a webhook with %s', async (_, json) => {
  const { status } = await register(json)
  expect([400, 422]).toContain(status)
})

test('error: rejects a webhook beyond the maximum number', async () => {
  const other = await openShop(gateway.app)
  const create = () =>
    call(gateway.app, 'POST', `/providers/${other.providerId}/webhooks`, {
      json: { url: 'https://127.0.0.1/' },
      key: other.key,
    })
  for (let i = 0; i < 20; i++) expect((await create()).status).toBe(201)
  expect((await create()).body).toMatchObject({ status: 422, code: 'webhook_limit_reached' })
})

test('error: rejects requests without a key and with another provider’s key', async () => {
  const { body } = await register({ url: 'https://127.0.0.1/' })
  const other = await openShop(gateway.app)
  const paths: [string, string][] = [
    ['GET', at],
    ['POST', at],
    ['GET', `${at}/${body.webhookId}`],
    ['DELETE', `${at}/${body.webhookId}`],
    ['POST', `${at}/${body.webhookId}/rotate`],
    ['POST', `${at}/${body.webhookId}/test`],
    ['GET', `${at}/${body.webhookId}/deliveries`],
    ['POST', `${at}/${body.webhookId}/deliveries/whd_${'0'.repeat(32)}/redeliver`],
  ]
  for (const [method, path] of paths) {
    const options = method === 'POST' ? { json: { url: 'https://127.0.0.1/' } } : {}
    expect((await call(gateway.app, method, path, { ...options, key: other.key })).status, path).toBe(403)
    expect((await call(gateway.app, method, path, options)).status, path).toBe(401)
    // The other provider can't reach the webhook under its own path either.
    const mine = path.replace(shop.providerId, other.providerId)
    if (mine.includes(body.webhookId)) {
      expect((await call(gateway.app, method, mine, { ...options, key: other.key })).status, mine).toBe(404)
    }
  }
})

test('error: rejects an invalid cursor', async () => {
  const { body } = await register({ url: 'https://127.0.0.1/' })
  for (const cursor of ['x', 'bnVsbA', Buffer.from('["other",1,"a"]').toString('base64url')]) {
    const path = `${at}/${body.webhookId}/deliveries?cursor=${cursor}`
    expect((await call(gateway.app, 'GET', path, { key: shop.key })).body).toMatchObject({
      code: 'invalid_cursor',
    })
  }
})

describe('by mail', () => {
  let server: MailServer
  let app: App
  let mailer: Mailer
  let offset = 0
  const minute = 60_000
  const now = () => Date.now() + offset

  beforeAll(async () => {
    server = await startMailServer()
    mailer = createMailer({ url: server.url, from: 'tolls@gateway.example' })
    app = gateway.withOptions({ mailer })
  })
  afterAll(() => server.close())

  const own = (of: Shop) => `/providers/${of.providerId}`
  async function newProvider(contact: string): Promise<Shop> {
    const opened = await openShop(app)
    const { status } = await call(app, 'PATCH', own(opened), {
      key: opened.key,
      headers: { 'if-match': '*' },
      json: { contact },
    })
    expect(status).toBe(200)
    return opened
  }
  const askCode = (of: Shop, on = app) => call(on, 'POST', `${own(of)}/contact/code`, { key: of.key })
  const confirm = (of: Shop, code: string) =>
    call(app, 'POST', `${own(of)}/contact/confirmation`, { key: of.key, json: { code } })
  async function confirmed(contact: string): Promise<Shop> {
    const opened = await newProvider(contact)
    expect((await askCode(opened)).status).toBe(204)
    expect((await confirm(opened, codeIn(server.received.at(-1)))).status).toBe(201)
    return opened
  }
  async function fail(of: Shop): Promise<string> {
    const { paymentId } = await pay({ ...gateway, app }, of)
    const failure = { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: true }
    await recordFailure(gateway.database, failure, { now: new Date() })
    await notice()
    return paymentId
  }
  const log = createLogger('test', 'silent')
  /** Does what each process does every second: turns the outbox into webhook messages, and into notices for the next mail. */
  async function notice(): Promise<void> {
    const guard = createAddressGuard({ allowPrivate: true })
    await createDeliveryLoop({ sql: gateway.database, guard, log, now }).deliverDue()
  }
  /** Sends the mail that is due. @returns the mail received */
  async function tell(by: Mailer = mailer, clock = now): Promise<ReceivedMail[]> {
    const before = server.received.length
    const mail = { mailer: by, issuer: gateway.settings.issuer }
    const guard = createAddressGuard({ allowPrivate: true })
    await createDeliveryLoop({ sql: gateway.database, guard, mail, log, now: clock }).deliverDue()
    return server.received.slice(before)
  }

  test('default: a contact confirmed with its code is mailed each failure once, in at most one mail an hour', async () => {
    const told = await newProvider('ops@shop.example')
    const strange = await newProvider('other@shop.example')
    await fail(told)
    offset += 2 * minute
    expect(await tell()).toEqual([])

    expect((await askCode(told)).status).toBe(204)
    const mail = server.received.at(-1) as ReceivedMail
    expect(mail).toMatchObject({ to: ['ops@shop.example'], subject: 'Confirm this address' })
    // The mail contains no text that a stranger may choose.
    expect(mail.text).not.toContain('Shop')
    for (const [of, code] of [
      [told, 'nonsense'],
      [told, codeIn(mail).replace(/^./, 'z')],
      [strange, codeIn(mail)],
    ] as const) {
      expect(await confirm(of, code)).toMatchObject({ status: 422, body: { code: 'invalid_field' } })
    }
    const { status, body } = await confirm(told, codeIn(mail))
    expect([status, body.contactConfirmedAt]).toEqual([201, expect.any(String)])
    expect((await call(app, 'GET', own(told), { key: told.key })).body).toEqual(body)

    const failed = [await fail(told), await fail(told)]
    expect(await tell()).toEqual([])
    offset += 2 * minute
    const [notice, ...others] = await tell()
    expect(others).toEqual([])
    expect(notice).toMatchObject({ to: ['ops@shop.example'], subject: 'Settlement fails for 2 payments' })
    for (const paymentId of failed) expect(notice?.text).toContain(`${paymentId} insufficient_balance`)
    expect(notice?.text).toContain('Auto-Submitted: auto-generated')

    const later = await fail(told)
    offset += 30 * minute
    expect(await tell()).toEqual([])
    offset += 31 * minute
    const [next] = await tell()
    expect(next).toMatchObject({ subject: 'Settlement fails for 1 payment' })
    expect(next?.text).toContain(later)
    offset += 120 * minute
    expect(await tell()).toEqual([])
  })

  test('default: an api process with SMTP_URL sends what is due', async () => {
    const told = await confirmed('process@shop.example')
    const failed = await fail(told)
    await gateway.database`update confirmed_contact set next_attempt_at = now() where provider_id = ${told.providerId}`
    const mail = { url: server.url, from: 'tolls@gateway.example' }
    const { database: sql, served, settings } = gateway
    const work = startBackgroundWork({ sql, networks: [served], settings: { ...settings, mail }, log })
    try {
      await until('the mail has arrived', () => server.received.some(({ text }) => text.includes(failed)))
      expect(server.received.at(-1)?.to).toEqual(['process@shop.example'])
      await until('the mail is counted', async () =>
        (await work.shared.metrics.registry.metrics()).includes(
          'tollkeeper_api_mails_total{outcome="sent"} 1',
        ),
      )
    } finally {
      await work.close()
    }
  })

  test('behavior: a new contact gets no mail until it is confirmed, and the old contact gets no more mail', async () => {
    const changed = await confirmed('first@shop.example')
    await fail(changed)
    const { body } = await call(app, 'PATCH', own(changed), {
      key: changed.key,
      headers: { 'if-match': '*' },
      json: { contact: 'second@shop.example' },
    })
    expect(body).toMatchObject({ contact: 'second@shop.example', contactConfirmedAt: null })
    offset += 120 * minute
    expect(await tell()).toEqual([])
    await askCode(changed)
    expect((await confirm(changed, codeIn(server.received.at(-1)))).status).toBe(201)
    offset += 120 * minute
    expect(await tell()).toEqual([])
    const failed = await fail(changed)
    offset += 2 * minute
    const [mail] = await tell()
    expect(mail).toMatchObject({ to: ['second@shop.example'], subject: 'Settlement fails for 1 payment' })
    expect(mail?.text).toContain(failed)
  })

  test('behavior: a mail is sent again with the same id if the mail server refuses it, or if the server’s answer is lost', async () => {
    const told = await confirmed('again@shop.example')
    await fail(told)
    offset += 2 * minute
    const dying: Mailer = {
      async send(mail) {
        await mailer.send(mail)
        throw new Error('the answer is lost')
      },
    }
    const moment = now()
    const [first] = await tell(dying, () => moment)
    expect(await tell(mailer, () => moment)).toEqual([])
    offset += minute
    server.refuseNext(Object.assign(new Error('later'), { responseCode: 451 }))
    const [second] = await tell()
    offset += minute
    const [third] = await tell()
    expect(new Set([first?.id, second?.id, third?.id]).size).toBe(1)
    expect(third?.id).toMatch(/^<[0-9a-f]{32}@gateway\.example>$/)
    offset += 120 * minute
    expect(await tell()).toEqual([])
  })

  test('behavior: two processes that run at the same time send one mail', async () => {
    await fail(await confirmed('both@shop.example'))
    offset += 2 * minute
    expect((await Promise.all([tell(), tell(), tell()])).flat().map(({ id }) => id)).toHaveLength(1)
  })

  test('behavior: a failed refund is reported by the id of the refunded payment', async () => {
    const told = await confirmed('refunds@shop.example')
    const paymentId = await fail(told)
    // Inserts the row that the keeper writes (test/e2e/keeper.test.ts): a refund is a separate payment, and `data` names the refunded payment.
    await gateway.database`
      insert into outbox (event, provider_id, payment_id, data)
      select 'refund.failed', provider_id, id, ${gateway.database.json({
        paymentId,
        number: 1,
        code: 'authorization_expired',
        attempts: 6,
        nextAttemptAt: null,
      })}
      from payment where id = ${(await pay({ ...gateway, app }, told)).paymentId}`
    await notice()
    offset += 2 * minute
    const [mail] = await tell()
    expect(mail?.subject).toBe('Settlement fails for 1 payment and 1 refund')
    expect(mail?.text).toContain('1 refund failed and will not be retried')
    expect(mail?.text).toContain(`refund 1 of ${paymentId} authorization_expired`)
  })

  test('behavior: a webhook that answers 410 is disabled, and its provider is notified', async () => {
    const told = await confirmed('hooks@shop.example')
    await using receiver = await startWebhookReceiver((response) => response.writeHead(410).end())
    const { url } = receiver
    const json = { url, events: ['settlement.failed'] }
    const { body } = await call<Registered>(app, 'POST', `${own(told)}/webhooks`, { key: told.key, json })
    await fail(told)
    await notice()
    offset += 2 * minute
    const [mail] = await tell()
    expect(mail?.text).toContain(`${body.webhookId} ${url}`)
  })

  test('error: a mailbox gets at most three codes a day, regardless of the callers and of the spelling of its address', async () => {
    const victims = [
      'victim@example.com',
      'Victim+1@example.com',
      'victim+2@EXAMPLE.com',
      'victim+3@example.com',
    ]
    const statuses: number[] = []
    for (const contact of victims) statuses.push((await askCode(await newProvider(contact))).status)
    expect(statuses).toEqual([204, 204, 204, 429])
    const one = await newProvider('own@shop.example')
    for (const expected of [204, 204, 204, 429]) expect((await askCode(one)).status).toBe(expected)
  })

  test.each([
    'ops@shop.example\r\nBcc: victim@example.com',
    'a@b.example, victim@example.com',
    '<a@b.example>',
    'Ops <a@b.example>',
    '"a b"@b.example',
    'a@[127.0.0.1]',
    'a@localhost',
    '+49 30 1234',
    'ä@b.example',
  ])('error: %j is not a mail address, and nothing is sent', async (contact) => {
    const before = server.received.length
    const { status, body } = await askCode(await newProvider(contact))
    expect([status, body.code]).toEqual([422, 'invalid_field'])
    expect(server.received).toHaveLength(before)
  })

  test('error: confirmation fails without a mail server, or if the server is down', async () => {
    const one = await newProvider('away@shop.example')
    expect((await askCode(one, gateway.app)).status).toBe(404)
    // Clients can check first whether the gateway sends mail.
    const mails = async (of: App) => (await call(of, 'GET', '/')).body.mail
    expect([await mails(gateway.app), await mails(app)]).toEqual([false, true])
    const away = createMailer({ url: 'smtp://user:hunter2@127.0.0.1:1', from: 'tolls@gateway.example' })
    const { status, body } = await askCode(one, gateway.withOptions({ mailer: away, log }))
    expect([status, body.code]).toEqual([503, 'dependency_unavailable'])
    expect(JSON.stringify(body)).not.toContain('hunter2')
  })
})
