import { z } from '@hono/zod-openapi'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { route } from '../http/route.ts'
import { streamPages, type TextPage } from '../http/streamPages.ts'
import { currentReceipt } from '../payments/receipts/currentReceipt.ts'
import { findPayments, type PaymentRecord } from '../payments/records/payments.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { findProviderPayments, type PaymentPosition } from './providerPaymentQueries.ts'
import { paymentFilters } from './providerPayments.ts'
import { behindTab, readTabReceipts, type TabReceiptOptions } from './tabReceipts.ts'

const receiptsQuery = paymentFilters.omit({ limit: true }).extend({
  status: z.enum(paymentStatuses).optional(),
  tabLines: z.enum(['true', 'false']).default('false').openapi({
    description: '`true`: also return a signed sum for each line of a tab, as `tabLine` instead of `receipt`',
  }),
})

/** Positions of receipts: those of a payment, plus the request's number if the receipt is for a request on a tab. */
const receiptPositions = createCursor({
  acceptedAt: timeField,
  paymentId: textField,
  sale: z.int().min(0).max(behindTab).optional(),
})

// The type is `string`, because Hono treats a literal type with "json" in its name as one JSON value.
const jsonLines: string = 'application/jsonl'

const getReceipts = route('get', '/providers/{id}/receipts', {
  ...providerViews,
  summary: 'Export all receipts of a period as JSON Lines, oldest first',
  description:
    'Each line is an object with `paymentId`, `receipt` (current state) and the `cursor` to continue after it. To resume ' +
    'after a lost connection, or to fetch newer receipts, send the cursor of the last complete line. An answer that is cut ' +
    'short ends without its last chunk. Payments that came through the facilitator have no receipt. Each request on a tab has a receipt ' +
    'with the `paymentId` of the tab. These receipts are listed from the tab’s closing until its requests are deleted. `tabLines=true` adds a ' +
    "line with `tabLine` after the requests of each tab: the gateway's signed sum of them, as docs/protocol.md describes it. These lines are never deleted. " +
    'A line is listed in each period in which one of its sales was made, but never if `endpointId` is given.',
  query: receiptsQuery,
  responses: {
    200: {
      description: 'The receipts, one per line',
      content: { [jsonLines]: { schema: { type: 'string' as const } } },
    },
  },
})

/** Number of receipts signed without a pause. Signing them takes 5 ms, during which the process serves no other request. */
const pageSize = 200

/**
 * Minimum age in ms of listed payments. Payments don't always become visible in the order in which they were accepted: a younger payment may still
 * be invisible when a later one is already listed. A reader who continues after the later one would never see it.
 */
const unsettledOrderMs = 10_000

export type ProviderReceiptRouteOptions = TabReceiptOptions & {
  heads: RecordedHeads
  networks: GatewayNetworks
}

export function addProviderReceiptRoute(app: App, options: ProviderReceiptRouteOptions): void {
  const { sql, heads, networks, receiptKeys, settings, now } = options
  app.openapi(getReceipts, async (c) => {
    const providerId = c.req.valid('param').id
    const { network, cursor, to: until, tabLines, ...filters } = c.req.valid('query')
    const { status, endpointId, payer } = filters
    const list = ['receipts', status, network, endpointId, payer].join(' ')
    const start = receiptPositions.read(list, cursor)
    const chainId = networks.chainIdNamed(network)
    const indexedBlocks = await heads.ofProvider(providerId, chainId)
    const latest = new Date(now() - unsettledOrderMs)
    const to = until !== undefined && until < latest ? until : latest

    const sign = (payment: PaymentRecord) => {
      const { chainId, paymentId, acceptedAt } = payment
      const network = networks.byChainId.get(chainId)?.served.network ?? networkByChainId(chainId)
      const receipt = currentReceipt(payment, {
        network,
        indexedBlock: indexedBlocks[network.name] ?? null,
        issuer: settings.issuer,
        signedAt: now(),
        key: receiptKeys.current,
      })
      return receipt === null ? [] : [{ position: { acceptedAt, paymentId }, paymentId, receipt }]
    }
    const write = ({ position, ...line }: { position: PaymentPosition; paymentId: string }) =>
      `${JSON.stringify({ ...line, cursor: receiptPositions.write(list, position) })}\n`
    const readPage = async (after: PaymentPosition | null): Promise<TextPage<PaymentPosition>> => {
      const at = new Date(now())
      const page = {
        providerId,
        chainId,
        to,
        after,
        limit: pageSize,
        oldestFirst: true,
        withoutTabs: true,
        now: at,
      }
      const [{ payments, next }, tabs] = await Promise.all([
        // Payments have no request number, so `sale` is removed.
        findProviderPayments(sql, { ...filters, ...page, after: after && { ...after, sale: undefined } }),
        readTabReceipts(options, {
          ...filters,
          ...page,
          takenBefore: latest,
          withTabLines: tabLines === 'true',
        }),
      ])
      const ids = payments.map(({ paymentId }) => paymentId)
      const records = await findPayments(sql, ids, at)
      const found = ids.flatMap((id) => records.get(id) ?? [])
      // The status may have changed between the two reads.
      const own = found.filter((one) => status === undefined || one.status === status).flatMap(sign)
      // A list that has more continues after its `next`. Receipts after that position wait for a later page, so that the order stays right.
      const end = [next, tabs.next].filter((one) => one !== null).toSorted(byPosition)[0] ?? null
      const lines = [...own, ...tabs.receipts]
        .filter(({ position }) => end === null || byPosition(position, end) <= 0)
        .toSorted((a, b) => byPosition(a.position, b.position))
      return { write: () => lines.map(write).join(''), next: end }
    }
    return c.body(streamPages(await readPage(start), readPage), 200, {
      'content-type': `${jsonLines}; charset=utf-8`,
      'content-disposition': 'attachment; filename="receipts.jsonl"',
    })
  })
}

/** Orders by time, then by payment id, and the requests of a tab by their numbers. */
function byPosition(a: PaymentPosition, b: PaymentPosition): number {
  return (
    a.acceptedAt.getTime() - b.acceptedAt.getTime() ||
    (a.paymentId < b.paymentId ? -1 : a.paymentId > b.paymentId ? 1 : 0) ||
    (a.sale ?? 0) - (b.sale ?? 0)
  )
}
