import { useState } from 'preact/hooks'
import type { DiscoveryResource, DiscoverySearch } from '../../answers.ts'
import { countOf, writeCount, writeUsdc } from '../../format.ts'
import { createGateway, query } from '../../gateway.ts'
import { Code, Copyable, State, Table, Time } from '../../parts/bits.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { usePolled } from '../../usePolled.ts'

const gateway = createGateway()
const everyMs = 10_000
const pageSize = 50

type Found = { rows: DiscoveryResource[]; total: number | null }

/** For anyone, without a key: what this gateway sells, searched by words. */
export function MarketPage({ words }: { words: string | undefined }) {
  const [limit, setLimit] = useState(pageSize)
  const polled = usePolled(
    (signal) => (words ? search(words, limit, signal) : list(limit, signal)),
    `market ${words} ${limit}`,
    everyMs,
  )
  const form = (
    <form
      class="line filters"
      onSubmit={(event) => {
        event.preventDefault()
        const asked = String(new FormData(event.currentTarget).get('words')).trim()
        location.hash = asked === '' ? href('market') : href('market', asked)
      }}
    >
      <label>
        <span class="note">What it is about</span>
        <input key={words} name="words" value={words ?? ''} placeholder="weather" spellcheck={false} />
      </label>
      <button type="submit">Search</button>
    </form>
  )
  return (
    <View title="Market" polled={polled} below={form}>
      {({ rows, total }) =>
        rows.length === 0 ? (
          <Empty title={words ? 'Nothing is found by these words' : 'Nothing is sold here yet'}>
            <p>What a provider registers is listed within seconds, unless it says not to.</p>
          </Empty>
        ) : (
          <section class="panel">
            <Listings rows={rows} />
            {rows.length >= limit && limit < 100 && (
              <button type="button" class="quiet" onClick={() => setLimit(100)}>
                Show more
              </button>
            )}
            <p class="note">
              {total !== null && `${countOf(total, 'listing')}. `}Figures are of 30 days, as far as
              settlements are final; what carried most fees comes first. An origin counts as proven where it
              asks for payments to its seller itself.
            </p>
          </section>
        )
      }
    </View>
  )
}

async function list(limit: number, signal: AbortSignal): Promise<Found> {
  const { items, pagination } = await gateway.get<{
    items: DiscoveryResource[]
    pagination: { total: number }
  }>(`discovery/resources${query({ limit })}`, signal)
  return { rows: items, total: pagination.total }
}

async function search(words: string, limit: number, signal: AbortSignal): Promise<Found> {
  const { resources } = await gateway.get<DiscoverySearch>(
    `discovery/search${query({ query: words.slice(0, 400), limit })}`,
    signal,
  )
  return { rows: resources, total: null }
}

function Listings({ rows }: { rows: DiscoveryResource[] }) {
  return (
    <Table
      label="Listings"
      rows={rows}
      keyOf={({ resource, accepts }) => `${resource} ${accepts[0]?.extra.seller ?? accepts[0]?.payTo}`}
      columns={[
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
        [
          'Last settled',
          ({ quality: { lastCalledAt } }) =>
            lastCalledAt === null ? '–' : <Time at={lastCalledAt} distance />,
        ],
        ['Origin', ({ quality: { proven } }) => <State isOn={proven} yes="proven" no="not proven" />],
      ]}
    />
  )
}

function priceOf([first]: DiscoveryResource['accepts']): string {
  return first?.amount ?? first?.maxAmountRequired ?? '0'
}

function methodOf({ bazaar }: DiscoveryResource['extensions']): string {
  const { info } = bazaar as { info?: { input?: { type?: string; method?: string } } }
  return info?.input?.type === 'mcp' ? 'tool' : (info?.input?.method ?? 'GET')
}
