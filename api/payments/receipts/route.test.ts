import { publishPayments } from '@tollkeeper/ledger/batches/publish'
import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { parseReceiptClaims, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { createLocalJWKSet, type JSONWebKeySet, jwtVerify } from 'jose'
import { describe, expect, test } from 'vitest'
import {
  call,
  gatewayIssuer,
  openShop,
  pay,
  platformWallet,
  type Shop,
  settleDirectly,
} from '../../../test/support/gateway.ts'
import { seedPayment, storePayments } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway)

/** Verifies a receipt with jose and reads its claims, as any client would. */
async function read(receipt: string) {
  const { body } = await call<JSONWebKeySet>(gateway.app, 'GET', '/.well-known/jwks.json')
  const { payload, protectedHeader } = await jwtVerify(receipt, createLocalJWKSet(body), {
    issuer: gatewayIssuer,
  })
  return { claims: parseReceiptClaims(payload), protectedHeader }
}

const fetchReceipt = async (paymentId: string) => {
  const { body } = await call<{ paymentId: string; receipt: string }>(
    gateway.app,
    'GET',
    `/receipts/${paymentId}`,
  )
  expect(Object.keys(body)).toEqual(['paymentId', 'receipt'])
  return (await read(body.receipt)).claims
}
const fetchPayment = (paymentId: string) => call(gateway.app, 'GET', `/payments/${paymentId}`)

async function mineAndIndex(): Promise<void> {
  await gateway.served.client.request({ method: 'evm_mine', params: [] } as never)
  await gateway.index()
}

describe('receipts', () => {
  test('default: returns claims, header and signature of the receipt that was issued at acceptance', async () => {
    const before = Date.now()
    const { paymentId, receipt, payer, payloads } = await pay(gateway, shop)
    const { claims, protectedHeader } = await read(receipt)
    expect(protectedHeader).toEqual({ alg: 'ES256', typ: 'JWT', kid: expect.stringMatching(/^receipt-/) })
    expect(Date.parse(claims.timestamp)).toBeGreaterThanOrEqual(before)
    const [provider, fee] = payloads.map(parsePayload)
    expect(claims).toEqual({
      paymentId,
      providerId: shop.providerId,
      endpointId: shop.endpointId,
      totalUsdc: '50000',
      providerUsdc: '47500',
      platformUsdc: '2500',
      tier: 'micropayment',
      effectiveRate: '0.05',
      timestamp: expect.any(String),
      transactionHash: zeroHash,
      iss: gatewayIssuer,
      iat: expect.any(Number),
      status: 'verified',
      network: 'localhost',
      testnet: true,
      asset: gateway.served.token,
      payer: payer.address.toLowerCase(),
      resource: shop.url,
      validBefore: String(provider?.validBefore),
      authorizations: [
        { to: shop.wallet, value: '47500', nonce: provider?.nonce },
        { to: platformWallet, value: '2500', nonce: fee?.nonce },
      ],
    })
  })

  test('behavior: the receipt has the transaction hash once the settlement is confirmed, and loses it in a reorg', async () => {
    const { paymentId, payloads } = await pay(gateway, shop)
    const { hash, blockHash, blockNumber } = await settleDirectly(gateway, payloads[0])
    expect(await fetchReceipt(paymentId)).toMatchObject({
      status: 'partially_settled',
      transactionHash: zeroHash,
    })
    await settleDirectly(gateway, payloads[1])
    await mineAndIndex()
    expect(await fetchReceipt(paymentId)).toMatchObject({
      status: 'settled',
      transactionHash: hash,
      blockHash,
    })
    expect((await fetchPayment(paymentId)).body).toMatchObject({
      payment_status: 'settled',
      provider: { state: 'settled', transactionHash: hash, blockNumber: Number(blockNumber) },
      platform: { state: 'settled' },
    })
    await gateway.database`delete from authorization_event where tx_hash = ${hash}`
    expect(await fetchReceipt(paymentId)).toMatchObject({
      status: 'partially_settled',
      transactionHash: zeroHash,
    })
  })
})

describe('receipts in bulk', () => {
  type Line = { paymentId: string; receipt: string; cursor: string }
  const list = (of: Shop, query = '') =>
    call<string>(gateway.app, 'GET', `/providers/${of.providerId}/receipts${query}`, { key: of.key })
  const parse = (text: string): Line[] =>
    text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line))
  const seed = (of: Shop, acceptedAt: Date) =>
    seedPayment(gateway.database, { provider: { ...of, endpointIds: [of.endpointId] }, acceptedAt })

  test('default: lists receipts in their current state, oldest first, and continues after the cursor of any line', async () => {
    const own = await openShop(gateway.app)
    const started = Date.now() - 3_600_000
    const seeded: string[] = []
    // Seeds more than two pages, with several payments in the same millisecond.
    for (let i = 0; i < 410; i++)
      seeded.push((await seed(own, new Date(started + Math.floor(i / 3)))).paymentId)
    // The clock is stopped after the acceptance, so that the duration of settling doesn't matter.
    const settled = await pay(gateway, own)
    const acceptedAt = Date.now()
    gateway.setNow(acceptedAt)
    for (const payload of settled.payloads) await settleDirectly(gateway, payload)
    await mineAndIndex()
    // The list leaves out the last ten seconds, because a payment with an earlier time may still be committed.
    expect(parse((await list(own)).body)).toHaveLength(410)
    gateway.setNow(acceptedAt + 10_001)
    const { status, headers, body } = await list(own)
    expect([status, headers.get('content-type')]).toEqual([200, 'application/jsonl; charset=utf-8'])
    const lines = parse(body)
    expect(new Set(lines.map(({ paymentId }) => paymentId))).toEqual(new Set([...seeded, settled.paymentId]))
    const claims = await Promise.all(lines.map(async ({ receipt }) => (await read(receipt)).claims))
    expect(claims.map(({ paymentId }) => paymentId)).toEqual(lines.map(({ paymentId }) => paymentId))
    const times = claims.map(({ timestamp }) => timestamp)
    expect(times).toEqual(times.toSorted())
    expect(claims.at(-1)).toEqual(await fetchReceipt(settled.paymentId))
    for (const at of [0, 198, 199, 200, 409]) {
      const rest = parse((await list(own, `?cursor=${lines[at]?.cursor}`)).body)
      expect(rest.map(({ paymentId }) => paymentId)).toEqual(
        lines.slice(at + 1).map(({ paymentId }) => paymentId),
      )
    }
    const from = new Date(started + 100).toISOString()
    const to = new Date(started + 101).toISOString()
    expect(parse((await list(own, `?from=${from}&to=${to}`)).body)).toHaveLength(3)
    const ofStatus = parse((await list(own, '?status=settled')).body)
    expect(ofStatus).toMatchObject([{ paymentId: settled.paymentId }])
    // A cursor is valid only for the list that it came from.
    expect((await list(own, `?cursor=${ofStatus[0]?.cursor}`)).body).toMatchObject({
      code: 'invalid_cursor',
    })
  })

  test('behavior: the list leaves out payments through the facilitator, which have no receipt, and continues after them', async () => {
    const own = await openShop(gateway.app)
    const first = await seed(own, new Date(Date.now() - 60_000))
    const { chainId } = gateway.served.network
    const { providerId, wallet: recipient } = own
    const acceptedAt = new Date(Date.now() - 50_000)
    const signed = { nonce: randomHex(32), signature: randomHex(65), acceptedBlock: 1n }
    await storePayments(gateway.database, [
      {
        id: newId('pay'),
        providerId,
        endpointId: null,
        chainId,
        token: gateway.served.token,
        payer: randomHex(20),
        resource: own.url,
        acceptedAt,
        halves: [{ recipient, value: 47_500n, validAfter: 0n, validBefore: 2n ** 33n, ...signed }],
        facilitation: { providerId, paymentIdentifier: null },
        first: { stage: 'due', since: acceptedAt.getTime() },
      },
    ])
    const last = await seed(own, new Date(Date.now() - 40_000))
    expect(parse((await list(own)).body).map(({ paymentId }) => paymentId)).toEqual([
      first.paymentId,
      last.paymentId,
    ])
  })
})

test('behavior: a buyer that lost the answer can query its payment by the authorization that it signed, and gets only the status', async () => {
  const { paymentId, payloads, payer } = await pay(gateway, shop)
  const ask = (authorizer: string, nonce: string) =>
    call(gateway.app, 'GET', `/authorizations/${authorizer}/${nonce}`)
  for (const payload of payloads) {
    const { from: authorizer, nonce } = parsePayload(payload)
    const stands = { authorizer, nonce, payment_status: 'verified' }
    expect((await ask(payer.address, nonce)).body).toEqual(stands)
  }
  const { nonce } = parsePayload(payloads[0])
  await call(gateway.app, 'POST', `/payments/${paymentId}/void`, { key: shop.key })
  expect((await ask(payer.address, nonce)).body).toMatchObject({ payment_status: 'voided' })
  expect((await ask(payer.address, randomHex(32))).body).toMatchObject({
    status: 404,
    code: 'unknown_payment',
  })
  expect((await ask(shop.wallet, nonce)).status).toBe(404)
  expect((await ask('0x1', nonce)).status).toBe(400)
})

describe('void', () => {
  const voidPayment = (paymentId: string, key?: string) =>
    call(gateway.app, 'POST', `/payments/${paymentId}/void`, key === undefined ? {} : { key })

  test('default: only a payment’s provider can void the payment; the void is permanent, and a repeated void gives the same result', async () => {
    const { paymentId } = await pay(gateway, shop)
    const other = await openShop(gateway.app)
    expect((await voidPayment(paymentId)).status).toBe(401)
    expect((await voidPayment(paymentId, other.key)).status).toBe(403)
    expect((await voidPayment('pay_x', shop.key)).status).toBe(404)
    for (let i = 0; i < 2; i++) {
      const { status, body } = await voidPayment(paymentId, shop.key)
      expect([status, body.payment_status]).toEqual([200, 'voided'])
    }
    expect(await fetchReceipt(paymentId)).toMatchObject({ status: 'voided' })
  })

  test('error: refuses to void a payment that is claimed by a batch, published, moved or final', async () => {
    const { database, served } = gateway
    const claimed = await pay(gateway, shop)
    await database`
      with made as (
        insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence)
        values (${`0x${'1'.repeat(64)}`}, ${served.network.chainId}, ${served.token}, ${platformWallet}, 'count', 'shared',
          ${platformWallet}, 1)
        returning id
      )
      update queue set stage = 'claimed', batch_id = made.id from made where payment_id = ${claimed.paymentId}`
    const published = await pay(gateway, shop)
    await publishPayments(database, [published.paymentId], new Date())
    const moved = await pay(gateway, shop)
    await settleDirectly(gateway, moved.payloads[0])
    const over = await pay(gateway, shop)
    const ending = { ...over, kind: 'settled', code: null, isFinal: true } as const
    await endPayments(database, [ending], new Date())
    for (const { paymentId } of [claimed, published, moved, over]) {
      const { status, body } = await voidPayment(paymentId, shop.key)
      expect([status, body.code]).toEqual([409, 'payment_claimed'])
    }
    const ids = [claimed, published, moved, over].map(({ paymentId }) => paymentId)
    expect(
      await database`select from payment_result where payment_id in ${database(ids)} and kind = 'voided'`,
    ).toEqual([])
  })
})

test('behavior: an unsettled payment counts as failed once it has expired', async () => {
  const { paymentId } = await pay(gateway, shop)
  gateway.setNow(Date.now() + 27 * 3_600_000)
  expect((await fetchPayment(paymentId)).body).toMatchObject({ payment_status: 'failed' })
})
