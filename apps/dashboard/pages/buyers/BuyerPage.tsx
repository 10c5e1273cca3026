import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { nameEndpoint } from '../../display/endpoints.ts'
import { countOf, describeCode, nameNetwork, writeCount, writeUsdc } from '../../display/format.ts'
import { namePeriod } from '../../display/period.ts'
import { href, hrefWith } from '../../display/routing.ts'
import { revenueSeries } from '../../display/series.ts'
import type { EndpointList, Failure, PayerDetail, ProviderPayment, Revenue } from '../../gateway/answers.ts'
import { query } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { BuyerBadges } from '../../parts/buyers.tsx'
import { PaymentLink, payments, Status } from '../../parts/payments.tsx'
import { RevenuePlot } from '../../parts/RevenuePlot.tsx'
import { hasBothKinds, MoneyNote, type Scope, Scoped, withinOf } from '../../parts/scope.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Copyable, ExplorerLink, Facts, Figures, Panel, Time, Usdc } from '../../parts/ui.tsx'
import { View } from '../../parts/View.tsx'

const everyMs = 15_000
const listed = 5

/** Shows a buyer's purchases from this provider, its failures and its debt. */
export function BuyerPage({ payer }: { payer: string }) {
  return (
    <Scoped title="Buyer" options={['days', 'months', 'all']} usual="all">
      {(scope) => <Shown payer={payer} scope={scope} />}
    </Scoped>
  )
}

function Shown({ payer, scope }: { payer: string; scope: Scope }) {
  const { gateway, path } = useSession()
  const { within, period, plotted } = scope
  const polled = usePolled(
    async (signal) => {
      const id = encodeURIComponent(payer)
      // If the link has no `testnet`, the kind of money is taken from the response.
      const buyer = await gateway.get<PayerDetail>(
        `${path}/payers/${id}${query({ ...within, testnet: scope.testnet })}`,
        signal,
      )
      const testnet = String(buyer.testnet)
      const byTime = { payer, testnet, interval: plotted.interval, ...withinOf(plotted), limit: 1_000 }
      const failuresOf = (status: string) =>
        gateway.list<Failure>(`${path}/failures`, { payer, status, limit: listed }, { signal, pages: 1 })
      const [revenue, { endpoints }, failed, retrying, recent] = await Promise.all([
        gateway.get<Revenue>(`${path}/revenue${query(byTime)}`, signal),
        gateway.get<EndpointList>(`${path}/endpoints`, signal),
        failuresOf('failed'),
        failuresOf('retrying'),
        gateway.list<ProviderPayment>(`${path}/payments`, { payer, limit: listed }, { signal, pages: 1 }),
      ])
      return {
        buyer,
        plotted,
        revenue: revenue.revenue,
        names: new Map(endpoints.map((endpoint) => [endpoint.endpointId, nameEndpoint(endpoint)])),
        failures: [...retrying.rows, ...failed.rows],
        recent: recent.rows,
      }
    },
    `buyer ${payer} ${scope.key}`,
    everyMs,
  )
  return (
    <View
      title="Buyer"
      actions={scope.choice}
      polled={polled}
      below={
        <p>
          <a href={href('buyers')}>All buyers</a>
        </p>
      }
    >
      {({ buyer, plotted, revenue, names, failures, recent }) => (
        <>
          <div class="line">
            <Copyable text={buyer.payer} whole />
            <BuyerBadges {...buyer} />
          </div>
          <MoneyNote scope={scope} testnet={buyer.testnet} hasBoth={hasBothKinds(buyer.indexedBlocks)} />
          <Totals buyer={buyer} />
          <Panel title="Revenue over time">
            <RevenuePlot points={revenueSeries(revenue, plotted.starts)} period={plotted} />
          </Panel>
          <Panel title="Endpoints bought">
            <Table
              label="Endpoints bought"
              rows={buyer.endpoints}
              keyOf={({ endpointId }) => endpointId ?? ''}
              none={period === undefined ? 'No purchases yet.' : `No purchases in ${namePeriod(period)}.`}
              columns={boughtColumns(names, buyer.testnet)}
            />
          </Panel>
          {failures.length > 0 && (
            <Panel title="Failing payments">
              <Table
                label="Failing payments"
                rows={failures}
                keyOf={payments.keyOf}
                columns={failureColumns}
              />
            </Panel>
          )}
          <Panel
            title="Recent payments"
            beside={
              <a class="end" href={hrefWith(['payments'], { payer: buyer.payer })}>
                All payments of this buyer
              </a>
            }
          >
            <Table label="Recent payments" rows={recent} {...payments} />
          </Panel>
          <Facts
            isPanel
            of={{
              'First payment': <Time at={buyer.firstPaymentAt} />,
              'Last payment': buyer.lastPaymentAt && <Time at={buyer.lastPaymentAt} />,
              Networks:
                buyer.networks.length > 0 &&
                buyer.networks.map((network) => (
                  <span key={network}>
                    {nameNetwork(network)} <ExplorerLink
                      network={network}
                      path={`address/${buyer.payer}`}
                    />{' '}
                  </span>
                )),
              'Refunded, USDC': writeUsdc(parseUsdc(buyer.refunded_usdc)),
            }}
          />
        </>
      )}
    </View>
  )
}

function Totals({ buyer }: { buyer: PayerDetail }) {
  const amount = (decimal: string) => writeUsdc(parseUsdc(decimal))
  const { settledPayments, outstandingPayments, failedPayments } = buyer
  return (
    <Figures
      of={[
        ['Revenue, net', amount(buyer.net_usdc), countOf(buyer.payments, 'payment'), 'USDC'],
        ['Settled', amount(buyer.settled_usdc), countOf(settledPayments, 'payment'), 'USDC'],
        ['Outstanding', amount(buyer.outstanding_usdc), countOf(outstandingPayments, 'payment'), 'USDC'],
        ['Average price', amount(buyer.average_usdc), 'fee included', 'USDC'],
        ['Failed', amount(buyer.failed_usdc), countOf(failedPayments, 'payment'), 'USDC'],
        ['Owes you', amount(buyer.owed_usdc), 'currently, caused by the buyer', 'USDC'],
      ]}
    />
  )
}

type Bought = PayerDetail['endpoints'][number]

const boughtColumns = (names: Map<string, string>, testnet: boolean): Column<Bought>[] => [
  [
    'Endpoint',
    ({ endpointId }) =>
      endpointId === null ? (
        'x402 facilitator'
      ) : (
        <a class="code break" href={hrefWith(['endpoints', endpointId], { testnet: String(testnet) })}>
          {names.get(endpointId) ?? endpointId}
        </a>
      ),
    'wrap',
  ],
  ['Payments', ({ payments }) => writeCount(payments), 'number', 'second'],
  ['You get, USDC', ({ net_usdc }) => <Usdc decimal={net_usdc} />, 'number'],
  ['Average, USDC', ({ average_usdc }) => writeUsdc(parseUsdc(average_usdc)), 'number'],
  ['Failed, USDC', ({ failed_usdc }) => writeUsdc(parseUsdc(failed_usdc)), 'number'],
]

const failureColumns: Column<Failure>[] = [
  ['Payment', ({ paymentId }) => <PaymentLink paymentId={paymentId} />],
  ['Status', ({ payment_status }) => <Status status={payment_status} />],
  ['Your part, USDC', ({ providerUsdc }) => <Usdc units={providerUsdc} />, 'number'],
  [
    'Why',
    ({ failures, failureCode }) => {
      const code = failures.at(-1)?.code ?? failureCode
      return code ? describeCode(code) : 'Its authorizations have expired'
    },
    'wrap',
  ],
  ['Next attempt', ({ nextAttemptAt }) => <Time at={nextAttemptAt} distance none="none" />],
]
