import { createLocalJWKSet, type JSONWebKeySet, jwtVerify } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parsePayload } from '#protocol/payload'
import { parseReceiptClaims, zeroHash } from '#protocol/receipt'
import {
  call,
  gatewayIssuer,
  openShop,
  pay,
  platformWallet,
  type Shop,
  settleDirectly,
  startGateway,
  type TestGateway,
} from '../../test/support/gateway.ts'

let gateway: TestGateway
let shop: Shop

beforeAll(async () => {
  gateway = await startGateway()
  shop = await openShop(gateway.app)
})
afterAll(() => gateway.close())

/** Verifies with jose and reads the claims, as anybody would. */
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
  test('default: claims, header and signature of the one handed out at acceptance', async () => {
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

  test('behavior: the hash shows once the settlement has its depth, and goes with a reorg', async () => {
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
    await gateway.database`delete from indexer.authorization where tx_hash = ${hash}`
    expect(await fetchReceipt(paymentId)).toMatchObject({
      status: 'partially_settled',
      transactionHash: zeroHash,
    })
  })
})

describe('void', () => {
  const voidPayment = (paymentId: string, key?: string) =>
    call(gateway.app, 'POST', `/payments/${paymentId}/void`, key === undefined ? {} : { key })

  test('default: voided, again and for good; only by its provider', async () => {
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

  test('error: claimed by a batch, published, moved, or concluded', async () => {
    const { database, served } = gateway
    const claimed = await pay(gateway, shop)
    await database`
      with made as (
        insert into batch (batch_id, chain_id, token, fee_recipient, trigger, wallet, fence)
        values (${`0x${'1'.repeat(64)}`}, ${served.network.chainId}, ${served.token}, ${platformWallet}, 'count',
          ${platformWallet}, 1)
        returning id
      )
      insert into batch_item (batch_id, position, payment_id) select id, 0, ${claimed.paymentId} from made`
    const published = await pay(gateway, shop)
    await database`update payment set published_at = now() where id = ${published.paymentId}`
    const moved = await pay(gateway, shop)
    await settleDirectly(gateway, moved.payloads[0])
    // Settled, and the index is set back: it shows nothing of that.
    const concluded = await pay(gateway, shop)
    await database`update payment set concluded_at = now() where id = ${concluded.paymentId}`
    for (const { paymentId } of [claimed, published, moved, concluded]) {
      const { status, body } = await voidPayment(paymentId, shop.key)
      expect([status, body.code]).toEqual([409, 'payment_claimed'])
    }
    const [row] = await database`select count(*)::int as voided from payment where id in ${database(
      [claimed, published, moved, concluded].map(({ paymentId }) => paymentId),
    )} and voided_at is not null`
    expect(row).toEqual({ voided: 0 })
  })
})

test('behavior: expired and unsettled is failed', async () => {
  const { paymentId } = await pay(gateway, shop)
  gateway.setNow(Date.now() + 27 * 3_600_000)
  try {
    expect((await fetchPayment(paymentId)).body).toMatchObject({ payment_status: 'failed' })
  } finally {
    gateway.setNow(null)
  }
})
