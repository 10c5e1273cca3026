import { randomUUID } from 'node:crypto'
import { claimPayments } from '@tollkeeper/ledger/batches/claims'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { createRetention } from '@tollkeeper/ledger/results/retention'
import { audit } from '@tollkeeper/sdk/audit/audit'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { attenuateMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import { parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { decodeJwt, type JSONWebKeySet } from 'jose'
import type { Address } from 'viem'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { noBadRows } from '../../../test/support/badRows.ts'
import { leaseWallet } from '../../../test/support/claim.ts'
import { endForGood } from '../../../test/support/endForGood.ts'
import {
  call,
  openShop,
  platformWallet,
  recordReceipt,
  settleDirectly,
  signedBody,
  type VerifyBody,
} from '../../../test/support/gateway.ts'
import { withoutIndex } from '../../../test/support/indexTables.ts'
import { until } from '../../../test/support/until.ts'
import { cancelDirectly, randomHex } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import type { App } from '../../http/app.ts'
import { hmacSha256 } from '../../http/hmac.ts'

const gateway = useGateway()
const shop = useShop(gateway)

type Verified = { verified: boolean; paymentId?: string; receipt?: string; code?: string }

function verify(body: VerifyBody, options: { app?: App; idempotencyKey?: string; key?: string } = {}) {
  const { app = gateway.app, idempotencyKey, key } = options
  return call<Verified>(app, 'POST', '/verify', {
    json: body,
    ...(idempotencyKey !== undefined && { headers: { 'idempotency-key': idempotencyKey } }),
    ...(key !== undefined && { key }),
  })
}

const codesOf = (answers: { body: Verified }[]) => answers.map(({ body }) => body.code ?? 'verified').sort()

async function acceptedTotal(payer: Address): Promise<bigint> {
  const [row] = await gateway.database<{ total: bigint }[]>`
    select accepted_total as total from payer where address = ${payer.toLowerCase()}`
  return row?.total ?? 0n
}

describe('replay', () => {
  test('behavior: accepts ten parallel copies of a request as one payment, also across two processes', async () => {
    const payer = await gateway.buyer(50_000n)
    const body = await signedBody(gateway, shop, payer)
    const apps = [gateway.app, gateway.another()]
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) => verify(body, { app: apps[i % 2] as App })),
    )
    expect(codesOf(answers)).toEqual([...Array(9).fill('payment_replayed'), 'verified'])
    const accepted = answers.find(({ status }) => status === 200)
    for (const { status, body: problem } of answers) {
      if (status !== 200) expect([status, problem.paymentId]).toEqual([409, accepted?.body.paymentId])
    }
    expect(await acceptedTotal(payer.address)).toBe(50_000n)
  })

  test('behavior: the same Idempotency-Key and body get the same answer, immediately and later', async () => {
    const body = await signedBody(gateway, shop, await gateway.buyer(50_000n))
    const idempotencyKey = randomUUID()
    const answers = await Promise.all(Array.from({ length: 5 }, () => verify(body, { idempotencyKey })))
    expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(200))
    const receipts = answers.map(({ body: { receipt } }) => receipt ?? '')

    // The macaroon has expired since, and the balance is reserved for this payment.
    gateway.setNow(Date.now() + 600_000)
    try {
      const { status, body: late } = await verify(body, { idempotencyKey, app: gateway.another() })
      expect(status).toBe(200)
      receipts.push(late.receipt ?? '')
      expect((await verify(body)).body.code).toBe('payment_replayed')
    } finally {
      gateway.setNow(null)
    }
    // Each receipt is signed again, with the same claims.
    const { body: jwks } = await call<JSONWebKeySet>(gateway.app, 'GET', '/.well-known/jwks.json')
    const [claims, ...repeated] = await Promise.all(receipts.map((receipt) => verifyReceipt(receipt, jwks)))
    expect(repeated).toEqual(Array(5).fill(claims))
  })

  test('behavior: rejects a stored payment as a replay if it arrives with another Idempotency-Key, or with another body under the same key', async () => {
    const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    const idempotencyKey = randomUUID()
    await verify(body, { idempotencyKey })
    expect((await verify(body, { idempotencyKey: randomUUID() })).body.code).toBe('payment_replayed')
    const other = { ...body, macaroon: attenuateMacaroon(body.macaroon, { maxAmount: 60_000n }, hmacSha256) }
    expect((await verify(other, { idempotencyKey })).body.code).toBe('payment_replayed')
  })

  test('behavior: after RETENTION_DAYS a repeated request gets no answer, but receipts can still be audited', async () => {
    const [over, open] = await Promise.all(
      Array.from({ length: 2 }, async () => signedBody(gateway, shop, await gateway.buyer(50_000n))),
    )
    if (!over || !open) throw new Error('nothing was signed')
    const idempotencyKey = randomUUID()
    // Presentations are deleted in the order of their ids, which begin with the time in milliseconds. So the deletion passes the presentation of
    // `open`, which is kept, before it reaches the presentation of `over`, which is deleted.
    await verify(open, { idempotencyKey })
    await new Promise((resolve) => setTimeout(resolve, 2))
    const { body: first } = await verify(over, { idempotencyKey })
    for (const payload of over.payloads) await settleDirectly(gateway, payload)
    await endForGood(gateway.database, { paymentId: first.paymentId ?? '', kind: 'settled', code: null })
    const receipts = async () => {
      const { body } = await call<{ receipt: string }>(gateway.app, 'GET', `/receipts/${first.paymentId}`)
      return [first.receipt ?? '', body.receipt]
    }
    const viewed = () => call(gateway.app, 'GET', `/payments/${first.paymentId}`)
    const audited = async () => {
      const { body: jwks } = await call<JSONWebKeySet>(gateway.app, 'GET', '/.well-known/jwks.json')
      const { deployments, url } = gateway.chain
      return audit({ receipts: await receipts(), jwks, rpcUrls: [url], deployments, confirmations: 0 })
    }
    const owed =
      (await verify(await signedBody(gateway, shop, await gateway.buyer(1_000_000n)))).body.paymentId ?? ''
    await endForGood(gateway.database, { paymentId: owed, kind: 'failed', code: 'insufficient_balance' })
    const [view, report] = [await viewed(), await audited()]
    expect(report).toMatchObject({ reconciled: true, states: { settled: 2 } })

    // A month later all presentations are old, and the presentation of the final payment is deleted. One payment is still owed, so its signatures are
    // kept as proof. Each call reads one page, and the call after the last page begins again with the first page.
    const count = async () => (await gateway.database`select from presentation`).length
    const before = await count()
    const now = () => Date.now() + 31 * 86_400_000
    const forget = createRetention(gateway.database, { days: 30, now, limit: 1, onBadRow: noBadRows })
    for (let page = 0; page < 2 * before; page++) await forget()
    expect(await count()).toBe(before - 1)
    await gateway.database`insert into forgiven_debt (payment_id, reason) values (${owed}, 'a gift')`
    for (let page = 0; page < before; page++) await forget()
    expect(await count()).toBe(before - 2)
    expect((await verify(over, { idempotencyKey })).body).toMatchObject({
      code: 'payment_replayed',
      paymentId: first.paymentId,
    })
    expect((await verify(open, { idempotencyKey })).status).toBe(200)
    expect([await viewed(), await audited()]).toEqual([view, report])
  })

  test('behavior: payer and nonce, which the chain shows, reveal nothing about the payment to a stranger', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    await verify(body)
    // The stranger has everything except the signatures, or everything except the macaroon.
    const stranger = await gateway.buyer(0n)
    const unsigned = await signedBody(gateway, shop, stranger)
    const [provider, fee] = body.payloads
    const forge = (payload: string) => payload.replace(/,0x[0-9a-f]+$/, `,0x${'1b'.padStart(130, '1')}`)
    const forged: [string, string] = [forge(provider), forge(fee)]
    const attempts: VerifyBody[] = [
      { ...body, payloads: forged },
      { ...unsigned, payloads: forged },
      { ...body, macaroon: body.macaroon.replace(/.{4}$/, 'AAAA') },
    ]
    for (const now of [null, Date.now() + 600_000, Date.now() + 200_000_000]) {
      gateway.setNow(now)
      try {
        for (const attempt of attempts) {
          for (const options of [{}, { idempotencyKey: 'any' }]) {
            const answer = await verify(attempt, options)
            expect([answer.status, answer.body.paymentId]).toEqual([402, undefined])
          }
        }
      } finally {
        gateway.setNow(null)
      }
    }
  })

  test('error: a caller that asks about a payment without its signatures learns nothing about it', async () => {
    const body = await signedBody(gateway, shop, await gateway.buyer(50_000n))
    expect((await verify(body, { idempotencyKey: randomUUID() })).status).toBe(200)
    const about = (json: VerifyBody) =>
      call<Verified>(gateway.app, 'POST', '/verify', {
        json,
        headers: { 'idempotency-key': randomUUID(), 'if-match': '*' },
      })
    expect((await about(body)).body.code).toBe('payment_replayed')
    const [provider, platform] = body.payloads
    // Changes the first digits of the signature, which is the last field.
    const forged = provider.replace(/,0x[0-9a-f]{4}(?=[0-9a-f]*$)/, ',0x0000')
    expect((await about({ ...body, payloads: [forged, platform] })).body.code).toBe('unknown_payment')
  })

  test('behavior: a challenge buys only once, even if it is signed again', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    await verify(body)
    const second = await signedBody(gateway, shop, payer)
    expect((await verify({ ...body, payloads: second.payloads })).body.code).toBe('payment_replayed')
  })

  test('behavior: a payment with one new and one stored authorization is refused, and nothing of it is stored', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const nonce = `0x${'5'.repeat(64)}` as const
    await verify(await signedBody(gateway, shop, payer, [{}, { nonce }]))
    const answer = await verify(await signedBody(gateway, shop, payer, [{}, { nonce }]))
    expect([answer.status, answer.body.code]).toEqual([409, 'payment_replayed'])
    expect(await acceptedTotal(payer.address)).toBe(50_000n)
    const rows = await gateway.database`select from payment where payer = ${payer.address.toLowerCase()}`
    expect(rows.length).toBe(1)
  })
})

describe('balance', () => {
  test('behavior: if the balance is enough for one payment, accepts only one of ten parallel payments, also across two processes', async () => {
    const payer = await gateway.buyer(50_000n)
    const bodies = await Promise.all(Array.from({ length: 10 }, () => signedBody(gateway, shop, payer)))
    const apps = [gateway.app, gateway.another()]
    const answers = await Promise.all(bodies.map((body, i) => verify(body, { app: apps[i % 2] as App })))
    expect(codesOf(answers)).toEqual([...Array(9).fill('insufficient_balance'), 'verified'])
    expect(await acceptedTotal(payer.address)).toBe(50_000n)
  })

  test('behavior: accepts all of 20 simultaneous payments that the balance covers together', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const bodies = await Promise.all(Array.from({ length: 20 }, () => signedBody(gateway, shop, payer)))
    const answers = await Promise.all(bodies.map((body) => verify(body)))
    expect(codesOf(answers)).toEqual(Array(20).fill('verified'))
    const last = await signedBody(gateway, shop, payer)
    expect((await verify(last)).body.code).toBe('insufficient_balance')
  })

  test('behavior: a payment that settles after the balance was cached does not free its amount twice', async () => {
    const payer = await gateway.buyer(100_000n)
    const first = await signedBody(gateway, shop, payer)
    expect((await verify(first)).status).toBe(200)
    await settleDirectly(gateway, first.payloads[0])
    await settleDirectly(gateway, first.payloads[1])
    // 50,000 are left. The cache still has 100,000, of which 50,000 are reserved.
    expect((await verify(await signedBody(gateway, shop, payer))).status).toBe(200)
    expect((await verify(await signedBody(gateway, shop, payer))).body.code).toBe('insufficient_balance')
    // A process that has nothing cached gives the same result.
    const fresh = gateway.another()
    expect((await verify(await signedBody(gateway, shop, payer), { app: fresh })).body.code).toBe(
      'insufficient_balance',
    )
  })

  test('behavior: a top-up counts immediately', async () => {
    const payer = await gateway.buyer(50_000n)
    await verify(await signedBody(gateway, shop, payer))
    const body = await signedBody(gateway, shop, payer)
    expect((await verify(body)).body.code).toBe('insufficient_balance')
    await gateway.chain.mintUsdc([payer.address], 50_000n)
    await expect.poll(async () => (await verify(body)).status, { interval: 120 }).toBe(200)
  })

  test('behavior: a voided payment frees what it reserved', async () => {
    const payer = await gateway.buyer(50_000n)
    const { body: accepted } = await verify(await signedBody(gateway, shop, payer))
    const voided = await call(gateway.app, 'POST', `/payments/${accepted.paymentId}/void`, { key: shop.key })
    expect(voided.body).toMatchObject({ payment_status: 'voided' })
    expect((await verify(await signedBody(gateway, shop, payer))).status).toBe(200)
  })

  test('behavior: limits what a payer may owe, with a lower limit for a payer that never settled', async () => {
    const app = gateway.another({ payerCaps: { payer: 150_000n, newPayer: 50_000n } })
    const payer = await gateway.buyer(10_000_000n)
    const first = await signedBody(gateway, shop, payer)
    expect((await verify(first, { app })).status).toBe(200)
    const second = await signedBody(gateway, shop, payer)
    const refused = await verify(second, { app })
    expect([refused.status, refused.body.code]).toEqual([402, 'payer_limit_exceeded'])
    await settleDirectly(gateway, first.payloads[0])
    await settleDirectly(gateway, first.payloads[1])
    // The state that caused a refusal is cached for a tenth of a second.
    await until(
      'the settled payment no longer counts',
      async () => (await verify(second, { app })).status === 200,
    )
    const answers = []
    for (let i = 0; i < 3; i++) answers.push(await verify(await signedBody(gateway, shop, payer), { app }))
    expect(codesOf(answers)).toEqual(['payer_limit_exceeded', 'verified', 'verified'])
  })

  test('args: checkBalance: false: skips balance checks, but still applies the caps', async () => {
    const app = gateway.another({ checkBalance: false, payerCaps: { payer: 100_000n, newPayer: null } })
    const payer = await gateway.buyer(0n)
    const bodies = await Promise.all([1, 2, 3].map(() => signedBody(gateway, shop, payer)))
    expect((await verify(bodies[0] as VerifyBody)).body.code).toBe('insufficient_balance')
    const answers = await Promise.all(bodies.map((body) => verify(body, { app })))
    expect(codesOf(answers)).toEqual(['payer_limit_exceeded', 'verified', 'verified'])
    const unlimited = gateway.another({ checkBalance: false })
    expect((await verify(await signedBody(gateway, shop, payer), { app: unlimited })).status).toBe(200)
  })

  test('behavior: limits the unsettled amount of a provider', async () => {
    const own = await openShop(gateway.app)
    const app = gateway.another({ providerCap: 100_000n })
    const payer = await gateway.buyer(10_000_000n)
    const answers = []
    for (let i = 0; i < 3; i++) answers.push(await verify(await signedBody(gateway, own, payer), { app }))
    expect(codesOf(answers)).toEqual(['provider_limit_exceeded', 'verified', 'verified'])
    expect(answers[2]?.status).toBe(503)
  })

  test('behavior: without the index, payers are still limited by their stored payments', async () => {
    const payer = await gateway.buyer(50_000n)
    await withoutIndex(gateway.database, async () => {
      expect((await verify(await signedBody(gateway, shop, payer))).status).toBe(200)
      const answer = await verify(await signedBody(gateway, shop, payer))
      expect([answer.status, answer.body.code]).toEqual([402, 'insufficient_balance'])
    })
  })
})

describe('nonces', () => {
  test('behavior: stores a random nonce with the block at which it was unused, and a bound nonce without a block', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const random = () =>
      `0x${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('hex')}` as const
    const { body } = await verify(
      await signedBody(gateway, shop, payer, [{ nonce: random() }, { nonce: random() }]),
    )
    const { body: bound } = await verify(await signedBody(gateway, shop, payer))
    const blocks = (paymentId: string | undefined) => gateway.database<{ block: bigint | null }[]>`
      select accepted_block as block from signed_authorization where payment_id = ${paymentId ?? ''}`
    const head = await gateway.served.client.getBlockNumber()
    expect((await blocks(body.paymentId)).map(({ block }) => block)).toEqual([head, head])
    expect((await blocks(bound.paymentId)).map(({ block }) => block)).toEqual([null, null])
  })

  test('error: refuses a random nonce that was used on chain before', async () => {
    const payer = await gateway.buyer(1_000_000n)
    const nonce = `0x${'6'.repeat(64)}` as const
    const body = await signedBody(gateway, shop, payer, [{ nonce }, {}])
    await settleDirectly(gateway, body.payloads[0])
    // Verifies in another process: the first one may have cached a head from before the settlement. It would then assume that the nonce was used only
    // after the payment was accepted.
    const answer = await verify(body, { app: gateway.another() })
    expect([answer.status, answer.body.code]).toEqual([409, 'authorization_used'])
  })
})

describe('settle before serve', () => {
  test('behavior: if the first request ended without a final answer, exactly one repeated request can take over its payment, even with the first request’s key', async () => {
    const app = gateway.another({ settleBeforeServe: 50_000n, settleBeforeServeTimeoutMs: 300 })
    const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    const first = randomUUID()
    const waiting = await verify(body, { app, idempotencyKey: first })
    expect([waiting.status, waiting.body.code]).toEqual([503, 'settlement_pending'])
    for (const payload of body.payloads) await settleDirectly(gateway, payload)
    const keys = [first, first, ...Array.from({ length: 4 }, () => randomUUID())]
    const answers: { key: string; status: number }[] = []
    for (const key of keys) {
      const { status } = await verify(body, { app, idempotencyKey: key })
      answers.push({ key, status })
    }
    // The request that is repeated with the first key gets the same answer. Requests with any other key get none.
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 409, 409, 409, 409])
  })

  test('error: voids a payment whose settlement failed, and does not serve it', async () => {
    const app = gateway.another({ settleBeforeServe: 50_000n, settleBeforeServeTimeoutMs: 300 })
    const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    const { from, nonce } = parsePayload(body.payloads[0])
    expect((await verify(body, { app, idempotencyKey: randomUUID() })).body.code).toBe('settlement_pending')
    const [stored] = await gateway.database<[{ paymentId: string }]>`
      select payment_id as "paymentId" from signed_authorization where authorizer = ${from} and nonce = ${nonce}`
    const failure = { ...stored, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false }
    await gateway.database.begin((tx) => recordFailure(tx, failure, { now: new Date() }))
    const answer = await verify(body, { app, idempotencyKey: randomUUID() })
    expect([answer.status, answer.body.code]).toEqual([402, 'insufficient_balance'])
    const { body: payment } = await call(app, 'GET', `/payments/${stored.paymentId}`)
    expect(payment).toMatchObject({ payment_status: 'voided' })
  })

  test('error: does not serve a payment whose authorization its payer has cancelled', async () => {
    const app = gateway.another({ settleBeforeServe: 50_000n, settleBeforeServeTimeoutMs: 300 })
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody(gateway, shop, payer)
    expect((await verify(body, { app, idempotencyKey: randomUUID() })).body.code).toBe('settlement_pending')
    const { nonce } = parsePayload(body.payloads[0])
    await recordReceipt(gateway, await cancelDirectly(gateway, payer, nonce))
    const answer = await verify(body, { app, idempotencyKey: randomUUID() })
    expect([answer.status, answer.body.code]).toEqual([503, 'settlement_pending'])
  })

  test('behavior: waits for a payment that failed once and is retried', async () => {
    const app = gateway.another({ settleBeforeServe: 50_000n, settleBeforeServeTimeoutMs: 300 })
    const { database, served } = gateway
    const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    expect((await verify(body, { app, idempotencyKey: randomUUID() })).body.code).toBe('settlement_pending')
    const [{ from, nonce }] = body.payloads.map(parsePayload) as [SignedAuthorization]
    const [{ paymentId }] = await database<[{ paymentId: string }]>`
      select payment_id as "paymentId" from signed_authorization where authorizer = ${from} and nonce = ${nonce}`
    const failure = { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false }
    await database.begin((tx) => recordFailure(tx, failure, { now: new Date() }))
    const terms = { batchId: randomHex(32), token: served.token, feeRecipient: platformWallet } as const
    const claim = { ...terms, trigger: 'count', lane: 'shared', paymentIds: [paymentId] } as const
    const { batch } = await claimPayments(database, await leaseWallet(database), claim, new Date())
    expect(batch).not.toBeNull()
    const waiting = await verify(body, { app, idempotencyKey: randomUUID() })
    expect([waiting.status, waiting.body.code]).toEqual([503, 'settlement_pending'])
    for (const payload of body.payloads) await settleDirectly(gateway, payload)
    expect((await verify(body, { app, idempotencyKey: randomUUID() })).status).toBe(200)
  })

  test('behavior: never answers after the caller has stopped waiting', async () => {
    const app = gateway.another({ settleBeforeServe: 50_000n, settleBeforeServeTimeoutMs: 3_600_000 })
    const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    const waiting = await call(app, 'POST', '/verify', {
      json: body,
      headers: { prefer: 'respond-async, wait=1', 'idempotency-key': randomUUID() },
    })
    expect([waiting.status, waiting.body.code]).toEqual([503, 'settlement_pending'])
  })

  test('behavior: lets only one of many concurrent requests take over a payment', async () => {
    const app = gateway.another({ settleBeforeServe: 50_000n, settleBeforeServeTimeoutMs: 300 })
    const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    await verify(body, { app, idempotencyKey: randomUUID() })
    for (const payload of body.payloads) await settleDirectly(gateway, payload)
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => verify(body, { app, idempotencyKey: randomUUID() })),
    )
    expect(codesOf(answers)).toEqual([...Array(4).fill('payment_replayed'), 'verified'])
  })
})

describe('prices and keys', () => {
  test('args: rejects a challenge below the price that the provider requests now', async () => {
    const body = await signedBody(gateway, shop, await gateway.buyer(50_000n))
    const priced = (usdcPerUnit: string) => ({ ...body, pricing: { usdcPerUnit } })
    expect((await verify(priced('0.050001'))).body.code).toBe('challenge_price_too_low')
    expect((await verify(priced('0.05'))).status).toBe(200)
  })

  test("behavior: with its key, a provider gets a challenge below the registered price, and the buyer may pay more than the challenge's price", async () => {
    const { providerId, endpointId, key } = shop
    const json = { providerId, endpointId, pricing: { usdcPerUnit: '0.01' } }
    const { body: challenge } = await call(gateway.app, 'POST', '/challenge', { json, key })
    expect(challenge).toMatchObject({
      accepts: [{ maxAmountRequired: '9500' }, { maxAmountRequired: '500' }],
    })
    const payer = await gateway.buyer(1_000_000n)
    const { body } = await verify(await signedBody(gateway, shop, payer, [{ value: 60_000n }, {}]))
    const [payment] =
      await gateway.database`select price, tier, provider_amount from payment where id = ${body.paymentId ?? ''}`
    expect(payment).toEqual({ price: 50_000n, tier: 'micropayment', provider_amount: 60_000n })
  })

  test('args: FEE_SCHEDULE=flat: charges 2% in challenge, signatures, receipt and view, regardless of other processes’ settings', async () => {
    const app = gateway.another({ feeSchedule: 'flat' })
    const payer = await gateway.buyer(1_000_000n)
    const body = await signedBody({ ...gateway, app }, shop, payer)
    expect(body.payloads.map((payload) => parsePayload(payload).value)).toEqual([49_000n, 1_000n])
    const { body: paid } = await verify(body, { app })
    expect(decodeJwt(paid.receipt ?? '')).toMatchObject({
      totalUsdc: '50000',
      providerUsdc: '49000',
      platformUsdc: '1000',
      tier: 'micropayment',
      effectiveRate: '0.02',
    })
    const { body: view } = await call(gateway.app, 'GET', `/payments/${paid.paymentId}`)
    expect(view).toMatchObject({ providerUsdc: '49000', platformUsdc: '1000' })
    // The terms in a macaroon stay valid.
    expect((await verify(await signedBody({ ...gateway, app }, shop, payer))).status).toBe(200)
    expect((await verify(await signedBody(gateway, shop, payer), { app })).status).toBe(200)
  })

  test('args: MIN_PRICE_<NETWORK>: refuses lower prices in registrations and challenges; honors earlier challenges', async () => {
    const app = gateway.another({ minimumPrices: { localhost: 50_001n }, tabs: null })
    const { providerId, endpointId, walletId, key } = shop
    const refused = { status: 422, body: { code: 'price_below_minimum' } }
    const register = (usdcPerUnit: string) =>
      call(app, 'POST', `/providers/${providerId}/endpoints`, {
        json: {
          url: `https://expensive.example/${usdcPerUnit}`,
          method: 'GET',
          pricing: { usdcPerUnit },
          walletId,
        },
        key,
      })
    expect(await register('0.05')).toMatchObject(refused)
    expect((await register('0.050001')).status).toBe(201)
    const ask = (json: object, asker?: string) =>
      call(app, 'POST', '/challenge', {
        json: { providerId, endpointId, ...json },
        ...(asker && { key: asker }),
      })
    expect(await ask({})).toMatchObject(refused)
    // The provider's own key can't request a price below the minimum either.
    expect(await ask({ pricing: { usdcPerUnit: '0.05' } }, key)).toMatchObject(refused)
    expect((await ask({ pricing: { usdcPerUnit: '0.050001' } })).status).toBe(200)
    const body = await signedBody(gateway, shop, await gateway.buyer(50_000n))
    expect((await verify(body, { app })).status).toBe(200)
  })

  test("error: refuses a price below the network's own minimum, even for an older challenge", async () => {
    const { served } = gateway
    const raised = { ...served, network: { ...served.network, minimumPrice: 50_001n } }
    const app = gateway.withOptions({ networks: [raised] })
    const body = await signedBody(gateway, shop, await gateway.buyer(50_000n))
    expect(await verify(body, { app })).toMatchObject({
      status: 422,
      body: { code: 'price_below_minimum' },
    })
    expect((await verify(body)).status).toBe(200)
  })

  test('behavior: lets a provider require its key for every verification', async () => {
    const { body: made } = await call<{ providerId: string; apiKey: string }>(
      gateway.app,
      'POST',
      '/providers',
      {
        json: { name: 'Careful', requiresKey: true },
      },
    )
    const key = made.apiKey
    const at = `/providers/${made.providerId}`
    const address = `0x${'c1'.repeat(20)}`
    await call(gateway.app, 'POST', `${at}/wallets`, { key, json: { network: 'localhost', address } })
    const { body: endpoint } = await call<{ endpointId: string }>(gateway.app, 'POST', `${at}/endpoints`, {
      key,
      json: { url: 'https://careful.example/', pricing: { usdcPerUnit: '0.05' } },
    })
    const careful = { ...shop, providerId: made.providerId, endpointId: endpoint.endpointId, key }
    const body = await signedBody(gateway, careful, await gateway.buyer(1_000_000n))
    expect((await verify(body)).status).toBe(401)
    expect((await verify(body, { key: shop.key })).status).toBe(403)
    expect((await verify(body, { key })).status).toBe(200)
  })
})

test('behavior: /verify reads its headers by name, without building a record of all headers', async () => {
  const readAll = vi.spyOn(Headers.prototype, 'forEach')
  onTestFinished(() => readAll.mockRestore())
  const body = await signedBody(gateway, shop, await gateway.buyer(50_000n))
  readAll.mockClear()
  expect((await verify(body, { idempotencyKey: randomUUID() })).status).toBe(200)
  expect(readAll).not.toHaveBeenCalled()
})
