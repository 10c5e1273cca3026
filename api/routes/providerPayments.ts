import { createRoute, z } from '@hono/zod-openapi'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../app.ts'
import { requireOwner } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { type Gateway, networkOf } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import { providerId } from '../http/schemas.ts'
import { fromIndex } from '../portal/queries/indexedHead.ts'
import { requireProviderIndex } from '../portal/queries/providerIndex.ts'
import { findProviderPayments, type ProviderPayment } from '../portal/queries/providerPayments.ts'
import { findSettlementFailures, type SettlementFailure } from '../portal/queries/settlementFailures.ts'
import * as schemas from './viewSchemas.ts'

const owner = { middleware: requireOwner, security: [{ apiKey: [] }], tags: ['Provider views'] }
const params = z.object({ id: providerId })

const getPayments = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/payments',
  summary: 'Payments, newest first',
  description:
    'A page may hold fewer than `limit` and still have a next one: only a null cursor ends the list.',
  request: { params, query: schemas.paymentsQuery },
  responses: { 200: jsonAnswer('The payments', schemas.payments), ...problems(400, 401, 403, 422, 503) },
})

const getFailures = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/failures',
  summary: 'Payments whose settlement is failing or has failed, with each attempt and the next one',
  request: { params, query: schemas.failuresQuery },
  responses: {
    200: jsonAnswer('The failures, newest first', schemas.failures),
    ...problems(400, 401, 403, 422, 503),
  },
})

const positions = createCursor({ acceptedAt: timeField, paymentId: textField })

export function addProviderPaymentRoutes(app: App, gateway: Gateway): void {
  const { database, now } = gateway
  const chainOf = (network: string | undefined) =>
    network === undefined ? undefined : networkOf(gateway, network).served.network.chainId

  app.openapi(getPayments, async (c) => {
    const { id } = c.req.valid('param')
    const { network, cursor, limit = 20, tx_hash: txHash, ...filters } = c.req.valid('query')
    const chainId = chainOf(network)
    const after = positions.read('payments', cursor)
    const indexedBlocks = await requireProviderIndex(database, id, chainId)
    const page = await fromIndex(
      findProviderPayments(database, {
        ...filters,
        providerId: id,
        chainId,
        txHash,
        after,
        limit,
        now: new Date(now()),
      }),
    )
    return c.json(
      {
        payments: page.payments.map(toPayment),
        cursor: page.next && positions.write('payments', page.next),
        indexedBlocks,
      },
      200,
    )
  })

  app.openapi(getFailures, async (c) => {
    const { id } = c.req.valid('param')
    const { network, cursor, limit = 20, status = 'retrying', ...filters } = c.req.valid('query')
    const chainId = chainOf(network)
    const list = `failures ${status}`
    const after = positions.read(list, cursor)
    const indexedBlocks = await requireProviderIndex(database, id, chainId)
    const page = await fromIndex(
      findSettlementFailures(database, {
        ...filters,
        providerId: id,
        chainId,
        status,
        after,
        limit,
        now: new Date(now()),
      }),
    )
    return c.json(
      {
        failures: page.failures.map(toFailure),
        cursor: page.next && positions.write(list, page.next),
        indexedBlocks,
      },
      200,
    )
  })
}

function toPayment(payment: ProviderPayment) {
  const { name, testnet } = networkByChainId(payment.chainId)
  return {
    paymentId: payment.paymentId,
    requestId: payment.requestId,
    payment_status: payment.status,
    endpointId: payment.endpointId,
    network: name,
    testnet,
    payer: payment.payer,
    payTo: payment.payTo,
    totalUsdc: (payment.net + payment.fee).toString(),
    providerUsdc: payment.net.toString(),
    platformUsdc: payment.fee.toString(),
    tier: payment.tier,
    resource: payment.resource,
    acceptedAt: payment.acceptedAt.toISOString(),
    settledAt:
      payment.settledTime === null ? null : new Date(Number(payment.settledTime) * 1000).toISOString(),
    transactionHash: payment.txHash,
    platformTransactionHash: payment.feeTxHash,
    attempts: payment.attempts,
    nextAttemptAt: payment.nextAttemptAt?.toISOString() ?? null,
    failureCode: payment.failureCode,
    failedAt: payment.failedAt?.toISOString() ?? null,
    voidedAt: payment.voidedAt?.toISOString() ?? null,
  }
}

function toFailure({ failures, ...payment }: SettlementFailure) {
  return {
    ...toPayment(payment),
    failures: failures.map(({ failedAt, nextAttemptAt, ...failure }) => ({
      ...failure,
      failedAt: failedAt.toISOString(),
      nextAttemptAt: nextAttemptAt?.toISOString() ?? null,
    })),
  }
}
