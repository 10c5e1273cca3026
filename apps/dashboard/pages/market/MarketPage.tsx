import { useState } from 'preact/hooks'
import { listingLink, readOffer } from '../../display/buying.ts'
import { countOf, nameNetwork, writeCount, writeUsdc } from '../../display/format.ts'
import { hrefWith, type Route, useSearch } from '../../display/routing.ts'
import type { DiscoveryResource, DiscoverySearch } from '../../gateway/answers.ts'
import { createGateway, query } from '../../gateway/gateway.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { type Column, Table } from '../../parts/Table.tsx'
import { Code, Copyable, State, Time } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { ListingPage } from './ListingPage.tsx'

const gateway = createGateway()
const everyMs = 10_000
const pageSize = 50

type Listed = { items: DiscoveryResource[]; pagination: { total: number } }

/** Shows anyone, without a key, the offers of this gateway: a search by words, and a page for each listing. */
export function MarketPage({ route: [first, resource] }: { route: Route }) {
  const [search] = useSearch()
  if (first !== undefined && resource !== undefined) return <ListingPage seller={first} resource={resource} />
  // In older links, the search words are in the route.
  return <Listings words={first ?? search.q} />
}

function Listings({ words }: { words: string | undefined }) {
  const [limit, setLimit] = useState(pageSize)
  const polled = usePolled((signal) => find(words, limit, signal), `market ${words} ${limit}`, everyMs)
  return (
    <View
      title="Market"
      polled={polled}
      below={
        <form
          key={words}
          class="line filters"
          onSubmit={(event) => {
            event.preventDefault()
            const q = String(new FormData(event.currentTarget).get('q') ?? '').trim()
            location.hash = hrefWith(['market'], { q })
          }}
        >
          <label>
            <span class="note">Words of its description</span>
            <input
              type="search"
              name="q"
              defaultValue={words ?? ''}
              placeholder="weather"
              spellcheck={false}
              autocomplete="off"
            />
          </label>
          <button type="submit">Search</button>
        </form>
      }
      none={
        <Empty title={words ? 'No listing has these words' : 'Nothing is sold here yet'}>
          {words
            ? 'Search for other words, or for fewer.'
            : 'New endpoints appear here within seconds if their provider lists them.'}
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
            {total !== null && `${countOf(total, 'listing')}. `}Figures are of payments that settled within 30
            days. Listings that paid the most fees come first. An origin is proven if the URL itself asks for
            payments to the seller.
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

function keyOf(listing: DiscoveryResource): string {
  const { resource, seller } = readOffer(listing)
  return `${resource} ${seller}`
}

const columns: Column<DiscoveryResource>[] = [
  [
    'Listing',
    (listing) => {
      const offer = readOffer(listing)
      return (
        <>
          {listing.serviceName !== undefined && <b>{listing.serviceName} </b>}
          <a href={listingLink(offer)}>
            <Code>{`${offer.method} ${offer.resource}`}</Code>
          </a>
          {listing.description !== '' && <p class="note break">{listing.description}</p>}
        </>
      )
    },
    'wrap',
  ],
  ['Price, USDC', (listing) => writeUsdc(readOffer(listing).price), 'number', 'end'],
  ['Network', (listing) => readOffer(listing).networks.map(nameNetwork).join(', '), undefined, 'second'],
  ['Payments', ({ quality }) => writeCount(quality.l30DaysTotalCalls), 'number', 'more'],
  ['Buyers', ({ quality }) => writeCount(quality.l30DaysUniquePayers), 'number', 'more'],
  ['Last settled', ({ quality }) => <Time at={quality.lastCalledAt} distance />, undefined, 'more'],
  [
    'Origin',
    ({ quality: { proven } }) => <State isOn={proven} yes="proven" no="not proven" />,
    undefined,
    'second',
  ],
  ['Paid to', (listing) => <Copyable text={readOffer(listing).seller} />, undefined, 'more'],
]
