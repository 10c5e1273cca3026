import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { ComponentChildren } from 'preact'
import { countOf, nameNetwork, writeCount, writeDistance, writeUsdc } from '../../display/format.ts'
import { href, type Route, useSearch } from '../../display/routing.ts'
import { useNow } from '../../display/useNow.ts'
import type { ProviderTab, ProviderTabs } from '../../gateway/answers.ts'
import { query } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { type Polled, usePolled, usePolledPages } from '../../gateway/usePolled.ts'
import { Buyer, EndpointName, PaymentLink, Status } from '../../parts/payments.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Badge, Choice, Copyable, Facts, Figures, Panel, Time, Usdc } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'

/** Shows the tabs on which buyers bought from the provider, open and closed, or one tab. */
export function TabsPage({ route: [paymentId] }: { route: Route }) {
  return paymentId === undefined ? <TabList /> : <TabPage paymentId={paymentId} />
}

const states = [
  ['open', 'Open'],
  ['closed', 'Closed'],
  ['all', 'All'],
] as const

type State = (typeof states)[number][0]

function TabList() {
  const { gateway, path } = useSession()
  const [search, setSearch] = useSearch()
  const state: State = states.find(([one]) => one === search.state)?.[0] ?? 'open'
  const { payer } = search
  const polled = usePolledPages(
    (pages) => gateway.list<ProviderTab>(`${path}/tabs`, { state, payer, limit: 25 }, pages),
    `tabs ${state} ${payer}`,
  )
  return (
    <View
      title="Tabs"
      polled={polled}
      below={
        <>
          <div class="line">
            <Choice
              label="Which tabs"
              options={states}
              value={state}
              choose={(next) => setSearch({ ...search, state: next === 'open' ? undefined : next })}
            />
            {payer !== undefined && (
              <>
                <span>
                  of buyer <Buyer address={payer} />
                </span>
                <button type="button" class="quiet small" onClick={() => setSearch({ state: search.state })}>
                  Show all buyers
                </button>
              </>
            )}
          </div>
          {state !== 'closed' && <StoreAway polled={polled} />}
        </>
      }
      none={
        <Empty title={state === 'open' ? 'No tab is open' : 'No tabs'}>
          A buyer opens a tab to pay for many small requests with one signature. A tab appears here after its
          first request to you.
        </Empty>
      }
    >
      {({ rows, more }) => (
        <section class="panel">
          <Table
            label="Tabs"
            rows={rows}
            more={more}
            keyOf={({ paymentId }) => paymentId}
            columns={columns}
          />
          <p class="note">
            Only your own requests are counted. “Signed” is what the buyer’s newest signature covers for you.
          </p>
        </section>
      )}
    </View>
  )
}

/** Shows that the separate store of open tabs isn't responding. Everything else may be available. */
function StoreAway({ polled: { error } }: { polled: Polled<unknown> }) {
  if (error?.code !== 'dependency_unavailable') return null
  return (
    <div class="box busy" role="alert">
      <p>
        The store of open tabs isn’t responding, so open tabs can’t be shown now. Purchases on them are safe.
        This page reconnects automatically. Closed tabs may still be listed under “Closed”.
      </p>
    </div>
  )
}

const columns: Column<ProviderTab>[] = [
  [
    'Tab',
    ({ paymentId, tabId }) => (
      <a class="code" href={href('tabs', paymentId)} title={tabId}>
        …{tabId.slice(-12)}
      </a>
    ),
  ],
  [
    'Bought',
    ({ lines }) => (
      <>
        {lines.map(({ endpointId, requests }) => (
          <div key={endpointId}>
            <EndpointName id={endpointId} /> <span class="note">× {writeCount(requests)}</span>
          </div>
        ))}
      </>
    ),
  ],
  ['State', (tab) => <TabState tab={tab} />],
  ['Charged, USDC', ({ amount_usdc }) => <Usdc decimal={amount_usdc} />, 'number'],
  ['Signed, USDC', ({ signed_usdc }) => <Usdc decimal={signed_usdc} />, 'number'],
  ['Buyer', ({ payer }) => <Buyer address={payer} />, undefined, 'more'],
  ['Network', ({ network }) => nameNetwork(network), undefined, 'more'],
  ['Last request', ({ lastRequestAt }) => <Time at={lastRequestAt} distance />, undefined, 'more'],
  ['Closes', (tab) => <Closing tab={tab} />],
]

function TabState({ tab: { state, payment_status } }: { tab: ProviderTab }) {
  if (state === 'closed') return <Status status={payment_status} />
  return <Badge tone="busy">{state}</Badge>
}

/** The reason why a tab will close. It ends a sentence that begins with the time. */
const reasons: Record<string, string> = {
  idle: 'unless the buyer buys again',
  old: 'because it reaches its maximum age',
  expiring: 'because its signature expires',
  amount: 'because it reached its maximum amount',
  count: 'because it reached its maximum number of requests',
  credit: 'because its buyer’s credit is used up',
}

/** The reason why a tab was closed. */
const closed: Record<string, string> = {
  buyer: 'by its buyer',
  idle: 'because nothing was bought for a while',
  old: 'because it reached its maximum age',
  expiring: 'because its signature expired',
  amount: 'because it reached its maximum amount',
  count: 'because it reached its maximum number of requests',
  credit: 'because its buyer’s credit was used up',
  balance: 'because its buyer’s balance no longer covered it',
  code: 'because its buyer’s wallet became a contract',
  authorization_used: 'because its signature was used elsewhere',
}

function Closing({ tab: { state, closesAt, closeReason } }: { tab: ProviderTab }) {
  const now = useNow()
  const at = Date.parse(closesAt)
  const reason = (state === 'open' ? reasons : closed)[closeReason]
  return (
    <>
      <time dateTime={closesAt} title={closesAt}>
        {state === 'open' && at <= now ? 'now' : writeDistance(now, at)}
      </time>
      {reason !== undefined && <span class="note"> {reason}</span>}
    </>
  )
}

const lineColumns: Column<ProviderTab['lines'][number]>[] = [
  ['Endpoint', ({ endpointId }) => <EndpointName id={endpointId} />],
  ['Requests', ({ requests }) => writeCount(requests), 'number', 'second'],
  ['Charged, USDC', ({ amount_usdc }) => <Usdc decimal={amount_usdc} />, 'number'],
  ['Net, USDC', ({ net_usdc }) => <Usdc decimal={net_usdc} />, 'number'],
  ['Last request', ({ lastRequestAt }) => <Time at={lastRequestAt} />],
]

function TabPage({ paymentId }: { paymentId: string }) {
  const { gateway, path } = useSession()
  const polled = usePolled(async (signal) => {
    const asked = { state: 'all', paymentId, limit: 1 }
    const { tabs } = await gateway.get<ProviderTabs>(`${path}/tabs${query(asked)}`, signal)
    return { rows: tabs }
  }, `tab ${paymentId}`)
  return (
    <View
      title="Tab"
      polled={polled}
      below={<StoreAway polled={polled} />}
      none={
        <Empty title="You have no sales on this tab" more={<a href={href('tabs')}>See all tabs</a>}>
          Tabs without a charged request to you, and tabs that ended unpaid, aren’t listed.{' '}
          <a href={href('payments', paymentId)}>See its payment</a>
        </Empty>
      }
    >
      {({ rows: [tab] }) => tab && <OneTab tab={tab} />}
    </View>
  )
}

function OneTab({ tab }: { tab: ProviderTab }) {
  const usdc = (decimal: string) => writeUsdc(parseUsdc(decimal))
  const facts: Record<string, ComponentChildren> = {
    Tab: <Copyable text={tab.tabId} />,
    State: <TabState tab={tab} />,
    Buyer: <Buyer address={tab.payer} />,
    Network: nameNetwork(tab.network),
    Opened: <Time at={tab.openedAt} />,
    'Last request to you': <Time at={tab.lastRequestAt} />,
    [tab.state === 'open' ? 'Closes' : 'Closed']: <Closing tab={tab} />,
    'Settles as': <PaymentLink paymentId={tab.paymentId} />,
  }
  return (
    <>
      <Figures
        of={[
          ['Charged for you', usdc(tab.amount_usdc), countOf(tab.requests, 'request'), 'USDC'],
          ['Net', usdc(tab.net_usdc), 'after the platform fee', 'USDC'],
          ['Signed for you', usdc(tab.signed_usdc), 'by the buyer’s newest signature', 'USDC'],
        ]}
      />
      <Facts isPanel of={facts} />
      <Panel title="Purchases">
        <Table
          label="Purchases"
          rows={tab.lines}
          keyOf={({ endpointId }) => endpointId}
          columns={lineColumns}
        />
        <p class="note">Your endpoints only. A buyer may buy from other providers on the same tab.</p>
      </Panel>
    </>
  )
}
