import { z } from '@hono/zod-openapi'
import type { PayerSignatures } from '@tollkeeper/chain/payerSignatures'
import { checkPresented } from '@tollkeeper/ledger/acceptance/door'
import type { Database } from '@tollkeeper/ledger/store/database'
import { findTab } from '@tollkeeper/ledger/tabs/tabClaims'
import type { StoredTab, TabKey, TabRequest, TabStore } from '@tollkeeper/ledger/tabs/tabStore'
import { isSameSecret } from '@tollkeeper/runtime/isSameSecret'
import { atLeastZero, formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { parseSignature } from '@tollkeeper/sdk/protocol/payload'
import { type PaymentStatus, paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import {
  leastTabAmount,
  parseTabPayload,
  platformPart,
  providerOfSplit,
  type TabPayment,
  toWord,
} from '@tollkeeper/sdk/protocol/tab'
import { chargedOnTab } from '@tollkeeper/sdk/protocol/tabRule'
import type { Context } from 'hono'
import type { App } from '../../http/app.ts'
import { invalidRequest } from '../../http/invalidRequest.ts'
import { jsonAnswer } from '../../http/problems.ts'
import { readJson } from '../../http/readJson.ts'
import { Refusal } from '../../http/refusal.ts'
import { route } from '../../http/route.ts'
import type { GatewaySettings } from '../../http/settings.ts'
import * as wire from '../../http/wire.ts'
import { writerOf } from '../../http/writer.ts'
import type { GatewayNetworks } from '../../registry/networks.ts'
import type { Offers } from '../../registry/offers.ts'
import { minimumPriceOn } from '../../registry/price.ts'
import type { ReceiptKeys } from '../receipts/keys.ts'
import type { RecordedHeads } from '../records/recordedHeads.ts'
import { tabPayload, toSignedState } from '../verification/tabState.ts'
import { currentRequestReceipt } from './currentRequestReceipt.ts'
import { readRequestPositions } from './requestPosition.ts'

const tab = z
  .object({
    tabId: wire.tabId,
    network: wire.networkOfChain,
    testnet: wire.testnet,
    asset: wire.addressOut,
    payer: wire.addressOut,
    contract: wire.addressOut.openapi({
      description: 'TabSettlement: only this contract can execute what is signed',
    }),
    platform: wire.addressOut,
    rewardShare: z.int().openapi({
      description: "Share of the platform's part, in basis points, that the settling keeper receives",
    }),
    nonce: wire.hashOut,
    paymentId: wire.paymentId.openapi({
      description:
        'Id of the payment as which the tab settles: GET /payments/{paymentId} answers from the first request on',
    }),
    sequence: z.int().openapi({ description: 'Sequence number of the newest state' }),
    requests: z.int(),
    signedUsdc: wire.decimalUsdc,
    chargedUsdc: wire.decimalUsdc,
    lines: z.array(
      z.object({
        split: wire.hashOut,
        provider: wire.addressOut,
        signedUsdc: wire.decimalUsdc,
        chargedUsdc: wire.decimalUsdc,
        platformUsdc: wire.decimalUsdc.openapi({ description: "The platform's part of the charged amount" }),
        creditUsdc: wire.decimalUsdc.openapi({
          description: 'Credit for overcharges on earlier tabs, which is used up first',
        }),
      }),
    ),
    openedAt: wire.isoTime,
    usedAt: wire.isoTime,
    expiresAt: wire.isoTime,
    closedAt: wire.isoTime.nullable(),
    closeReason: z.string().nullable(),
    isTaken: z.boolean().openapi({ description: 'Whether the ledger has imported the tab as a payment' }),
  })
  .openapi('Tab')

const getTab = route('get', '/tabs/{tabId}', {
  summary: 'Read a tab: the purchases on it, and the signed amounts',
  description:
    'Anyone who knows the tab’s id may read it: the buyer and the providers that the tab pays know the id.',
  tags: ['Payments'],
  responses: { 200: jsonAnswer('The tab', tab) },
})

const requestParams = z.object({
  tabId: wire.tabId,
  sequence: z.coerce
    .number()
    .int()
    .min(1)
    .max(2 ** 40),
})

const receiptOut = z.string().optional().openapi({
  description:
    'Receipt for the amount charged now, `voided` if that is 0; absent if the endpoint no longer exists',
})

const tabRequest = z
  .object({
    tabId: wire.tabId,
    sequence: z.int(),
    priceUsdc: wire.decimalUsdc,
    chargedUsdc: wire.decimalUsdc.openapi({ description: '0 if it was voided' }),
    payment_status: z.enum(paymentStatuses).openapi({
      description:
        '`voided`, or the tab’s status: `verified` until that settles, then `settled` if the moved amount covers this request',
    }),
    acceptedAt: wire.isoTime,
    receipt: receiptOut,
  })
  .openapi('TabRequest')

const getRequest = route('get', '/tabs/{tabId}/requests/{sequence}', {
  summary: 'Read a request on a tab, and its charge',
  description:
    'Requires the API key of the provider that sold the request, or, in `Tab-Signature`, the buyer’s signature of the state that bought it. ' +
    'All other callers are refused, because the requests on a tab show what one buyer bought from all providers. 404: the request is not on the tab.',
  tags: ['Payments'],
  security: [{ apiKey: [] }, {}],
  params: requestParams,
  headers: z.object({
    'tab-signature': z.string().optional().openapi({
      description: "The buyer's signature of the state that bought it, as it was sent in `PAYMENT-SIGNATURE`",
    }),
  }),
  refuses: [403],
  responses: { 200: jsonAnswer('The request', tabRequest) },
})

const chargeRequest = z
  .object({
    amount: z.string().openapi({ example: '0.0004', description: 'Decimal USDC, at most the price' }),
  })
  .openapi('ChargeRequest')

const charged = z
  .object({
    charged: wire.decimalUsdc,
    receipt: receiptOut,
  })
  .openapi('Charged')

const postCharge = route('post', '/tabs/{tabId}/requests/{sequence}/charge', {
  summary: 'Charge less than the price for a request on a tab',
  description:
    'Send 0 for a request that was not served. The buyer keeps the rest of what was signed. The last call counts.',
  tags: ['Payments'],
  security: [{ apiKey: [] }],
  params: requestParams,
  body: chargeRequest,
  refuses: [403, 409],
  responses: { 200: jsonAnswer('The new charge', charged) },
})

const closeRequest = z
  .object({
    tab: tabPayload.openapi({
      description:
        'A last state that buys nothing: each line has at least the charged amount. Its `line` is ignored.',
    }),
  })
  .openapi('CloseRequest')

const postClose = route('post', '/tabs/{tabId}/close', {
  summary: 'Close a tab by a last state, which its buyer signs',
  tags: ['Payments'],
  body: closeRequest,
  refuses: [402, 409],
  responses: { 200: jsonAnswer('The closed tab', tab) },
})

export type TabRouteOptions = {
  sql: Database
  heads: RecordedHeads
  tabStore: TabStore
  networks: GatewayNetworks
  offers: Offers
  receiptKeys: ReceiptKeys
  settings: Pick<GatewaySettings, 'issuer' | 'feeSchedule' | 'minimumPrices' | 'contractTimeoutMs'>
  payerSignatures: PayerSignatures
  /** Called after a buyer has closed a tab. */
  onTabClosed: () => void
  now: () => number
}

/** Adds the routes of tabs for their buyers and for the providers that they pay; a purchase on a tab is a verification. */
export function addTabRoutes(app: App, options: TabRouteOptions): void {
  const { sql, tabStore, networks, settings, payerSignatures, onTabClosed } = options

  async function find(tabId: string): Promise<TabKey> {
    const key = await findTab(sql, tabId)
    if (key === undefined) throw new Refusal('unknown_tab')
    return key
  }

  async function read(key: TabKey): Promise<StoredTab> {
    const stored = await tabStore.read(key)
    if (stored === undefined) throw new Refusal('unknown_tab')
    return stored
  }

  app.openapi(getTab, async (c) =>
    c.json(write(toAnswer(await read(await find(c.req.valid('param').tabId)))), 200),
  )

  app.openapi(getRequest, async (c) => {
    const { tabId, sequence } = c.req.valid('param')
    const request = await tabStore.readRequest(await find(tabId), sequence)
    if (request === undefined) throw noSuchRequest()
    const { caller, isOperator = false } = c.var
    requireParty(request, { caller, isOperator, signature: c.req.valid('header')['tab-signature'] })
    const { price, charged, acceptedAt } = request
    const amounts = { priceUsdc: formatUsdc(price), chargedUsdc: formatUsdc(charged) }
    const { status, ...receipt } = await describe(request)
    const answer = { ...amounts, payment_status: status, acceptedAt: acceptedAt.toISOString(), ...receipt }
    return c.json({ tabId, sequence, ...answer }, 200)
  })

  app.openAPIRegistry.registerPath(postCharge)
  app.post('/tabs/:tabId/requests/:sequence/charge', async (c) => {
    const { tabId, sequence } = readPath(c, postCharge.request.params)
    const providerId = c.get('caller')
    if (providerId === undefined)
      throw new Refusal(
        'unauthorized',
        'Only the provider that sold the request can charge less: send its API key',
      )
    const request = await tabStore.readRequest(await find(tabId), sequence)
    if (request === undefined) throw noSuchRequest()
    if (request.providerId !== providerId) throw new Refusal('forbidden')
    const { amount } = await readJson(c, chargeRequest)
    const outcome = await tabStore.charge(request, parseUsdc(amount))
    if (outcome === 'closed')
      throw new Refusal('payment_claimed', 'The tab is closed, so its charges are final')
    if (outcome === 'over')
      throw new Refusal('invalid_field', 'amount: must not exceed the price or what the buyer signed')
    const { status: _, ...receipt } = await describe(
      (await tabStore.readRequest(request, sequence)) ?? request,
    )
    return c.json({ charged: formatUsdc(parseUsdc(amount)), ...receipt }, 200)
  })

  app.openAPIRegistry.registerPath(postClose)
  app.post('/tabs/:tabId/close', async (c) => {
    const { tabId } = readPath(c, postClose.request.params)
    const last = parseTabPayload((await readJson(c, closeRequest)).tab)
    if (last.tabId !== tabId) throw new Refusal('unknown_tab')
    const stored = await read(last)
    if (stored.closedAt === null) await close(stored, last)
    return c.json(write(toAnswer(await read(last))), 200)
  })

  /** Returns the current status of a request, and its current receipt. */
  async function describe(request: TabRequest): Promise<{ status: PaymentStatus; receipt?: string }> {
    const stored = await read(request)
    const position = (await readRequestPositions(options, stored))(request)
    const receipt = await currentRequestReceipt(options, stored, request, position)
    return { status: position.status, ...(receipt && { receipt }) }
  }

  async function close(stored: StoredTab, last: TabPayment): Promise<void> {
    const network = networks.ofChain(stored.chainId)
    const splits = stored.lines.map(({ split }) => split)
    if (last.amounts.length !== splits.length || last.expiry !== stored.expiresAt)
      throw new Refusal(
        'tab_mismatch',
        `The last state must have the tab's ${splits.length} lines and its expiry`,
      )
    const charged = chargedOnTab(stored)
    const least = leastTabAmount(minimumPriceOn(settings, network.served.network), splits.length)
    if (charged > 0n && charged < least) {
      throw new Refusal(
        'tab_too_small',
        `A tab with ${splits.length} lines needs at least ${formatUsdc(least)} USDC to settle. It stays open until it expires`,
      )
    }
    const signed = toSignedState({ ...stored, issuer: settings.issuer }, last, splits)
    const options = { payerSignatures, contractTimeoutMs: settings.contractTimeoutMs, asksNonces: false }
    // No hook is asked (`screen: null`), because the last state buys nothing.
    await checkPresented([signed], network, { ...options, isBound: [true], screen: null })
    const { sequence, amounts, signature } = last
    if (await tabStore.close(stored, 'buyer', { sequence, amounts, signature })) return onTabClosed()
    throw new Refusal(
      'tab_behind',
      'The last state must be newer than all others and cover what is charged on each line: read GET /tabs/{id} and sign that. ' +
        'Without requests, a tab closes by itself within minutes',
    )
  }
}

/**
 * Requires that the caller took part in a request. Knowing the tab's id isn't enough, because every provider on a tab knows it.
 *
 * @throws {Refusal} `unauthorized` without any proof, `forbidden` with a wrong one.
 */
function requireParty(
  { providerId, signature }: TabRequest,
  shown: { caller: string | undefined; isOperator: boolean; signature: string | undefined },
): void {
  if (shown.isOperator || shown.caller === providerId) return
  if (shown.signature !== undefined && isSameSignature(shown.signature, signature)) return
  if (shown.caller === undefined && shown.signature === undefined) {
    throw new Refusal(
      'unauthorized',
      "Send the API key of the provider that sold the request, or the buyer's signature of the request's state in the header Tab-Signature",
    )
  }
  throw new Refusal(
    'forbidden',
    "Another provider sold the request, or the request's state has a different signature",
  )
}

/** Returns whether a signature equals the stored signature, which is in canonical form. */
function isSameSignature(shown: string, stored: string): boolean {
  try {
    return isSameSecret(parseSignature(shown), stored)
  } catch {
    return false
  }
}

function noSuchRequest(): Refusal {
  return new Refusal('unknown_tab', 'No such request on a tab')
}

const write = writerOf(tab)

function toAnswer(stored: StoredTab) {
  const { chainId, lines } = stored
  const sum = (key: 'signed' | 'charged') => lines.reduce((total, line) => total + atLeastZero(line[key]), 0n)
  return {
    ...stored,
    network: chainId,
    testnet: networkByChainId(chainId).testnet,
    asset: stored.token,
    signedUsdc: sum('signed'),
    chargedUsdc: sum('charged'),
    lines: lines.map(({ split, signed, charged, credit }) => ({
      split: toWord(split),
      provider: providerOfSplit(split),
      signedUsdc: signed,
      chargedUsdc: atLeastZero(charged),
      platformUsdc: platformPart(split, atLeastZero(charged)),
      creditUsdc: credit,
    })),
    expiresAt: new Date(stored.expiresAt * 1000),
    isTaken: stored.takenAt !== null,
  }
}

/** @throws {Refusal} `invalid_request` */
function readPath<S extends z.ZodType>(c: Context, schema: S): z.infer<S> {
  const parsed = schema.safeParse(c.req.param())
  if (!parsed.success) throw invalidRequest('param', parsed.error.issues)
  return parsed.data
}
