import { isNetworkName, networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { ComponentChildren } from 'preact'
import { choosePeriod, type Period } from '../display/period.ts'
import { useSearch } from '../display/routing.ts'
import type { RangeName } from '../display/series.ts'
import { PeriodChoice } from './PeriodChoice.tsx'
import { Empty } from './View.tsx'

/** The period of a page and its kind of money, real money or testnet funds. Both are in the page's link. */
export type Scope = {
  /** The chosen period. Undefined: all time. */
  period: Period | undefined
  /** The period of the page's plots. For all time, the last 12 months. */
  plotted: Period
  /** The period as query parameters of the gateway's views. A period until now has no `to`, so that it advances with time. */
  within: { from?: string; to?: string }
  /** The kind of money. Undefined: the gateway's default, which is real money if there is any. */
  testnet: string | undefined
  /** A key that identifies the period and the kind of money. */
  key: string
  /** The part of the link's query that names the period and the kind of money, for links to other pages. */
  own: Record<string, string | undefined>
  /** The link's query without the period and the kind of money. */
  search: Record<string, string>
  /** Changes the named values of the link's query and keeps the others. */
  set: (next: Record<string, string | undefined>) => void
  /** The element that chooses the period. */
  choice: ComponentChildren
}

type ScopedProps = {
  title: string
  /**
   * The periods that the page offers, besides custom days. If none of them is in hours, all figures are counted by whole UTC
   * days.
   */
  options: readonly (RangeName | 'all')[]
  /** The period if the link has none. */
  usual?: RangeName | 'all'
  children: (scope: Scope) => ComponentChildren
}

/** Shows a page for the period and kind of money in its link, or the reason why the days are invalid. */
export function Scoped({ title, options, usual = 'days', children }: ScopedProps) {
  const [all, replace] = useSearch()
  const { period: _, from, to, testnet: asked, ...search } = all
  const testnet = asked === 'true' || asked === 'false' ? asked : undefined
  const period = readPeriod(all, options, usual)
  const choice = <PeriodChoice period={period} options={options} usual={usual} />
  const months = choosePeriod({ period: 'months' }, new Date())
  const plotted = period ?? months
  if (typeof period === 'string' || typeof plotted === 'string') {
    return (
      <>
        <header class="line view-head">
          <h1>{title}</h1>
          {choice}
        </header>
        <Empty title="This period can’t be shown" isTrouble>
          {period}
        </Empty>
      </>
    )
  }
  return children({
    period,
    plotted,
    within: withinOf(period),
    testnet,
    key: `${period?.name} ${from} ${to} ${testnet}`,
    own: { period: all.period, from, to, testnet },
    search,
    set: (next) => replace({ ...all, ...next }),
    choice,
  })
}

function readPeriod(
  search: Record<string, string>,
  options: ScopedProps['options'],
  usual: RangeName | 'all',
): Period | string | undefined {
  const { period = usual, from, to } = search
  const name = options.find((option) => option === period) ?? usual
  if (name === 'all' && from === undefined && to === undefined) return undefined
  return choosePeriod({ ...search, period: name }, new Date(), !options.includes('hours'))
}

/** Returns a period as the gateway's views expect it. */
export function withinOf(period: Period | undefined): Scope['within'] {
  if (period === undefined) return {}
  const from = period.from.toISOString()
  return period.name === 'custom' ? { from, to: period.to.toISOString() } : { from }
}

/** Whether a provider has wallets on networks of both kinds, real and test. */
export function hasBothKinds(indexedBlocks: Record<string, unknown>): boolean {
  const names = Object.keys(indexedBlocks)
  return new Set(names.map((name) => isNetworkName(name) && networkByName(name).testnet)).size > 1
}

type MoneyNoteProps = { scope: Pick<Scope, 'set'>; testnet: boolean; hasBoth: boolean }

/** Names the kind of money on a page. If the provider has both kinds, offers a switch to the other one. */
export function MoneyNote({ scope, testnet, hasBoth }: MoneyNoteProps) {
  if (!testnet && !hasBoth) return null
  return (
    <p class="note">
      {testnet ? 'Testnet funds, no real value.' : 'Real funds only.'}{' '}
      {hasBoth && (
        <button type="button" class="quiet small" onClick={() => scope.set({ testnet: String(!testnet) })}>
          {testnet ? 'Show real funds' : 'Show testnet funds'}
        </button>
      )}
    </p>
  )
}
