import { parseUsdc } from '#protocol/amount'
import type { OperatedNetwork, Operation } from '../../answers.ts'
import { countOf, nameNetwork, writeCount, writeDistance, writeEther, writeUsdc } from '../../format.ts'
import { type Act, useActs } from '../../parts/acts.tsx'
import {
  Badge,
  Code,
  type Column,
  Copyable,
  Facts,
  Panel,
  State,
  Table,
  Time,
  Usdc,
} from '../../parts/bits.tsx'
import { View } from '../../parts/View.tsx'
import { useOperator } from '../../session.ts'
import { usePolled } from '../../usePolled.ts'

/** The state of the whole gateway: its readiness, and for each network its index, keepers and queue. */
export function OperationPage() {
  const { gateway } = useOperator()
  const polled = usePolled((signal) => gateway.get<Operation>('operator/operation', signal), 'operation')
  const { notice, buttons, dialog } = useActs(polled.refresh)
  const requeue: Act = {
    button: 'Queue a payment again',
    title: 'Queue a failed payment again',
    text: 'It may be of any provider.',
    fields: [{ name: 'paymentId', label: 'Payment', placeholder: 'pay_…' }],
    action: 'Queue again',
    async send({ paymentId }) {
      await gateway.post(`operator/payments/${encodeURIComponent(String(paymentId))}/requeue`)
      return { said: `${paymentId} is queued again.` }
    },
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
                'Wait to be sent': writeCount(webhooks.pending),
                'The oldest is due':
                  webhooks.oldestDueAt === null ? '–' : <Time at={webhooks.oldestDueAt} distance />,
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

/** The answer of `/readyz`. Alerts are for Prometheus, which has the rules, and the times for which they must hold. */
function Readiness({ readiness: { status, checks } }: Pick<Operation, 'readiness'>) {
  const failing = checks.filter(({ ok }) => !ok)
  return (
    <section class="panel" aria-label="Readiness">
      <header>
        <h2>{failing.length === 0 ? 'Ready' : 'Not all is well'}</h2>
        <Badge tone={status === 'ok' ? 'good' : 'bad'}>{status}</Badge>
      </header>
      {failing.map(({ name, detail }) => (
        <p key={name} class="break">
          <b>{name}</b> {detail}
        </p>
      ))}
    </section>
  )
}

const reasons: Record<string, string> = {
  missing: 'there is none',
  below_acted_block: 'it was set back',
  stale: 'it falls behind',
}

function Network({ network: shown, asOf }: { network: OperatedNetwork; asOf: string }) {
  const { network, index, gas, openBatches, keepers, queue } = shown
  const lag =
    index.chainBlock === null || index.indexedBlock === null ? null : index.chainBlock - index.indexedBlock
  return (
    <section class="panel" aria-label={nameNetwork(network)}>
      <header>
        <h2>{nameNetwork(network)}</h2>
        <Badge tone={index.status === 'current' ? 'good' : 'bad'}>
          {index.status === 'current' ? 'index current' : `index behind: ${reasons[index.reason ?? '']}`}
        </Badge>
      </header>
      <Facts
        of={{
          'Indexed block': (
            <>
              <span class="number">{index.indexedBlock === null ? '–' : writeCount(index.indexedBlock)}</span>
              {index.indexedAt !== null && (
                <span class="note"> {writeDistance(Date.parse(asOf), Date.parse(index.indexedAt))}</span>
              )}
            </>
          ),
          'Behind the chain':
            index.chainBlock === null
              ? 'no node answers'
              : lag === null
                ? '–'
                : countOf(Math.max(0, lag), 'block'),
          'Logs it could not read': listCounts(index.unreadable),
          'Open batches': listCounts(openBatches),
          'Gas today and in 30 days': `${writeUsdc(parseUsdc(gas.today_usdc))} and ${writeUsdc(parseUsdc(gas.last30Days_usdc))} USDC`,
          'Batches wait for cheaper gas': gas.hold ?? 'no',
          'Payers that are not tried any more': writeCount(shown.givenUpPayers),
          'Splitters that can’t be swept': writeCount(shown.failedSweeps),
        }}
      />
      <h3>Keepers</h3>
      {keepers.length === 0 ? (
        <p class="note">No keeper has been here yet: nothing settles.</p>
      ) : (
        <Table
          label={`Keepers on ${network}`}
          columns={keeperColumns}
          rows={keepers}
          keyOf={({ wallet }) => wallet}
          isOff={({ holder }) => holder === null}
        />
      )}
      <h3>Queue by wallet</h3>
      {queue.length === 0 ? (
        <p class="note">Nothing waits.</p>
      ) : (
        <Table
          label={`Queue on ${network}`}
          columns={queueColumns}
          rows={queue}
          keyOf={({ wallet }) => wallet}
        />
      )}
    </section>
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
    'Gas money',
    ({ balance_ether }) => (balance_ether === null ? 'no node answers' : writeEther(balance_ether)),
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
        <State isOn={holder !== null} yes="at work" no="nobody has it" />
      ),
  ],
  ['Keeper', ({ holder }) => <Code>{holder ?? '–'}</Code>, 'wrap'],
]

const queueColumns: Column<OperatedNetwork['queue'][number]>[] = [
  ['Wallet', ({ wallet }) => <Copyable text={wallet} />],
  [
    'Provider',
    ({ tabs, providers }) =>
      tabs ? 'closed tabs, of many' : providers.map(({ name }) => name).join(', ') || '–',
    'wrap',
  ],
  ['Waiting', ({ verified }) => writeCount(verified), 'number'],
  ['Retrying', ({ retrying }) => writeCount(retrying), 'number'],
  ['In batches', ({ settling }) => writeCount(settling), 'number'],
  ['USDC', ({ accumulated_usdc }) => <Usdc decimal={accumulated_usdc} />, 'number'],
  ['Oldest', ({ oldestAt }) => (oldestAt === null ? '–' : <Time at={oldestAt} distance />)],
]
