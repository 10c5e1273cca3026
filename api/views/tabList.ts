import { z } from '@hono/zod-openapi'
import { type ClosedTab, findClosedTabs } from '@tollkeeper/ledger/sales/sales'
import type { Database } from '@tollkeeper/ledger/store/database'
import { type ClosingRules, closingTimeOf } from '@tollkeeper/ledger/tabs/closeTabs'
import type { CurrentTab, TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import { closingTimes } from '@tollkeeper/ledger/tabs/upkeep'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
import type { Address } from 'viem'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { minimumPriceOn } from '../registry/price.ts'

const tabsQuery = z.object({
  state: z.enum(['open', 'closed', 'all']).default('open').openapi({
    description: '`open`: tabs that the ledger has not imported yet, including closing tabs',
  }),
  network: wire.networkName.optional(),
  payer: wire.address.optional(),
  paymentId: wire
    .idFilter('pay')
    .optional()
    .openapi({ description: 'Only the tab that becomes this payment' }),
  limit: wire.limit,
  cursor: wire.cursor,
})

const line = z.object({
  endpointId: wire.endpointId,
  requests: z.int().openapi({ description: 'Number of charged requests' }),
  amount_usdc: wire.decimalUsdc,
  net_usdc: wire.decimalUsdc.openapi({ description: "The provider's part of `amount_usdc`" }),
  lastRequestAt: wire.isoTime,
})

const providerTab = z
  .object({
    tabId: wire.tabId,
    paymentId: wire.paymentId.openapi({ description: 'Id of the payment as which the tab settles' }),
    network: wire.networkOfChain,
    payer: wire.addressOut,
    state: z.enum(['open', 'closing', 'closed']).openapi({
      description:
        '`closing`: no more can be bought on it, and the ledger imports it within seconds. `closed`: its payment is queued or final',
    }),
    payment_status: z.enum(paymentStatuses),
    openedAt: wire.isoTime,
    lastRequestAt: wire.isoTime.openapi({ description: 'Time of the latest request to this provider' }),
    closesAt: wire.isoTime.openapi({
      description:
        'When the tab closes if there are no further purchases; for a closed tab, when it was closed',
    }),
    closeReason: z.string().openapi({
      example: 'idle',
      description:
        'Why it closes then. `idle`: nothing was bought for a while. `old`: it reached the maximum age. `expiring`: ' +
        'its signature expires (until its signature expires, a tab that is too small to settle stays open). `amount`, `count`, `credit`: a limit is reached. `buyer`: its buyer closed it',
    }),
    requests: z.int().openapi({ description: "Number of charged requests to this provider's endpoints" }),
    amount_usdc: wire.decimalUsdc.openapi({
      description: "Sum of the charges for this provider's requests, fee included",
    }),
    net_usdc: wire.decimalUsdc.openapi({ description: "The provider's part of `amount_usdc`" }),
    signed_usdc: wire.decimalUsdc.openapi({
      description:
        "Amount that the newest state covers for this provider, fee included: at least `amount_usdc` minus what the buyer's credit paid",
    }),
    lines: z.array(line).openapi({ description: "This provider's sales by endpoint" }),
  })
  .openapi('ProviderTab')

export const providerTabs = z
  .object({ tabs: z.array(providerTab), cursor: wire.cursorOut, indexedBlocks: wire.indexedBlocks })
  .openapi('ProviderTabs')

type ProviderTab = z.input<typeof providerTab>

/** Open tabs come first, then closed tabs. The payer is part of an open tab's position; a closed tab doesn't need it. */
const positions = createCursor({ at: timeField, id: textField, payer: textField.optional() })

export type TabListRouteOptions = {
  sql: Database
  tabReads: TabReads
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'triggers' | 'minimumPrices' | 'tabs'>
  now: () => number
}

export const addTabListRoute = view('/providers/{id}/tabs', {
  ...providerViews,
  summary: 'Open and closed tabs on which the provider sold something',
  description:
    "Shows only the provider's own requests and amounts, not those of other providers on the same tab. Open tabs come first, the latest opened first; " +
    'then closed tabs, the latest closed first. If a tab closes while pages are read, it may appear twice.',
  query: tabsQuery,
  answer: ['The tabs', providerTabs],
  open: ({ sql, tabReads, heads, networks, settings, now }: TabListRouteOptions) => {
    const rules: ClosingRules = {
      ...closingTimes,
      amount: settings.triggers.highValue,
      earnedTimes: settings.tabs?.earnedHours ?? 1,
      least: new Map(
        [...networks.byChainId.values()].map(({ served: { network } }) => [
          network.chainId,
          minimumPriceOn(settings, network),
        ]),
      ),
    }
    return async ({ id: providerId, state, network, payer, paymentId, limit, cursor }) => {
      const chainId = networks.chainIdNamed(network)
      const list = `tabs ${state}`
      const after = positions.read(list, cursor)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const asked = { providerId, chainId, payer }
      const isBehindOpen = state === 'closed' || (after !== null && after.payer === undefined)
      const open = isBehindOpen ? [] : await findOpen({ ...asked, paymentId, after, limit: limit + 1 })
      const tabs = open
        .slice(0, limit)
        .map((tab) => ({ shown: toOpenTab(tab, rules), position: openPosition(tab) }))
      if (open.length <= limit && state !== 'open') {
        const closed = await findClosedTabs(sql, {
          ...asked,
          paymentId,
          after: isBehindOpen && after !== null ? { takenAt: after.at, paymentId: after.id } : null,
          limit: limit + 1 - tabs.length,
          now: new Date(now()),
        })
        // A tab that the ledger imported between the two queries is in both lists.
        const shown = new Set(tabs.map(({ shown }) => shown.paymentId))
        const further = closed.filter((tab) => !shown.has(tab.paymentId))
        tabs.push(...further.map((tab) => ({ shown: toClosedTab(tab), position: closedPosition(tab) })))
      }
      const hasMore = tabs.length > limit || open.length > limit
      const page = tabs.slice(0, limit)
      const last = page.at(-1)
      return {
        tabs: page.map(({ shown }) => shown),
        cursor: hasMore && last ? positions.write(list, last.position) : null,
        indexedBlocks,
      }
    }

    async function findOpen({
      paymentId,
      after,
      ...asked
    }: {
      providerId: string
      chainId: number | undefined
      payer: Address | undefined
      paymentId: string | undefined
      after: Position | null
      limit: number
    }): Promise<CurrentTab[]> {
      const position = after && { openedAt: after.at, payer: after.payer as Address, tabId: after.id }
      if (paymentId === undefined) return tabReads.findCurrent({ ...asked, after: position })
      const tab = await tabReads.readByPayment(paymentId)
      return tab ? tabReads.findCurrent({ ...asked, tab, after: position }) : []
    }
  },
})

type Position = { at: Date; id: string; payer?: string | undefined }

const openPosition = ({ openedAt, payer, tabId }: CurrentTab): Position => ({
  at: openedAt,
  id: tabId,
  payer,
})
const closedPosition = ({ takenAt, paymentId }: ClosedTab): Position => ({ at: takenAt, id: paymentId })

/**
 * Returns the amount that a provider's lines cover for this provider. That is everything signed on a line, or only the charged amount if other
 * providers share the line.
 */
const signedFor = (
  items: readonly { position: number; signed: bigint; isShared: boolean; amount: bigint }[],
) =>
  [...Map.groupBy(items, ({ position }) => position).values()].reduce((sum, own) => {
    const [{ signed, isShared }] = own as [(typeof own)[number]]
    return sum + (isShared ? sumOf(own, ({ amount }) => amount) : signed)
  }, 0n)

function sumOf<T>(rows: readonly T[], amountOf: (row: T) => bigint): bigint {
  return rows.reduce((sum, row) => sum + amountOf(row), 0n)
}

function toOpenTab(tab: CurrentTab, rules: ClosingRules): ProviderTab {
  const { tabId, paymentId, chainId, payer, openedAt, closedAt, closeReason } = tab
  const closes =
    closedAt === null ? closingTimeOf(tab, rules) : { at: closedAt, reason: closeReason as string }
  // The platform's part is rounded down once per line, not once per endpoint. So an endpoint's part is the increase of the line's part when its
  // amount is added.
  const totals = new Map<number, bigint>()
  const items = tab.items
    .filter(({ requests }) => requests > 0)
    .map(({ split, charged: amount, ...item }) => {
      const before = totals.get(item.position) ?? 0n
      totals.set(item.position, before + amount)
      const net = amount - (platformPart(split, before + amount) - platformPart(split, before))
      return { ...item, amount, net }
    })
  return {
    ...toTab({ tabId, paymentId, network: chainId, payer, openedAt }, items),
    state: closedAt === null ? 'open' : 'closing',
    payment_status: 'verified',
    closesAt: closes.at,
    closeReason: closes.reason,
  }
}

function toClosedTab({ tabId, paymentId, chainId, payer, openedAt, items, ...tab }: ClosedTab): ProviderTab {
  return {
    ...toTab({ tabId, paymentId, network: chainId, payer, openedAt }, items),
    state: 'closed',
    payment_status: tab.status,
    closesAt: tab.closedAt,
    closeReason: tab.closeReason,
  }
}

type Item = {
  endpointId: string
  position: number
  requests: number
  amount: bigint
  net: bigint
  signed: bigint
  isShared: boolean
  lastAt: Date
}

function toTab<Head>(head: Head, items: readonly Item[]) {
  const lines = [...Map.groupBy(items, ({ endpointId }) => endpointId)].map(([endpointId, own]) => ({
    endpointId,
    requests: own.reduce((sum, { requests }) => sum + requests, 0),
    amount_usdc: sumOf(own, ({ amount }) => amount),
    net_usdc: sumOf(own, ({ net }) => net),
    lastRequestAt: latest(own),
  }))
  return {
    ...head,
    lastRequestAt: latest(items),
    requests: items.reduce((sum, { requests }) => sum + requests, 0),
    amount_usdc: sumOf(items, ({ amount }) => amount),
    net_usdc: sumOf(items, ({ net }) => net),
    signed_usdc: signedFor(items),
    lines,
  }
}

function latest(items: readonly Item[]): Date {
  return new Date(Math.max(...items.map(({ lastAt }) => lastAt.getTime())))
}
