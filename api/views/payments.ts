import { z } from '@hono/zod-openapi'
import { findStoredPayment } from '@tollkeeper/ledger/acceptance/storedPayment'
import { findPass } from '@tollkeeper/ledger/passes/passes'
import { voidPayment } from '@tollkeeper/ledger/results/voids'
import type { Database } from '@tollkeeper/ledger/store/database'
import { findTabPaymentId } from '@tollkeeper/ledger/tabs/tabClaims'
import type { TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import type { TabStore } from '@tollkeeper/ledger/tabs/tabStore'
import { traceIdOf } from '@tollkeeper/runtime/trace'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { writerOf } from '../http/writer.ts'
import { pass, toPass } from '../payments/passes/route.ts'
import { type PaymentHalf, paymentSources } from '../payments/records/payments.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import { type FoundPayment, findPaymentOrTab } from '../payments/records/tabPayments.ts'
import { refund, toRefund } from '../payments/refunds/route.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { readStoredTab, readTab, tab, toTab } from './tabs.ts'

const half = z
  .object({
    state: z.enum(['open', 'settled', 'cancelled', 'foreign_use']),
    to: wire.addressOut,
    value: wire.baseUnits,
    nonce: wire.hashOut,
    transactionHash: wire.hashOut.nullable(),
    logIndex: z.int().nullable(),
    blockNumber: wire.integer.nullable(),
  })
  .openapi('PaymentHalf')

export const payment = z
  .object({
    paymentId: wire.paymentId,
    requestId: wire.requestId.nullable(),
    payment_status: z.enum(paymentStatuses),
    source: z.enum(paymentSources),
    tab: tab.nullable().openapi({
      description: 'The tab that this payment is, from the tab’s first request on; null: an ordinary payment',
    }),
    providerId: wire.providerId.nullable(),
    endpointId: wire.endpointId.nullable(),
    network: wire.networkName,
    testnet: wire.testnet,
    asset: wire.addressOut,
    payer: wire.addressOut,
    resource: z.string(),
    totalUsdc: wire.baseUnits,
    providerUsdc: wire.baseUnits,
    platformUsdc: wire.baseUnits,
    tier: z.string(),
    effectiveRate: z.string(),
    acceptedAt: wire.isoTime,
    validBefore: wire.integer,
    provider: half,
    platform: half.nullable(),
    splitter: wire.addressOut.nullable(),
    paidOut: z
      .object({
        at: wire.isoSeconds,
        transactionHash: wire.hashOut,
        blockNumber: wire.integer,
        platformPaid: z.boolean().openapi({
          description:
            "False: the platform's wallet couldn't be paid, so its part waits in a separate splitter",
        }),
      })
      .nullable()
      .openapi({
        description: 'Transaction of the sweep in which `splitter` paid out both parts; null: not yet',
      }),
    attempts: z.int(),
    nextAttemptAt: wire.isoTime.nullable(),
    held_by: wire.heldBy('it waits for gas'),
    failureCode: z.string().nullable(),
    voidedAt: wire.isoTime.nullable(),
    refunds: z.array(refund),
    pass: pass.nullable().openapi({ description: 'The pass that this payment bought; null: none' }),
    trace: z.object({ id: z.string(), url: z.url().nullable() }).nullable().openapi({
      description: "Where the request was traced; shown only with the provider's or the operator's key",
    }),
    indexedBlock: wire.indexedBlock,
  })
  .openapi('Payment')

export type PaymentRouteOptions = {
  sql: Database
  tabReads: TabReads
  tabStore: Pick<TabStore, 'read'>
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'traceUrlTemplate'>
  now: () => number
}

const addPaymentRoute = view('/payments/{paymentId}', {
  summary: 'Read a payment and its status',
  tags: ['Payments'],
  description: "For a tab, a provider's key also shows the provider's own lines.",
  answer: ['The payment', payment],
  open:
    (options: PaymentRouteOptions) =>
    ({ paymentId }, c) =>
      readPayment(options, paymentId, c.get('caller'), c.get('isOperator')),
})

const authorization = z
  .object({
    authorizer: wire.addressOut,
    nonce: wire.hashOut,
    payment_status: z.enum(paymentStatuses),
  })
  .openapi('Authorization')

const addAuthorizationRoute = view('/authorizations/{authorizer}/{nonce}', {
  summary: 'Find a payment’s status by what its buyer signed',
  description:
    'For a buyer that lost the answer to its payment. It returns only the status, because payer and nonce are public once they are on chain. 404: no such authorization was accepted here. The nonce of a tab stands for the whole tab, from its first request on; a single request on it is at `/tabs/{tabId}/requests/{sequence}`.',
  tags: ['Payments'],
  params: z.object({ authorizer: wire.address, nonce: wire.txHash }),
  answer: ['The authorization', authorization],
  open: ({ sql, tabStore, tabReads, networks, now }: Omit<PaymentRouteOptions, 'heads' | 'settings'>) => {
    const tokens = [...networks.byChainId.values()].map(({ served: { network, token } }) => ({
      chainId: network.chainId,
      token,
    }))
    return async ({ authorizer, nonce }) => {
      const stored = await findStoredPayment(sql, { tokens, payer: authorizer, nonces: [nonce] })
      const paymentId =
        stored?.paymentId ??
        (await findTabPaymentId(sql, tabStore.read, { tokens, payer: authorizer, nonce }))
      const found = paymentId && (await findPaymentOrTab({ sql, tabReads }, paymentId, new Date(now())))
      if (!found) throw new Refusal('unknown_payment')
      return { authorizer, nonce, payment_status: found.status }
    }
  },
})

const postVoid = route('post', '/payments/{paymentId}/void', {
  summary: 'Void a payment for which no service was rendered',
  description:
    'Refused with 409 once a batch has claimed the payment, once it was published, or once any of its money has moved.',
  tags: ['Payments'],
  security: [{ apiKey: [] }],
  refuses: [403, 409],
  responses: { 200: jsonAnswer('The voided payment', payment) },
})

const write = writerOf(payment)

export function addPaymentRoutes(app: App, options: PaymentRouteOptions): void {
  const { sql, networks, now } = options
  addPaymentRoute(app, options)
  addAuthorizationRoute(app, options)
  app.openapi(postVoid, async (c) => {
    const { paymentId } = c.req.valid('param')
    const providerId = c.get('caller')
    if (providerId === undefined)
      throw new Refusal('unauthorized', "Only the payment's provider can void it: send its API key")
    const outcome = await voidPayment(sql, { paymentId, providerId, now: new Date(now()) })
    const isUnknown =
      outcome === 'unknown' && (await findPaymentOrTab(options, paymentId, new Date(now()))) === undefined
    if (isUnknown) throw new Refusal('unknown_payment')
    // A tab belongs to several providers, so no provider can void it: each charges 0 for its own requests instead.
    if (outcome === 'unknown' || outcome === 'forbidden') throw new Refusal('forbidden')
    if (outcome === 'claimed') throw new Refusal('payment_claimed')
    const voided = await readPayment(options, paymentId, providerId)
    for (const { payers } of networks.byChainId.values()) payers.forget(voided.payer)
    return c.json(write(voided), 200)
  })
}

async function readPayment(
  { sql, tabReads, heads, networks, settings, now }: PaymentRouteOptions,
  paymentId: string,
  caller: string | undefined,
  isOperator = false,
) {
  const at = new Date(now())
  const [found, sold] = await Promise.all([
    findPaymentOrTab({ sql, tabReads }, paymentId, at),
    findPass(sql, paymentId),
  ])
  if (found === undefined) throw new Refusal('unknown_payment')
  const { name, testnet } = networks.ofChain(found.chainId).served.network
  const mayTrace = isOperator || (caller !== undefined && caller === found.providerId)
  return {
    ...found,
    payment_status: found.status,
    tab: await readTabOf(found, { sql, tabReads }, caller),
    network: name,
    testnet,
    asset: found.token,
    totalUsdc: found.providerAmount + found.feeAmount,
    providerUsdc: found.providerAmount,
    platformUsdc: found.feeAmount,
    provider: toHalf(found.provider),
    platform: found.fee && toHalf(found.fee),
    held_by: found.heldBy,
    refunds: found.refunds.map(toRefund),
    pass: sold ? toPass(sold, at) : null,
    trace: mayTrace && found.trace ? toTrace(traceIdOf(found.trace), settings.traceUrlTemplate) : null,
    indexedBlock: await heads.of(found.chainId),
  }
}

/** Reads the tab of a payment, with the lines of the provider that asks. */
function readTabOf(
  { source, paymentId, storedTab, unpaidTab }: FoundPayment,
  { sql, tabReads }: Pick<PaymentRouteOptions, 'sql' | 'tabReads'>,
  caller: string | undefined,
) {
  if (storedTab) return readStoredTab(tabReads, storedTab, caller)
  if (unpaidTab) return toTab(unpaidTab)
  return source === 'tab' ? readTab(sql, paymentId, caller) : null
}

function toTrace(id: string, template: string | null) {
  return { id, url: template?.replaceAll('{traceId}', id) ?? null }
}

function toHalf({ recipient, txHash, ...half }: PaymentHalf) {
  return { ...half, to: recipient, transactionHash: txHash }
}
