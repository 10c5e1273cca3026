import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import { useState } from 'preact/hooks'
import { countOf, nameNetwork, writeCount, writeTime, writeUsdc } from '../display/format.ts'
import { filtersOf } from '../display/paymentSearch.ts'
import { href, type Search, useSearch } from '../display/routing.ts'
import { nextDay, startOfDay, useZone, type Zone } from '../display/zone.ts'
import type { PaymentTotals, ProviderPayment } from '../gateway/answers.ts'
import { query } from '../gateway/gateway.ts'
import { useSession } from '../gateway/session.ts'
import { useEndpoints } from '../gateway/useEndpoints.ts'
import { type Polled, usePolled, usePolledPages } from '../gateway/usePolled.ts'
import { Download } from '../parts/ActionButton.tsx'
import { Filters } from '../parts/Filters.tsx'
import { PaymentSearch } from '../parts/PaymentSearch.tsx'
import { Buyer, nameStatus, payments } from '../parts/payments.tsx'
import { RequeueButton } from '../parts/Requeue.tsx'
import { type Column, Table } from '../parts/Table.tsx'
import { Figures, Panel } from '../parts/ui.tsx'
import { Empty, View } from '../parts/View.tsx'

/** Interval in ms between reads of the totals. It is longer than the interval of the list, because the gateway needs more time for the totals. */
const totalsMs = 10_000

/** Returns the filters as the gateway's query. The last day of the filter is included. */
function toQuery({ from, to, min_usdc, max_usdc, ...fields }: Search, zone: Zone): Search {
  const asked = {
    ...fields,
    from: from && startOfDay(from, zone),
    to: to && nextDay(to, zone),
    min_usdc: min_usdc && toDecimal(min_usdc),
    max_usdc: max_usdc && toDecimal(max_usdc),
  }
  return Object.fromEntries(
    Object.entries(asked).filter((entry): entry is [string, string] => Boolean(entry[1])),
  )
}

/** Accepts amounts with a decimal comma as well. */
function toDecimal(text: string): string {
  return /^\d+,\d+$/.test(text) ? text.replace(',', '.') : text
}

type Listed = { indexedBlocks: Record<string, number | null> }

export function PaymentsPage() {
  const { gateway, path } = useSession()
  const zone = useZone()
  const [search, setSearch] = useSearch()
  const filters = filtersOf(search)
  const asked = toQuery(filters, zone)
  const sold = useEndpoints()
  const polled = usePolledPages(
    (pages) => gateway.list<ProviderPayment, Listed>(`${path}/payments`, { ...asked, limit: 25 }, pages),
    `payments ${query(asked)}`,
  )
  const totals = usePolled(
    (signal) => gateway.get<PaymentTotals>(`${path}/payments/totals${query(asked)}`, signal),
    `totals ${query(asked)}`,
    totalsMs,
  )
  const problems = problemsOf(polled)
  const isNarrowed = Object.keys(filters).length > 0
  const networks = useSeen(Object.keys(polled.data?.last.indexedBlocks ?? {}))
  return (
    <View
      title="Payments"
      // An invalid filter is reported at its field; don't repeat the request.
      polled={problems ? { ...polled, error: undefined, data: noRows } : polled}
      below={
        <>
          <PaymentSearch />
          <Filters
            values={filters}
            problems={problems}
            filters={[
              ['status', 'Status', paymentStatuses.map((name) => [name, nameStatus(name)])],
              ['endpointId', 'Endpoint', sold.map((one) => [one.endpointId, `${one.method} ${one.path}`])],
              ['network', 'Network', networks.map((name) => [name, nameNetwork(name)])],
              ['payer', 'Buyer', { placeholder: '0x…' }],
              ['from', `From, ${zone === 'utc' ? 'UTC' : 'local time'}`, { type: 'date' }],
              ['to', `To, ${zone === 'utc' ? 'UTC' : 'local time'}`, { type: 'date' }],
              ['min_usdc', 'At least, USDC', { inputMode: 'decimal' }],
              ['max_usdc', 'At most, USDC', { inputMode: 'decimal' }],
              [
                'testnet',
                'Money',
                [
                  ['false', 'real money'],
                  ['true', 'testnet funds'],
                ],
              ],
            ]}
            send={(values) => setSearch({ ...values, tx_hash: filters.tx_hash })}
          >
            {isNarrowed && (
              <button type="button" class="quiet" onClick={() => setSearch({})}>
                Show all
              </button>
            )}
            <Download
              label="Download as CSV"
              path={`payments${query({ ...asked, format: 'csv' })}`}
              name="payments.csv"
            />
          </Filters>
          {!problems && <Subject filters={filters} totals={totals.data} rows={polled.data?.rows} />}
        </>
      }
      none={
        problems ? (
          <Empty title="These filters can’t be applied">Correct the marked field.</Empty>
        ) : (
          <Empty title={isNarrowed ? 'No payment matches these filters' : 'No payments yet'}>
            {isNarrowed
              ? 'Change the filters, or choose “Show all”.'
              : 'When a buyer pays for one of your endpoints, the payment appears here within seconds.'}
          </Empty>
        )
      }
    >
      {({ rows, more }) => (
        <>
          {totals.data && <Totals {...totals.data} />}
          <PaymentTable
            key={query(asked)}
            rows={rows}
            more={more}
            filters={filters}
            asked={asked}
            refresh={polled.refresh}
          />
        </>
      )}
    </View>
  )
}

const noRows = { rows: [], hasMore: false, last: { indexedBlocks: {} }, more: undefined }

/** Returns the filters that the gateway rejects, with its reasons; undefined if it accepts all of them. */
function problemsOf({ error }: Polled<unknown>): Map<string, string> | undefined {
  if (error === undefined || ![400, 422].includes(error.status)) return undefined
  if (error.fields.length > 0) return new Map(error.fields.map(({ field, message }) => [field, message]))
  // Networks are rejected with a separate error code.
  return error.code.includes('network') ? new Map([['network', error.message]]) : undefined
}

/** Keeps a filter's options while the next list is being read. */
function useSeen(names: string[]): string[] {
  const [seen, setSeen] = useState<string[]>([])
  const all = [...new Set([...seen, ...names])]
  if (all.length > seen.length) setSeen(all)
  return all
}

/** Shows how many payments a search by transaction or buyer found, with a link to the batch or the buyer. */
function Subject({
  filters: { tx_hash: txHash, payer },
  totals,
  rows,
}: {
  filters: Search
  totals: PaymentTotals | undefined
  rows: ProviderPayment[] | undefined
}) {
  if (rows === undefined || (txHash === undefined && payer === undefined)) return null
  const count = totals?.totals.reduce((sum, one) => sum + one.payments + one.voidedPayments, 0) ?? rows.length
  const atLeast = totals?.since ? 'At least ' : ''
  const networks = [...new Set(rows.map(({ network }) => network))]
  return (
    <p role="status">
      {txHash !== undefined ? (
        <>
          {count === 0
            ? 'None of your payments settled in this transaction.'
            : `${atLeast}${writeCount(count)} of your payments settled in this transaction${networks.length > 0 ? ` on ${networks.map(nameNetwork).join(' and ')}` : ''}.`}{' '}
          {networks.map((network) => (
            <a key={network} href={href('payouts', 'batches', network, txHash)}>
              See its batch
            </a>
          ))}
        </>
      ) : (
        <>
          {count === 0 ? 'No payments' : `${atLeast}${countOf(count, 'payment')}`} of buyer{' '}
          <Buyer address={payer as string} />
        </>
      )}
    </p>
  )
}

/** Shows the sums of all payments that match the filters. The table shows only one page of these payments. */
function Totals({ totals, since, isRefundedComplete }: PaymentTotals) {
  return (
    <Panel title="Totals" label="Totals">
      {totals.map((sums) => (
        <Figures
          key={String(sums.testnet)}
          of={[
            [
              'Payments',
              writeCount(sums.payments),
              sums.voidedPayments > 0
                ? `and ${writeCount(sums.voidedPayments)} voided`
                : 'requests on tabs included',
            ],
            [
              'Gross',
              writeUsdc(parseUsdc(sums.gross_usdc)),
              sums.testnet ? 'testnet funds' : 'what buyers paid',
              'USDC',
            ],
            [
              'Net',
              writeUsdc(parseUsdc(sums.net_usdc)),
              `${writeUsdc(parseUsdc(sums.settled_usdc))} USDC has settled`,
              'USDC',
            ],
            [
              'Refunded',
              writeUsdc(parseUsdc(sums.refunded_usdc)),
              isRefundedComplete ? 'of these payments' : 'or more: only the latest refunds are counted',
              'USDC',
            ],
          ]}
        />
      ))}
      {since !== null && (
        <p class="note">
          There are too many payments to add up, so these sums contain only payments since {writeTime(since)}.
          Choose a shorter period for exact sums.
        </p>
      )}
    </Panel>
  )
}

/** Shows the payments. Failed payments can be selected and queued again together. */
function PaymentTable(props: {
  rows: ProviderPayment[]
  more: (() => void) | undefined
  filters: Search
  asked: Search
  refresh: () => void
}) {
  const { rows, more, filters, asked, refresh } = props
  const { scope } = useSession()
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const isFailed = filters.status === 'failed' && filters.tx_hash === undefined && scope === 'full'
  // A tab can belong to several providers, so only the operator can queue it again.
  const open = rows.filter(({ tab }) => tab === null).map(({ paymentId }) => paymentId)
  const own = open.filter((paymentId) => chosen.has(paymentId))
  const choose = (paymentIds: string[], isChosen: boolean) => {
    const next = new Set(chosen)
    for (const paymentId of paymentIds) isChosen ? next.add(paymentId) : next.delete(paymentId)
    setChosen(next)
  }
  const checks: Column<ProviderPayment> = [
    'Choose',
    ({ paymentId, tab }) =>
      tab === null && (
        <input
          type="checkbox"
          aria-label={`Choose ${paymentId}`}
          checked={chosen.has(paymentId)}
          onChange={(event) => choose([paymentId], event.currentTarget.checked)}
        />
      ),
  ]
  const done = () => {
    setChosen(new Set())
    refresh()
  }
  const { status: _, tx_hash: __, testnet, ...filter } = asked
  return (
    <section class="panel">
      {isFailed && (
        <div class="line">
          <label class="line">
            <input
              type="checkbox"
              checked={own.length > 0 && own.length === open.length}
              onChange={(event) => choose(open, event.currentTarget.checked)}
            />
            All on this page
          </label>
          <RequeueButton
            label={`Queue ${own.length === 0 ? 'chosen' : writeCount(own.length)} again`}
            isDisabled={own.length === 0}
            what={countOf(own.length, 'failed payment')}
            asked={{ paymentIds: own }}
            done={done}
          />
          <RequeueButton
            label={more ? 'Queue all of these again' : `Queue all of these ${writeCount(open.length)} again`}
            isDisabled={open.length === 0}
            what={
              more
                ? 'all failed payments that match these filters'
                : `all ${countOf(open.length, 'failed payment')}`
            }
            asked={{ filter: { ...filter, ...(testnet && { testnet: testnet === 'true' }) } }}
            done={done}
          />
        </div>
      )}
      <Table
        label="Payments"
        rows={rows}
        more={more}
        keyOf={payments.keyOf}
        columns={isFailed ? [...payments.columns, checks] : payments.columns}
      />
      <p class="note">Gross is the amount that the buyer paid. Net is your part of it.</p>
    </section>
  )
}
