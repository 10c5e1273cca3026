import { createRoute, z } from '@hono/zod-openapi'
import type { App } from '../app.ts'
import { type Gateway, requireNetwork } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import * as schemas from '../http/schemas.ts'
import { fromIndex, requireIndexedHead } from '../portal/queries/indexedHead.ts'
import { findPayment } from '../portal/queries/payments.ts'
import { jwksMaxAgeSeconds } from '../receipts/keys.ts'
import { receiptClaims } from '../receipts/receiptClaims.ts'
import { signReceipt } from '../receipts/signReceipt.ts'
import { Refusal } from '../refusal.ts'

const getReceipt = createRoute({
  method: 'get',
  path: '/receipts/{id}',
  summary: 'A receipt as of now',
  description:
    "Signed anew at each call. `transactionHash` and `blockHash` are those of the provider's half, once it is as deep " +
    'in the chain as the network asks for; until then the hash is 32 zero bytes.',
  tags: ['Receipts'],
  request: { params: z.object({ id: schemas.paymentId }) },
  responses: { 200: jsonAnswer('The receipt', schemas.receipt), ...problems(404, 429, 503) },
})

const getJwks = createRoute({
  method: 'get',
  path: '/.well-known/jwks.json',
  summary: 'Public keys that receipts are signed with, current and retired',
  tags: ['Receipts'],
  responses: { 200: jsonAnswer('The JWK set', schemas.jwks) },
})

export function addReceiptRoutes(app: App, gateway: Gateway): void {
  const { database, settings, receiptKeys } = gateway

  app.openapi(getReceipt, async (c) => {
    const now = gateway.now()
    const payment = await fromIndex(findPayment(database, c.req.valid('param').id, new Date(now)))
    if (payment === undefined) throw new Refusal('unknown_payment')
    const { network } = requireNetwork(gateway, payment.chainId).served
    const head = await requireIndexedHead(database, payment.chainId)

    const { state, txHash, blockHash, blockNumber } = payment.provider
    const isConfirmed =
      state === 'settled' &&
      blockNumber !== null &&
      blockNumber + BigInt(network.confirmations) <= head.blockNumber
    const claims = receiptClaims(
      { ...payment, network, acceptedAt: payment.acceptedAt.getTime() },
      {
        issuer: settings.issuer,
        signedAt: now,
        status: payment.status,
        ...(isConfirmed &&
          txHash !== null &&
          blockHash !== null && { settlement: { transactionHash: txHash, blockHash } }),
      },
    )
    return c.json({ paymentId: payment.paymentId, receipt: signReceipt(claims, receiptKeys.current) }, 200)
  })

  app.openapi(getJwks, (c) => {
    c.header('cache-control', `public, max-age=${jwksMaxAgeSeconds}`)
    return c.json(receiptKeys.jwks, 200)
  })
}
