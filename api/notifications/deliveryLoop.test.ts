import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import pino from 'pino'
import { Webhook as Verifier } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { collectBadRows, refuseWrites } from '../../test/support/badRows.ts'
import { startCutProxy } from '../../test/support/cutProxy.ts'
import { createMigratedDatabase } from '../../test/support/database.ts'
import { until } from '../../test/support/until.ts'
import { type ReceivedMessage, startWebhookReceiver } from '../../test/support/webhookReceiver.ts'
import {
  claimDeliveries,
  deliveryBacklog,
  dispatchOutbox,
  recordAttempt,
  senderShares,
} from './deliveries.ts'
import { deliveriesOf, redeliver } from './deliveryLog.ts'
import { createDeliveryLoop, type DeliveryLoop, type DeliveryLoopOptions } from './deliveryLoop.ts'
import { type WebhookEvent, webhookEvents } from './events.ts'
import { deleteWebhook, insertWebhook, maxWebhooks, newWebhookSecret, rotateSecret } from './registry.ts'

let database: Database
let databaseUrl: string
const cleanups: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  databaseUrl = await createMigratedDatabase()
  database = openDatabase({ url: databaseUrl, applicationName: 'test' })
})
afterEach(async () => {
  // Receivers are closed before loops, because a loop waits for its current sendings.
  for (const cleanup of cleanups.splice(0)) await cleanup()
  await database`truncate webhook_attempt, webhook_delivery, outbox cascade`
})
afterAll(() => database.end())

async function startReceiver(...[answer]: Parameters<typeof startWebhookReceiver>) {
  const receiver = await startWebhookReceiver(answer)
  cleanups.push(receiver.close)
  return receiver
}

async function register(url: string, events: WebhookEvent[] = [...webhookEvents]) {
  const providerId = newId('prov')
  await database`insert into provider (id, name) values (${providerId}, 'Weather')`
  const secret = newWebhookSecret()
  const webhook = await insertWebhook(database, { providerId, url, description: '', events, secret })
  if (!webhook) throw new Error('not registered')
  return { providerId, secret, webhookId: webhook.webhookId }
}

async function emit(
  providerId: string,
  event: WebhookEvent = 'batch.confirmed',
  txHash: string | null = null,
) {
  await database`
    insert into outbox (event, provider_id, tx_hash, data)
    values (${event}, ${providerId}, ${txHash}, ${database.json({ totalUsdc: '1.000000' })})`
}

const start = new Date('2026-11-21T12:00:00Z')

function createClock() {
  let time = start.getTime()
  return { now: () => new Date(time), ms: () => time, advance: (ms: number) => (time += ms) }
}

function createLoop(options: Partial<DeliveryLoopOptions> = {}): DeliveryLoop {
  const guard = createAddressGuard({ allowPrivate: true })
  const log = pino({ level: 'silent' })
  const loop = createDeliveryLoop({
    sql: database,
    guard,
    log,
    random: () => 0.5,
    timeoutMs: 600_000,
    soonMs: 600_000,
    ...options,
  })
  cleanups.push(loop.close)
  return loop
}

function verify({ body, headers }: ReceivedMessage, secret: string): unknown {
  return new Verifier(secret).verify(body, headers as Record<string, string>)
}

const log = (webhookId: string) => deliveriesOf(database, { webhookId, after: null, limit: 100 })

test('default: the signature of a message is valid, and the log contains its delivery', async () => {
  const receiver = await startReceiver()
  const { providerId, secret, webhookId } = await register(receiver.url)
  await emit(providerId, 'batch.confirmed', `0x${'ab'.repeat(32)}`)
  // The library refuses a timestamp that differs much from the current time, so this test uses real time.
  expect(await createLoop().deliverDue()).toBe(1)
  const [message] = receiver.received
  if (!message) throw new Error('nothing received')
  expect(verify(message, secret)).toEqual({
    type: 'batch.confirmed',
    timestamp: expect.any(String),
    data: { totalUsdc: '1.000000', paymentId: null, txHash: `0x${'ab'.repeat(32)}` },
  })
  expect(() => verify({ ...message, body: message.body.replace('1.0', '2.0') }, secret)).toThrow('signature')
  expect(() => verify(message, newWebhookSecret())).toThrow('signature')
  expect(await log(webhookId)).toMatchObject([
    {
      event: 'batch.confirmed',
      status: 'delivered',
      nextAttemptAt: null,
      attempts: [{ httpStatus: 204, failure: null }],
    },
  ])
})

test('behavior: a receiver gets only events of its provider, and only kinds that it subscribed to', async () => {
  const receiver = await startReceiver()
  const { providerId } = await register(receiver.url, ['settlement.failed'])
  const other = await register('http://127.0.0.1:9/')
  await emit(providerId, 'batch.confirmed')
  await emit(providerId, 'settlement.failed')
  expect(await createLoop().deliverDue()).toBe(1)
  expect(receiver.received).toHaveLength(1)
  expect(await log(other.webhookId)).toEqual([])
})

test('behavior: retries a message on schedule, with the same message id, until it is received', async () => {
  const receiver = await startReceiver((response, count) =>
    response.writeHead(count < 3 ? 500 : 200).end('busy'),
  )
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  const clock = createClock()
  const loop = createLoop({ now: clock.ms })
  expect(await loop.deliverDue()).toBe(1)
  expect(await log(webhookId)).toMatchObject([
    {
      status: 'pending',
      nextAttemptAt: new Date(start.getTime() + 5_000),
      attempts: [{ failure: 'http_500', response: 'busy' }],
    },
  ])
  clock.advance(4_999)
  expect(await loop.deliverDue()).toBe(0)
  clock.advance(1)
  expect(await loop.deliverDue()).toBe(1)
  clock.advance(20_000)
  expect(await loop.deliverDue()).toBe(1)
  expect(await loop.deliverDue()).toBe(0)
  expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  // Each attempt has a new signature; otherwise receivers would refuse the late ones as replays.
  expect(receiver.received.map(({ headers }) => headers['webhook-timestamp'])).toEqual([
    '1795262400',
    '1795262405',
    '1795262425',
  ])
  expect(await log(webhookId)).toMatchObject([
    { status: 'delivered', attempts: [{}, {}, { httpStatus: 200 }] },
  ])
})

test('error: a redirect is a failed attempt, which is retried', async () => {
  const receiver = await startReceiver((response) => response.writeHead(307, { location: '/moved' }).end())
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  const outcomes: string[] = []
  const loop = createLoop({ now: createClock().ms, onAttempt: (outcome) => outcomes.push(outcome) })
  expect(await loop.deliverDue()).toBe(1)
  expect(outcomes).toEqual(['failed'])
  expect(receiver.received).toHaveLength(1)
  expect(await log(webhookId)).toMatchObject([
    {
      status: 'pending',
      nextAttemptAt: new Date(start.getTime() + 5_000),
      attempts: [{ httpStatus: 307, failure: 'redirect_refused' }],
    },
  ])
})

test('behavior: a message fails after ten attempts, and can then be sent again by hand', async () => {
  let status = 503
  const receiver = await startReceiver((response) => response.writeHead(status).end())
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  const clock = createClock()
  const outcomes: string[] = []
  const loop = createLoop({ now: clock.ms, onAttempt: (outcome) => outcomes.push(outcome) })
  for (let day = 0; day < 12; day++) {
    await loop.deliverDue()
    clock.advance(86_400_000)
  }
  expect(receiver.received).toHaveLength(10)
  expect(outcomes).toEqual([...Array(9).fill('failed'), 'exhausted'])
  const [failed] = await log(webhookId)
  expect(failed).toMatchObject({ status: 'failed', nextAttemptAt: null })
  status = 200
  const deliveryId = failed?.id ?? ''
  expect(await redeliver(database, { webhookId, deliveryId, now: clock.now() })).toBe(true)
  expect(await loop.deliverDue()).toBe(1)
  expect(await log(webhookId)).toMatchObject([{ status: 'delivered' }])
  expect(receiver.received[10]?.headers['webhook-id']).toBe(receiver.received[0]?.headers['webhook-id'])
  // A message that was received can be sent again as well.
  expect(await redeliver(database, { webhookId, deliveryId, now: clock.now() })).toBe(true)
  expect(await loop.deliverDue()).toBe(1)
  expect(await redeliver(database, { webhookId: newId('wh'), deliveryId, now: clock.now() })).toBe(false)
})

test('behavior: a message is sent again after a crash between sending it and storing the result', async () => {
  const receiver = await startReceiver()
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  const clock = createClock()
  await dispatchOutbox(database, { now: clock.now(), limit: 10 })
  const claim = { shares: senderShares(16), underWay: [], leaseMs: 32_000 }
  // A process that died while sending leaves this state behind.
  const [claimed] = await claimDeliveries(database, { ...claim, now: clock.now() })
  if (!claimed) throw new Error('nothing was claimed')
  const loop = createLoop({ now: clock.ms })
  expect(await loop.deliverDue()).toBe(0)
  clock.advance(32_000)
  expect(await loop.deliverDue()).toBe(1)
  expect(await log(webhookId)).toMatchObject([
    {
      status: 'delivered',
      attempts: [
        { attempt: 1, endedAt: null },
        { attempt: 2, httpStatus: 204 },
      ],
    },
  ])
  // The first process is alive after all, and reports a failure. By then the message has been delivered, so it must not become due again.
  const failed = { httpStatus: 500, failure: 'http_status', detail: '', response: null } as const
  await recordAttempt(database, claimed, { ...failed, endedAt: clock.now() }, clock.now())
  expect(await loop.deliverDue()).toBe(0)
})

test('behavior: several processes send each message once', async () => {
  const receiver = await startReceiver()
  const { providerId } = await register(receiver.url)
  for (let i = 0; i < 40; i++) await emit(providerId)
  const loops = [createLoop(), createLoop(), createLoop()]
  const sent = await Promise.all(loops.map((loop) => loop.deliverDue()))
  expect(sent.reduce((sum, count) => sum + count, 0)).toBe(40)
  expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(40)
  expect(receiver.received).toHaveLength(40)
})

test('behavior: a receiver that hangs does not delay other receivers', async () => {
  const hanging = await startReceiver(() => {})
  const quick = await startReceiver()
  const slow = await register(hanging.url)
  const fast = await register(quick.url)
  for (let i = 0; i < 12; i++) await emit(slow.providerId)
  await emit(fast.providerId)
  const { promise: delivered, resolve } = Promise.withResolvers<void>()
  const loop = createLoop({
    senders: 6,
    pollIntervalMs: 20,
    timeoutMs: 3_000,
    onAttempt: (outcome) => outcome === 'delivered' && resolve(),
  })
  loop.start()
  await delivered
  expect(hanging.received.length).toBeLessThanOrEqual(4)
})

/** Starts twenty receivers of one provider that accept a connection and never answer, each with waiting messages. */
async function registerTarpits(messages: number) {
  const tarpit = await startReceiver(() => {})
  const { providerId } = await register(tarpit.url)
  const webhook = { providerId, url: tarpit.url, description: '', events: [...webhookEvents] }
  for (let i = 1; i < maxWebhooks; i++)
    await insertWebhook(database, { ...webhook, secret: newWebhookSecret() })
  for (let i = 0; i < messages; i++) await emit(providerId)
  return tarpit
}

test("behavior: one provider's twenty receivers that never answer do not delay other providers' messages", async () => {
  const tarpit = await registerTarpits(50)
  const quick = await startReceiver()
  const others = []
  for (let i = 0; i < 10; i++) others.push(await register(quick.url))
  for (const { providerId } of others) for (let i = 0; i < 5; i++) await emit(providerId)
  const { promise: delivered, resolve } = Promise.withResolvers<void>()
  // No sending to a tarpit ends during this test.
  const loop = createLoop({
    pollIntervalMs: 20,
    timeoutMs: 600_000,
    onAttempt: () => quick.received.length === 50 && resolve(),
  })
  loop.start()
  await delivered
  // Receivers that are new or slow share a part of the 16 senders, and this provider's tarpits got two of them.
  expect(tarpit.received).toHaveLength(2)
})

test('behavior: half of the senders are reserved for receivers that answered before, regardless of how many receivers never answer', async () => {
  const quick = await startReceiver()
  const good = await register(quick.url)
  await emit(good.providerId)
  await createLoop().deliverDue()
  const tarpits: Awaited<ReturnType<typeof startWebhookReceiver>>[] = []
  for (let i = 0; i < 30; i++) {
    const tarpit = await startReceiver(() => {})
    tarpits.push(tarpit)
    const { providerId } = await register(tarpit.url)
    await emit(providerId)
  }
  const { promise: delivered, resolve } = Promise.withResolvers<void>()
  const loop = createLoop({
    pollIntervalMs: 20,
    timeoutMs: 600_000,
    onAttempt: () => quick.received.length === 21 && resolve(),
  })
  loop.start()
  const sent = () => tarpits.reduce((sum, { received }) => sum + received.length, 0)
  await until('the tarpits occupy their part of the senders', () => sent() === 8)
  for (let i = 0; i < 20; i++) await emit(good.providerId)
  await delivered
  expect(sent()).toBe(8)
})

test('behavior: the loop waits longer and longer before it sends to a silent receiver again, and only the messages that it sends use up attempts', async () => {
  let isBroken = true
  const receiver = await startReceiver((response) =>
    isBroken ? response.destroy() : response.writeHead(204).end(),
  )
  const { providerId, webhookId } = await register(receiver.url)
  for (let i = 0; i < 20; i++) await emit(providerId)
  const clock = createClock()
  const loop = createLoop({ now: clock.ms })
  const sentWithin = async (ms: number) => {
    const before = receiver.received.length
    clock.advance(ms)
    await loop.deliverDue()
    return receiver.received.length - before
  }
  // The pauses are 5 s, 20 s, 80 s, …; at the end of each, one message is sent.
  expect(await sentWithin(0)).toBe(1)
  expect(await sentWithin(4_999)).toBe(0)
  expect(await sentWithin(1)).toBe(1)
  expect(await sentWithin(19_999)).toBe(0)
  expect(await sentWithin(1)).toBe(1)
  isBroken = false
  expect(await sentWithin(80_000)).toBe(20)
  const attempts = (await log(webhookId)).map((delivery) => delivery.attempts.length)
  expect(attempts.reduce((sum, count) => sum + count)).toBe(23)
})

test('behavior: a message fails if its receiver has been silent for three days', async () => {
  const receiver = await startReceiver(() => {})
  const { providerId, webhookId } = await register(receiver.url)
  for (let i = 0; i < 5; i++) await emit(providerId)
  await database`update outbox set created_at = ${new Date(start.getTime() - 73 * 3_600_000)}`
  const loop = createLoop({ now: createClock().ms, timeoutMs: 100 })
  expect(await loop.deliverDue()).toBe(1)
  const statuses = (await log(webhookId)).map(({ status }) => status)
  expect(statuses.toSorted()).toEqual(['failed', 'failed', 'failed', 'failed', 'pending'])
  expect(await deliveryBacklog(database)).toMatchObject({ pending: 1 })
})

test('behavior: signs messages with both secrets during a rotation', async () => {
  const receiver = await startReceiver()
  const { providerId, webhookId, secret } = await register(receiver.url)
  const next = newWebhookSecret()
  const now = new Date()
  await rotateSecret(database, { providerId, id: webhookId, secret: next, now })
  await emit(providerId)
  await createLoop().deliverDue()
  const [both] = receiver.received
  if (!both) throw new Error('nothing received')
  expect(both.headers['webhook-signature']).toMatch(/^v1,\S+ v1,\S+$/)
  expect(verify(both, secret)).toEqual(verify(both, next))
  // A day later only the new secret signs.
  await database`update webhook set previous_secret_expires_at = now() - interval '1 second' where id = ${webhookId}`
  await emit(providerId)
  await createLoop().deliverDue()
  const [, one] = receiver.received
  if (!one) throw new Error('nothing received')
  expect(verify(one, next)).toBeDefined()
  expect(() => verify(one, secret)).toThrow('signature')
})

test('behavior: a receiver that answers 410 Gone gets no more messages', async () => {
  const receiver = await startReceiver((response) => response.writeHead(410).end())
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  const loop = createLoop()
  await loop.deliverDue()
  await emit(providerId)
  expect(await loop.deliverDue()).toBe(0)
  expect(await log(webhookId)).toMatchObject([{ status: 'failed', attempts: [{ failure: 'gone' }] }])
})

test('behavior: nothing is sent to a deleted receiver', async () => {
  const receiver = await startReceiver()
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  await dispatchOutbox(database, { now: new Date(), limit: 10 })
  expect(await deleteWebhook(database, providerId, webhookId)).toBe(true)
  expect(await deleteWebhook(database, providerId, webhookId)).toBe(false)
  expect(await createLoop().deliverDue()).toBe(0)
})

test('behavior: an event always gets the same message id', async () => {
  const receiver = await startReceiver()
  const { providerId } = await register(receiver.url)
  const txHash = `0x${'cd'.repeat(32)}`
  await emit(providerId, 'batch.confirmed', txHash)
  await emit(providerId, 'batch.confirmed', txHash)
  await emit(providerId, 'batch.confirmed', `0x${'ef'.repeat(32)}`)
  await createLoop().deliverDue()
  expect(receiver.received).toHaveLength(3)
  expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(2)
})

test('error: an address that became private is not called, and the log shows why', async () => {
  const receiver = await startReceiver()
  const { providerId, webhookId } = await register(
    receiver.url.replace('http:', 'https:').replace('127.0.0.1', 'rebind.example'),
  )
  await emit(providerId)
  const guard = createAddressGuard({
    allowPrivate: false,
    resolve: async () => [{ address: '127.0.0.1', family: 4 }],
  })
  await createLoop({ guard }).deliverDue()
  expect(receiver.received).toEqual([])
  expect(await log(webhookId)).toMatchObject([
    { status: 'pending', attempts: [{ failure: 'address_refused' }] },
  ])
})

test('error: records a timeout if the receiver does not answer in time, and retries', async () => {
  const receiver = await startReceiver(() => {})
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  await createLoop({ timeoutMs: 200 }).deliverDue()
  expect(await log(webhookId)).toMatchObject([
    { status: 'pending', attempts: [{ failure: 'timeout', httpStatus: null }] },
  ])
})

test.each(['check_violation', 'query_canceled'])(
  'behavior: 200 messages that can’t be dispatched (%s) do not delay other messages',
  async (code) => {
    const receiver = await startReceiver()
    const [bad, good] = [await register(receiver.url), await register(receiver.url)]
    for (let n = 0; n < 200; n++) await emit(bad.providerId)
    await emit(good.providerId)
    const allow = await refuseWrites(
      database,
      'webhook_delivery',
      'insert',
      `new.webhook_id = '${bad.webhookId}'`,
      code,
    )
    const reports = collectBadRows()
    const clock = createClock()
    const loop = createLoop({ onBadRow: reports.onBadRow, now: clock.ms })
    expect(await loop.deliverDue()).toBe(1)
    expect(await log(good.webhookId)).toMatchObject([{ status: 'delivered' }])
    expect(reports.bad.filter(({ step }) => step === 'message')).toHaveLength(200)
    await allow()
    clock.advance(6_000)
    expect(await loop.deliverDue()).toBe(200)
  },
)

test('behavior: the loop returns to full batches after a deadlock that no message caused', async () => {
  const receiver = await startReceiver()
  const { providerId } = await register(receiver.url, ['payment.settled'])
  await database`
    insert into outbox (event, provider_id, data)
    select 'batch.confirmed', ${providerId}, '{}' from generate_series(1, 1600)`
  // The trigger makes the first dispatch fail. It counts dispatches with a sequence, because a sequence keeps its value when a transaction is rolled
  // back.
  await database.unsafe(`
    create sequence dispatches;
    create function deadlock_once() returns trigger language plpgsql as $$
      begin
        if nextval('dispatches') = 1 then raise exception 'for a test' using errcode = 'deadlock_detected'; end if;
        return null;
      end $$;
    create trigger deadlock_once before update on outbox for each statement execute function deadlock_once()`)
  const reports = collectBadRows()
  await createLoop({ onBadRow: reports.onBadRow }).deliverDue()
  const [{ dispatches }] = await database<[{ dispatches: number }]>`
    select last_value::int as dispatches from dispatches`
  await database.unsafe(
    'drop trigger deadlock_once on outbox; drop function deadlock_once; drop sequence dispatches',
  )
  const [{ left }] = await database<[{ left: number }]>`
    select count(*)::int as left from outbox where dispatched_at is null`
  expect({ left, bad: reports.bad }).toEqual({ left: 0, bad: [] })
  // One dispatch failed. After that, 500 messages (a full batch) were dispatched one by one, and the other 1,100 in three batches.
  expect(dispatches).toBe(1 + 500 + 3)
})

test('behavior: an error while a message is being signed counts as a failed attempt', async () => {
  const receiver = await startReceiver()
  const { providerId, webhookId } = await register(receiver.url)
  await database`update webhook set secret = 'whsec_' where id = ${webhookId}`
  await emit(providerId)
  const reports = collectBadRows()
  await createLoop({ onBadRow: reports.onBadRow }).deliverDue()
  expect(receiver.received).toEqual([])
  expect(await log(webhookId)).toMatchObject([{ status: 'pending', attempts: [{ failure: 'not_sent' }] }])
  expect(reports.bad).toMatchObject([{ step: 'delivery' }])
})

test('error: if the database is down when a result is stored, the message is sent again and not reported as a bad row', async () => {
  const url = new URL(databaseUrl)
  const proxy = await startCutProxy(url.hostname, Number(url.port))
  url.host = `127.0.0.1:${proxy.port}`
  const sql = openDatabase({ url: url.href, applicationName: 'test' })
  const receiver = await startReceiver((response, count) => {
    if (count === 1) proxy.cut()
    response.writeHead(204).end()
  })
  cleanups.push(() => sql.end({ timeout: 1 }), proxy.close)
  const { providerId, webhookId } = await register(receiver.url)
  await emit(providerId)
  const reports = collectBadRows()
  const clock = createClock()
  let outages = 0
  const onError = () => {
    outages++
  }
  const loop = createLoop({ sql, onError, onBadRow: reports.onBadRow, now: clock.ms })
  await expect(loop.deliverDue()).rejects.toThrow()
  expect({ outages, bad: reports.bad }).toEqual({ outages: 1, bad: [] })
  proxy.mend()
  clock.advance(1_000_000)
  expect(await loop.deliverDue()).toBe(1)
  expect(await log(webhookId)).toMatchObject([{ status: 'delivered' }])
  expect(receiver.received).toHaveLength(2)
})
