import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import {
  countOf,
  nameNetwork,
  writeCount,
  writeDistance,
  writeEther,
  writeUsdc,
} from '../../display/format.ts'
import type { OperatedNetwork, Operation } from '../../gateway/answers.ts'
import type { Gateway } from '../../gateway/gateway.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { type Action, say, useActions } from '../../parts/actions.tsx'
import { type Column, Table } from '../../parts/Table.tsx'
import { Badge, Code, Copyable, Facts, Panel, State, Time, Usdc } from '../../parts/ui.tsx'
import { View } from '../../parts/View.tsx'

/** Shows the state of the whole gateway: its readiness, and for each network its index, keepers and queue. */
export function OperationPage({ gateway }: { gateway: Gateway }) {
  const polled = usePolled((signal) => gateway.get<Operation>('operator/operation', signal), 'operation')
  const { notice, buttons, dialog } = useActions(polled.refresh)
  const requeue: Action = {
    button: 'Queue a payment again',
    title: 'Queue a failed payment again',
    text: 'The payment can belong to any provider.',
    fields: [{ name: 'paymentId', label: 'Payment', placeholder: 'pay_…' }],
    action: 'Queue again',
    send: ({ paymentId }) =>
      say(
        gateway.post(`operator/payments/${encodeURIComponent(String(paymentId))}/requeue`),
        `${paymentId} is queued again.`,
      ),
  }
  return (
    <View title="Operation" actions={buttons([requeue], 'quiet')} polled={polled}>
      {({ readiness, networks, webhooks, asOf }) => (
        <>
          {notice}
          <Readiness readiness={readiness} />
          {networks.map((network) => (
            <Network key={network.network} network={network} asOf={asOf} />
          ))}
          <Panel title="Webhooks">
            <Facts
              of={{
                'Waiting to be sent': writeCount(webhooks.pending),
                'The oldest is due': <Time at={webhooks.oldestDueAt} distance />,
                'Disabled by a 410': writeCount(webhooks.disabled),
              }}
            />
          </Panel>
          {dialog}
        </>
      )}
    </View>
  )
}

/** Shows the response of `/readyz`. The dashboard shows no alerts: Prometheus has their rules and durations. */
function Readiness({ readiness: { status, checks } }: Pick<Operation, 'readiness'>) {
  const failing = checks.filter(({ ok }) => !ok)
  return (
    <Panel
      title={failing.length === 0 ? 'Ready' : 'Not ready'}
      label="Readiness"
      beside={<Badge tone={status === 'ok' ? 'good' : 'bad'}>{status}</Badge>}
    >
      {failing.map(({ name, detail }) => (
        <p key={name} class="break">
          <b>{name}</b> {detail}
        </p>
      ))}
    </Panel>
  )
}

const reasons: Record<string, string> = {
  missing: 'missing',
  below_acted_block: 'it went back to an earlier block',
  stale: 'it is lagging',
}

function Network({ network: shown, asOf }: { network: OperatedNetwork; asOf: string }) {
  const { network, index, gas, openBatches, keepers, queue } = shown
  const { chainBlock, indexedBlock } = index
  const isCurrent = index.status === 'current'
  return (
    <Panel
      title={nameNetwork(network)}
      label={nameNetwork(network)}
      beside={
        <Badge tone={isCurrent ? 'good' : 'bad'}>
          {isCurrent ? 'index current' : `index behind: ${reasons[index.reason ?? '']}`}
        </Badge>
      }
    >
      <Facts
        of={{
          'Indexed block': (
            <>
              <span class="number">{indexedBlock === null ? '–' : writeCount(indexedBlock)}</span>
              {index.indexedAt !== null && (
                <span class="note"> {writeDistance(Date.parse(asOf), Date.parse(index.indexedAt))}</span>
              )}
            </>
          ),
          'Behind the chain':
            chainBlock === null
              ? 'no node is responding'
              : indexedBlock === null
                ? '–'
                : countOf(Math.max(0, chainBlock - indexedBlock), 'block'),
          'Logs that the indexer could not read': listCounts(index.unreadable),
          'Open batches': listCounts(openBatches),
          'Gas today and in 30 days': `${writeUsdc(parseUsdc(gas.today_usdc))} and ${writeUsdc(parseUsdc(gas.last30Days_usdc))} USDC`,
          'Waiting for cheaper gas': gas.hold ?? 'no',
          'Blocked payers': writeCount(shown.blockedPayers),
          'Splitters that can’t be swept': writeCount(shown.failedSweeps),
        }}
      />
      <h3>Keepers</h3>
      <Table
        label={`Keepers on ${network}`}
        columns={keeperColumns}
        rows={keepers}
        keyOf={({ wallet }) => wallet}
        isOff={({ holder }) => holder === null}
        none="No keeper has run yet, so nothing settles. Start a keeper for this network."
      />
      <h3>Queue by wallet</h3>
      <Table
        label={`Queue on ${network}`}
        columns={queueColumns}
        rows={queue}
        keyOf={({ wallet }) => wallet}
        none="No payments are waiting to settle."
      />
    </Panel>
  )
}

function listCounts(counts: Record<string, number>): string {
  const listed = Object.entries(counts).map(([name, count]) => `${writeCount(count)} ${name}`)
  return listed.join(', ') || 'none'
}

type Keeper = OperatedNetwork['keepers'][number]

const keeperColumns: Column<Keeper>[] = [
  ['Wallet', ({ wallet }) => <Copyable text={wallet} />],
  [
    'Balance, gas token',
    ({ balance_ether }) => (balance_ether === null ? 'no node is responding' : writeEther(balance_ether)),
    'number',
  ],
  [
    'State',
    ({ pausedUntil, pausedReason, holder }) =>
      pausedUntil !== null ? (
        <>
          <Badge tone="bad">paused</Badge> {pausedReason}, until <Time at={pausedUntil} />
        </>
      ) : (
        <State isOn={holder !== null} yes="at work" no="not held" />
      ),
  ],
  ['Keeper', ({ holder }) => <Code>{holder ?? '–'}</Code>, 'wrap'],
]

const queueColumns: Column<OperatedNetwork['queue'][number]>[] = [
  ['Wallet', ({ wallet }) => <Copyable text={wallet} />],
  [
    'Provider',
    ({ tabs, providers }) =>
      tabs ? 'closed tabs of several providers' : providers.map(({ name }) => name).join(', ') || '–',
    'wrap',
  ],
  ['Waiting', ({ verified }) => writeCount(verified), 'number'],
  ['Retrying', ({ retrying }) => writeCount(retrying), 'number'],
  ['In batches', ({ settling }) => writeCount(settling), 'number'],
  ['USDC', ({ accumulated_usdc }) => <Usdc decimal={accumulated_usdc} />, 'number'],
  ['Oldest', ({ oldestAt }) => <Time at={oldestAt} distance />],
]
