import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { isTool, nameEndpoint } from '../../display/endpoints.ts'
import { countOf, nameNetwork, writeCount, writeShare, writeUsdc } from '../../display/format.ts'
import { describeListing } from '../../display/listing.ts'
import { href, hrefWith, type Route } from '../../display/routing.ts'
import type {
  Endpoint,
  EndpointActivity,
  EndpointFigures,
  EndpointList,
  WalletList,
} from '../../gateway/answers.ts'
import { query } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { useActions } from '../../parts/actions.tsx'
import { hasBothKinds, MoneyNote, type Scope, Scoped } from '../../parts/scope.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Badge, Panel, State } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { EndpointPage } from './EndpointPage.tsx'
import { addEndpoint, endpointActions } from './endpointActions.tsx'
import { presentedOf } from './figures.ts'

const everyMs = 15_000

/** Shows a provider's endpoints: the list, or one endpoint. */
export function EndpointsPage({ route: [endpointId] }: { route: Route }) {
  return endpointId === undefined ? (
    <Scoped title="Endpoints" options={['days', 'months', 'all']}>
      {(scope) => <EndpointListPage scope={scope} />}
    </Scoped>
  ) : (
    <EndpointPage key={endpointId} endpointId={endpointId} />
  )
}

type Row = { endpoint: Endpoint; figures: EndpointFigures | undefined }

function EndpointListPage({ scope }: { scope: Scope }) {
  const session = useSession()
  const { gateway, path, scope: keyScope } = session
  const { within, testnet, key } = scope
  const polled = usePolled(
    async (signal) => {
      const [activity, { endpoints }, { wallets }] = await Promise.all([
        gateway.get<EndpointActivity>(
          `${path}/endpoint-activity${query({ ...within, testnet, limit: 1_000 })}`,
          signal,
        ),
        gateway.get<EndpointList>(`${path}/endpoints`, signal),
        gateway.get<WalletList>(`${path}/wallets`, signal),
      ])
      return {
        ...activity,
        ...sortRows(activity, endpoints),
        wallets: wallets.filter(({ retiredAt }) => retiredAt === null),
      }
    },
    `endpoints ${key}`,
    everyMs,
  )
  const { notice, buttons, dialog } = useActions(polled.refresh)
  const isReading = keyScope === 'read'
  const { data } = polled
  return (
    <View
      title="Endpoints"
      actions={
        <>
          {data && !isReading && buttons([addEndpoint(data.wallets, session)])}
          {scope.choice}
        </>
      }
      polled={polled}
      below={
        isReading && (
          <p class="box good">
            Your API key can only read. Sign in with a key of full scope to change anything.
          </p>
        )
      }
    >
      {({ http, tools, unnamed, wallets, testnet, indexedBlocks }) => {
        const actions: Column<Row> = [
          '',
          ({ endpoint }) => buttons(endpointActions(endpoint, wallets, session), 'quiet'),
          'actions',
        ]
        const table = (label: string, rows: Row[]) => (
          <Panel title={label}>
            <Table
              label={label}
              rows={rows}
              keyOf={({ endpoint }) => endpoint.endpointId}
              isOff={({ endpoint }) => endpoint.disabledAt !== null}
              columns={[...columns, ...(isReading ? [] : [actions])]}
            />
          </Panel>
        )
        return (
          <>
            <MoneyNote scope={scope} testnet={testnet} hasBoth={hasBothKinds(indexedBlocks)} />
            {notice}
            {http.length + tools.length === 0 && (
              <Empty title="No endpoint yet">
                An endpoint is a URL of your API and the price of a request to it.{' '}
                <a href={href('start')}>The first steps</a> guide you through the setup.
              </Empty>
            )}
            {http.length > 0 && table('HTTP endpoints', http)}
            {tools.length > 0 && table('MCP tools', tools)}
            {unnamed !== undefined && unnamed.payments > 0 && (
              <p class="note">
                Your own x402 servers sold {countOf(unnamed.payments, 'payment')} for{' '}
                {writeUsdc(parseUsdc(unnamed.net_usdc))} USDC through the facilitator, which knows no
                endpoints.
              </p>
            )}
            {dialog}
          </>
        )
      }}
    </View>
  )
}

/** Returns the endpoints of the shown kind of money. Endpoints with revenue come first, in the gateway's order. */
function sortRows({ activity, testnet }: EndpointActivity, endpoints: Endpoint[]) {
  const places = new Map(activity.map((figures, at) => [figures.endpointId, { figures, at }]))
  const rows = endpoints
    .filter((endpoint) => endpoint.testnet === testnet)
    .map((endpoint) => ({
      endpoint,
      ...(places.get(endpoint.endpointId) ?? { figures: undefined, at: Infinity }),
    }))
    .sort((a, b) => (a.at === b.at ? 0 : a.at - b.at))
  return {
    http: rows.filter(({ endpoint }) => !isTool(endpoint)),
    tools: rows.filter(({ endpoint }) => isTool(endpoint)),
    unnamed: places.get(null)?.figures,
  }
}

const columns: Column<Row>[] = [
  [
    'Endpoint',
    ({ endpoint }) => {
      const { endpointId, description, networks, testnet, disabledAt } = endpoint
      const { tone, title, text } = describeListing(endpoint)
      return (
        <>
          <a class="code break" href={hrefWith(['endpoints', endpointId], { testnet: String(testnet) })}>
            {nameEndpoint(endpoint)}
          </a>{' '}
          <State isOn={disabledAt === null} yes="on sale" no="disabled" />{' '}
          {disabledAt === null && <Badge tone={tone}>{title}</Badge>}
          <p class="note break">
            <span>{networks.map(({ network }) => nameNetwork(network)).join(', ')}</span>
            {description !== '' && ' · '}
            <span>{description}</span>
            {disabledAt === null && text !== null && ` · ${text}`}
          </p>
        </>
      )
    },
    'wrap',
  ],
  [
    'Price, USDC',
    ({ endpoint: { pricing } }) => writeUsdc(parseUsdc(pricing.usdcPerUnit)),
    'number',
    'second',
  ],
  [
    'You get, USDC',
    ({ figures }) => (figures ? writeUsdc(parseUsdc(figures.net_usdc)) : '–'),
    'number',
    'end',
  ],
  ['Payments', ({ figures }) => (figures ? writeCount(figures.payments) : '–'), 'number', 'second'],
  [
    'Average, USDC',
    ({ figures }) => (figures && figures.payments > 0 ? writeUsdc(parseUsdc(figures.average_usdc)) : '–'),
    'number',
  ],
  ['Success', ({ figures }) => (figures ? writeShare(figures.paid, presentedOf(figures)) : '–'), 'number'],
  ['Refused', ({ figures }) => (figures ? writeCount(presentedOf(figures) - figures.paid) : '–'), 'number'],
]
