import { acceptPayments } from '@tollkeeper/ledger/acceptance/acceptPayments'
import { setBatchState } from '@tollkeeper/ledger/batches/batches'
import { claimPayments } from '@tollkeeper/ledger/batches/claims'
import { acquireLease } from '@tollkeeper/ledger/batches/leases'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import type { Lane } from '@tollkeeper/ledger/queue/lanes'
import { readQueueDepth } from '@tollkeeper/ledger/queue/queueDepth'
import { deferPayments, endPayments, isolatePayments, stages } from '@tollkeeper/ledger/queue/stages'
import { voidPayment } from '@tollkeeper/ledger/results/voids'
import type { Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { expect, test } from 'vitest'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { seedPayment, seedSettlement, toCandidate } from '../../test/support/seedPayments.ts'
import { closeTab } from '../../test/support/tabs.ts'
import { randomHex, validFor } from '../../test/support/usdc.ts'
import { useGateway } from '../../test/support/useGateway.ts'

// Seeds one payment at each stage and asks every view about it. The answers must agree with docs/where-is-my-payment.md.

const gateway = useGateway()

const minuteMs = 60_000

type QueueOfWallet = {
  payments: number
  settlingPayments: number
  retryingPayments: number
  triggers: { time: { since: string | null } }
}

/** Returns what each view answers about a shop's only payment. */
async function askDoors(shop: Shop, paymentId: string) {
  const { app, database, served } = gateway
  const at = `/providers/${shop.providerId}`
  const [payment, list, queue, status, revenue, depths] = await Promise.all([
    call<{ payment_status?: string }>(app, 'GET', `/payments/${paymentId}`),
    call<{ payments: { payment_status: string }[] }>(app, 'GET', `${at}/payments`, { key: shop.key }),
    call<{ wallets: QueueOfWallet[] }>(app, 'GET', `${at}/queue`, { key: shop.key }),
    call<{ payment_count: number; accumulated_usdc: string }>(
      app,
      'GET',
      `/settlements/status?wallet=${shop.wallet}`,
    ),
    call<{ revenue: { payments: number }[] }>(app, 'GET', `${at}/revenue?interval=total`, { key: shop.key }),
    readQueueDepth(database, { chainId: served.network.chainId, token: served.token }),
  ])
  const depth = depths.find(({ payee }) => payee === shop.wallet)
  const [wallet] = queue.body.wallets
  return {
    payment: payment.status === 200 ? payment.body.payment_status : payment.status,
    listed: list.body.payments.map(({ payment_status }) => payment_status),
    waiting: wallet?.payments,
    triggers: wallet?.triggers.time.since != null,
    settling: wallet?.settlingPayments,
    retrying: wallet?.retryingPayments,
    status: status.body.payment_count,
    revenue: revenue.body.revenue.reduce((sum, { payments }) => sum + payments, 0),
    metrics: depth ? [depth.verified, depth.retrying, depth.settling] : null,
  }
}

/** Seeds a payment of a separate shop, in the chain's real USDC, so that the keeper would see it. */
async function accept(first: Parameters<typeof toCandidate>[0]['first'] = { stage: 'waiting' }) {
  const { database, served } = gateway
  const shop = await openShop(gateway.app)
  const seed = await seedPayment(database, { provider: { ...shop, endpointIds: [shop.endpointId] } })
  // Accepts the same payment through the ledger, with this chain's token; the seed only provides its identifiers.
  await database`delete from payment where id = ${seed.paymentId}`
  const nonces: [Hex, Hex] = [randomHex(32), randomHex(32)]
  const window = validFor(93_600)
  const signed = { ...window, signature: randomHex(65), acceptedBlock: null }
  const isFacilitated = first?.stage === 'reserved' || first?.stage === 'due'
  const own = { recipient: shop.wallet, value: 47_500n, nonce: nonces[0], ...signed }
  const candidate = toCandidate({
    id: seed.paymentId,
    providerId: shop.providerId,
    chainId: served.network.chainId,
    token: served.token,
    endpointId: isFacilitated ? null : shop.endpointId,
    payer: randomHex(20),
    payee: shop.wallet,
    feeRecipient: gateway.settings.platformWallet,
    ...(isFacilitated && {
      source: 'facilitator' as const,
      facilitation: { providerId: shop.providerId, paymentIdentifier: null },
    }),
    halves: isFacilitated
      ? [own]
      : [own, { recipient: gateway.settings.platformWallet, value: 2_500n, nonce: nonces[1], ...signed }],
    resource: shop.url,
    acceptedAt: new Date(),
    first,
  })
  expect(await acceptPayments(database, [candidate])).toEqual(['accepted'])
  return { shop, paymentId: seed.paymentId, nonces, payer: candidate.payer }
}

async function claim(paymentId: string, lane: Lane = 'shared') {
  const { database, served } = gateway
  const { chainId } = served.network
  const wallet = randomHex(20)
  const lease = await acquireLease(database, { chainId, address: wallet, holder: 'test', ttlMs: 60_000 })
  if (!lease) throw new Error('no lease')
  const { batch } = await claimPayments(
    database,
    lease,
    {
      batchId: randomHex(32),
      token: served.token,
      feeRecipient: gateway.settings.platformWallet,
      trigger: 'time',
      lane,
      paymentIds: [paymentId],
    },
    new Date(),
  )
  if (!batch) throw new Error('nothing claimed')
  return batch
}

const fail = (paymentId: string, isFinal = false) =>
  recordFailure(
    gateway.database,
    { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal },
    { now: new Date() },
  )

const waiting = { waiting: 1, triggers: true, settling: 0, retrying: 0, status: 1, revenue: 1 }
const verified = { payment: 'verified', listed: ['verified'], metrics: [1, 0, 0] }
const apart = { ...waiting, triggers: false }
const retrying = {
  ...apart,
  waiting: 0,
  retrying: 1,
  payment: 'retrying',
  listed: ['retrying'],
  metrics: [0, 1, 0],
}
/** The payment is not in the queue. */
const gone = { ...waiting, waiting: 0, triggers: false, status: 0, metrics: null }
const over = (status: string) => ({ ...gone, payment: status, listed: [status] })

/** Accepts a payment, then applies a change to it. */
const after = (change: (payment: Awaited<ReturnType<typeof accept>>) => Promise<unknown>) => async () => {
  const payment = await accept()
  await change(payment)
  return payment
}

async function end({ paymentId }: { paymentId: string }, kind: 'spent' | 'settled') {
  const ending = { paymentId, kind, code: null, isFinal: kind === 'settled' }
  await endPayments(gateway.database, [ending], new Date())
}

const cases: Record<string, [arrange: () => Promise<{ shop: Shop; paymentId: string }>, expected: object]> = {
  reserved: [
    () => accept({ stage: 'reserved', until: Date.now() + minuteMs }),
    { ...gone, payment: 404, listed: [], revenue: 0 },
  ],
  waiting: [() => accept(), { ...waiting, ...verified }],
  'waiting, due': [() => accept({ stage: 'due', since: Date.now() }), { ...apart, ...verified }],
  deferred: [
    after(({ paymentId }) => deferPayments(gateway.database, [paymentId], new Date(Date.now() + minuteMs))),
    { ...apart, ...verified },
  ],
  retrying: [after(({ paymentId }) => fail(paymentId)), retrying],
  isolated: [
    after(({ paymentId }) => isolatePayments(gateway.database, [paymentId])),
    { ...apart, ...verified },
  ],
  claimed: [after(({ paymentId }) => claim(paymentId)), { ...apart, ...verified }],
  'claimed, failed before': [
    after(async ({ paymentId }) => {
      await fail(paymentId)
      await claim(paymentId)
    }),
    retrying,
  ],
  sent: [
    after(async ({ paymentId }) => {
      const { id } = await claim(paymentId)
      await setBatchState(gateway.database, id, 'broadcast')
    }),
    { ...apart, waiting: 0, settling: 1, payment: 'settling', listed: ['settling'], metrics: [0, 0, 1] },
  ],
  'outcome spent': [
    after(async (payment) => {
      await seedSettlement(gateway.database, payment)
      await end(payment, 'spent')
    }),
    over('settled'),
  ],
  'outcome settled': [
    after(async (payment) => {
      await seedSettlement(gateway.database, payment)
      await end(payment, 'settled')
    }),
    over('settled'),
  ],
  'outcome failed': [after(({ paymentId }) => fail(paymentId, true)), over('failed')],
  'outcome voided': [
    after(async ({ paymentId, shop: { providerId } }) => {
      expect(await voidPayment(gateway.database, { paymentId, providerId, now: new Date() })).toBe('voided')
    }),
    { ...over('voided'), revenue: 0 },
  ],
}

for (const [name, [arrange, expected]] of Object.entries(cases))
  test(`behavior: all views agree about a payment that is ${name}`, async () => {
    const { shop, paymentId } = await arrange()
    expect(await askDoors(shop, paymentId)).toEqual(expected)
  })

test('behavior: a closed tab is shown at its stage, under the contract that settles it', async () => {
  const { app, database, served } = gateway
  const { wallet: payee } = await openShop(app)
  const contract = served.deployment.tabSettlement
  const ask = async (paymentId: string) => {
    const { body } = await call<{ payment_status: string }>(app, 'GET', `/payments/${paymentId}`)
    const depths = await readQueueDepth(database, { chainId: served.network.chainId, token: served.token })
    const depth = depths.find((one) => one.payee === contract)
    return [body.payment_status, depth ? [depth.verified, depth.retrying, depth.settling] : null]
  }
  const close = async () => {
    const buyer = privateKeyToAccount(generatePrivateKey())
    const platform = gateway.settings.platformWallet
    const tab = await closeTab({ database, served, payee }, { buyer, platform, lines: [{ amount: 50_000n }] })
    return {
      paymentId: tab.paymentId,
      payer: tab.state.authorization.from,
      nonce: tab.state.authorization.nonce,
    }
  }
  const { paymentId } = await close()
  expect(await ask(paymentId)).toEqual(['verified', [1, 0, 0]])
  await fail(paymentId)
  expect(await ask(paymentId)).toEqual(['retrying', [0, 1, 0]])
  const { id } = await claim(paymentId, 'tab')
  await setBatchState(database, id, 'broadcast')
  expect(await ask(paymentId)).toEqual(['settling', [0, 0, 1]])
  const { paymentId: failed } = await close()
  await fail(failed, true)
  expect(await ask(failed)).toEqual(['failed', [0, 0, 1]])
})

test('behavior: a payment that settled after retries shows no earlier failure', async () => {
  const { database, app } = gateway
  const read = async ({ paymentId }: { paymentId: string }) =>
    (await call<object>(app, 'GET', `/payments/${paymentId}`)).body
  const payment = await accept()
  await fail(payment.paymentId)
  expect(await read(payment)).toMatchObject({
    payment_status: 'retrying',
    failureCode: 'insufficient_balance',
    attempts: 1,
  })
  await seedSettlement(database, payment)
  expect(await read(payment)).toMatchObject({ payment_status: 'settled', failureCode: null, attempts: 1 })
  const given = await accept()
  await fail(given.paymentId, true)
  await seedSettlement(database, given)
  expect(await read(given)).toMatchObject({ payment_status: 'settled', failureCode: null })
})

test('default: every stage has a test', () => {
  for (const stage of stages) expect(Object.keys(cases)).toContain(stage)
})
