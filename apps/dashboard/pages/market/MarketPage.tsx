import { useState } from 'preact/hooks'
import { countOf, writeCount, writeUsdc } from '../../display/format.ts'
import { href, type Route } from '../../display/routing.ts'
import type { DiscoveryResource, DiscoverySearch } from '../../gateway/answers.ts'
import { createGateway, query } from '../../gateway/gateway.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { Code, Copyable, State, Time } from '../../parts/bits.tsx'
import { type Column, Filters, Table } from '../../parts/Table.tsx'
import { Empty, View } from '../../parts/View.tsx'

const gateway = createGateway()
const everyMs = 10_000
const pageSize = 50

type Listed = { items: DiscoveryResource[]; pagination: { total: number } }

/** For anyone, without a key: what can be bought through this gateway, searched by its words. */
export function MarketPage({ route: [words] }: { route: Route }) {
  const [limit, setLimit] = useState(pageSize)
  const polled = usePolled((signal) => find(words, limit, signal), `market ${words} ${limit}`, everyMs)
  return (
    <View
      title="Market"
      polled={polled}
      below={
        <Filters
          key={words}
          filters={[['words', 'What it is about', { value: words ?? '', placeholder: 'weather' }]]}
          send={({ words = '' }) => {
            location.hash = words === '' ? href('market') : href('market', words)
          }}
        />
      }
      none={
        <Empty title={words ? 'Nothing is found by these words' : 'Nothing is sold here yet'}>
          What a provider registers is listed within seconds, unless it says not to.
        </Empty>
      }
    >
      {({ rows, total }) => (
        <section class="panel">
          <Table label="Listings" rows={rows} keyOf={keyOf} columns={columns} />
          {rows.length >= limit && limit < 100 && (
            <button type="button" class="quiet" onClick={() => setLimit(100)}>
              Show more
            </button>
          )}
          <p class="note">
            {total !== null && `${countOf(total, 'listing')}. `}Figures are of 30 days, as far as settlements
            are final; what carried most fees comes first. An origin counts as proven where it asks for
            payments to its seller itself.
          </p>
        </section>
      )}
    </View>
  )
}

async function find(words: string | undefined, limit: number, signal: AbortSignal) {
  if (words) {
    const asked = query({ query: words.slice(0, 400), limit })
    const { resources } = await gateway.get<DiscoverySearch>(`discovery/search${asked}`, signal)
    return { rows: resources, total: null }
  }
  const { items, pagination } = await gateway.get<Listed>(`discovery/resources${query({ limit })}`, signal)
  return { rows: items, total: pagination.total }
}

function keyOf({ resource, accepts: [first] }: DiscoveryResource): string {
  return `${resource} ${first?.extra.seller ?? first?.payTo}`
}

const columns: Column<DiscoveryResource>[] = [
  [
    'What',
    ({ resource, description, serviceName, extensions }) => (
      <>
        {serviceName !== undefined && <b>{serviceName} </b>}
        <Code>{`${methodOf(extensions)} ${resource}`}</Code>
        {description !== '' && <p class="note break">{description}</p>}
      </>
    ),
    'wrap',
  ],
  ['Price, USDC', ({ accepts }) => writeUsdc(BigInt(priceOf(accepts))), 'number'],
  ['Paid to', ({ accepts: [first] }) => first && <Copyable text={first.extra.seller ?? first.payTo} />],
  ['Payments', ({ quality }) => writeCount(quality.l30DaysTotalCalls), 'number'],
  ['Buyers', ({ quality }) => writeCount(quality.l30DaysUniquePayers), 'number'],
  ['Last settled', ({ quality }) => <Time at={quality.lastCalledAt} distance />],
  ['Origin', ({ quality: { proven } }) => <State isOn={proven} yes="proven" no="not proven" />],
]

function priceOf([first]: DiscoveryResource['accepts']): string {
  return first?.amount ?? first?.maxAmountRequired ?? '0'
}

function methodOf({ bazaar }: DiscoveryResource['extensions']): string {
  const { info } = bazaar as { info?: { input?: { type?: string; method?: string } } }
  return info?.input?.type === 'mcp' ? 'tool' : (info?.input?.method ?? 'GET')
}
