import { randomBytes } from 'node:crypto'
import { storeRefund } from '@tollkeeper/ledger/acceptance/refunds'
import { setConfirmed } from '@tollkeeper/ledger/facts/record'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { notifyBatches, notifyReverted, notifySettled } from '@tollkeeper/ledger/results/notifications'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { unwrapWebhook } from '@tollkeeper/sdk/provider/webhooks'
import { beforeAll, describe, expect, test } from 'vitest'
import { serve } from '../../sdk/test/serve.ts'
import { useDatabase } from '../../test/support/database.ts'
import { seedBatch } from '../../test/support/seedBatch.ts'
import {
  blockHashOf,
  seedChainId,
  seedHalf,
  seedPayment,
  seedProvider,
  seedSettlement,
  toCandidate,
} from '../../test/support/seedPayments.ts'
import { seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { eventBodies } from './eventBodies.ts'
import type { WebhookEvent } from './events.ts'
import { webhookEvents } from './events.ts'
import { type Message, signMessage } from './message.ts'
import { sendTest } from './sendTest.ts'

const sql = await useDatabase()
const network = 'localhost'
const now = new Date('2026-11-21T13:00:00Z')
const secrets = [`whsec_${randomBytes(24).toString('base64')}`]

let height = 1_000
const blockTime = 1_795_262_400

/** Confirms the newest block, and sends notifications about what it settled. */
async function confirm(): Promise<void> {
  const block = { blockNumber: BigInt(height), blockHash: blockHashOf(height) }
  await sql.begin(async (tx) => {
    await setConfirmed(tx, seedChainId, block, now)
    await notifySettled(tx, { chainId: seedChainId, network, block })
  })
}

/** Settles a payment, then reverts it in a reorg, then lets it fail three times, and finally fail permanently. */
async function liveThrough(paymentId: string, settle: () => Promise<unknown>): Promise<void> {
  height++
  await settle()
  await confirm()
  await notifyReverted(sql, network, [paymentId])
}

async function fail(paymentId: string): Promise<void> {
  const failure = { paymentId, batchId: null, code: 'insufficient_balance', detail: '' }
  for (const isFinal of [false, false, false, true])
    await recordFailure(sql, { ...failure, isFinal }, { now })
}

async function readMessages(): Promise<Message[]> {
  const rows = await sql<(Omit<Message, 'event'> & { event: WebhookEvent })[]>`
    select id::text as "messageId", event, created_at as "createdAt", payment_id as "paymentId", tx_hash as "txHash", data
    from outbox order by id`
  return rows.map((row) => ({ ...row, secrets }))
}

let messages: Message[]

beforeAll(async () => {
  const provider = await seedProvider(sql)
  const seed = () => seedPayment(sql, { provider })
  const seedRefund = async (number: number) => {
    const { paymentId } = await seed()
    const half = seedHalf({ value: 10n })
    const candidate = toCandidate({ source: 'refund', payer: provider.wallet, halves: [half] })
    await storeRefund(sql, { paymentId, number, providerId: provider.providerId }, candidate)
    return { paymentId: candidate.id, payer: provider.wallet, nonces: [half.nonce, half.nonce] as const }
  }
  const payment = await seed()
  await liveThrough(payment.paymentId, async () => {
    const txHash = await seedSettlement(sql, payment, { blockNumber: height, blockTime })
    const block = { blockNumber: BigInt(height), blockHash: blockHashOf(height) }
    await seedBatch(sql, 7, { ...block, blockTime: BigInt(blockTime), txHash, logIndex: 9 })
  })
  await notifyBatches(sql, { chainId: seedChainId, network, after: -1n, upTo: BigInt(height) })
  await fail((await seed()).paymentId)

  const tab = await seedTab(sql, { closedAt: now, sales: [{ provider, requests: 3 }] })
  await liveThrough(tab.paymentId, () => settleTab(sql, tab, { blockNumber: height }))
  await fail((await seedTab(sql, { closedAt: now, sales: [{ provider, requests: 3 }] })).paymentId)

  const refund = await seedRefund(1)
  const halves = [0] as const
  await liveThrough(refund.paymentId, () =>
    seedSettlement(
      sql,
      { ...refund, nonces: [...refund.nonces] },
      { halves: [...halves], blockNumber: height, blockTime },
    ),
  )
  await fail((await seedRefund(1)).paymentId)
  messages = await readMessages()
})

test('this test writes every kind of message', () => {
  expect([...new Set(messages.map(({ event }) => event))].sort()).toEqual([...webhookEvents].sort())
  expect([...eventBodies.keys()].sort()).toEqual([...webhookEvents, 'webhook.test'].sort())
})

describe('a message', () => {
  test.each(webhookEvents)('%s matches its schema in the OpenAPI document', (event) => {
    for (const message of messages.filter((one) => one.event === event)) {
      const body: unknown = JSON.parse(signMessage(message, now).body)
      // Reading with the schema drops fields that the document doesn't have.
      expect(eventBodies.get(event)?.parse(body)).toEqual(body)
    }
  })

  test.each(webhookEvents)("%s is verified and typed by the SDK's unwrapWebhook", async (event) => {
    const message = messages.find((one) => one.event === event)
    if (!message) throw new Error(`no ${event}`)
    const { body, headers } = signMessage(message, now)
    const unwrapped = await unwrapWebhook(body, headers, secrets, { now: now.getTime() })
    expect(unwrapped).toEqual({ ...JSON.parse(body), id: message.messageId })
    expect(unwrapped.type).toBe(event)
  })
})

test('the receiver of a test event gets a body that matches its schema in the OpenAPI document', async () => {
  const received = Promise.withResolvers<unknown>()
  const url = await serve(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    response.end()
    unwrapWebhook(body, request.headers, secrets).then(received.resolve, received.reject)
  })
  const receiver = { webhookId: 'wh_1', url, secrets }
  const guard = createAddressGuard({ allowPrivate: true })
  expect(await sendTest(receiver, { guard, now: Date.now })).toMatchObject({ delivered: true })
  const { id: _, ...body } = (await received.promise) as { id: string; type: string }
  expect(body.type).toBe('webhook.test')
  expect(eventBodies.get('webhook.test')?.parse(body)).toEqual(body)
})
