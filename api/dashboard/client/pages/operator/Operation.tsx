import { parseUsdc } from '#protocol/amount'
import type { OperatedNetwork, Operation } from '../../answers.ts'
import { nameNetwork, writeCount, writeDistance, writeUsdc } from '../../format.ts'
import { Copyable, Fact, Table, Time, Usdc } from '../../parts/bits.tsx'
import { Form, TextField } from '../../parts/Form.tsx'
import { useNotice } from '../../parts/Setup.tsx'
import { View } from '../../parts/View.tsx'
import { useOperator } from '../../session.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'

/** How the whole gateway is doing: its readiness, and for each network its index, keepers and queue. */
export function OperationPage() {
  const { gateway } = useOperator()
  const polled = usePolled((signal) => gateway.get<Operation>('operator/operation', signal), 'operation')
  return (
    <View title="Operation" polled={polled}>
      {({ readiness, networks, webhooks, asOf }) => (
        <>
          <Readiness readiness={readiness} />
          {networks.map((network) => (
            <Network key={network.network} network={network} asOf={asOf} />
          ))}
          <section class="panel">
            <h2>Webhooks</h2>
            <dl class="facts">
              <Fact title="Wait to be sent">{writeCount(webhooks.pending)}</Fact>
              <Fact title="The oldest is due">
                {webhooks.oldestDueAt === null ? '–' : <Time at={webhooks.oldestDueAt} distance />}
              </Fact>
              <Fact title="Disabled by a 410">{writeCount(webhooks.disabled)}</Fact>
            </dl>
          </section>
          <Requeue />
        </>
      )}
    </View>
  )
}

/** Queues a failed payment of any provider again. */
function Requeue() {
  const { gateway } = useOperator()
  const { notice, tell } = useNotice()
  const form = useForm({ paymentId: '' }, async ({ paymentId }) => {
    await gateway.post(`operator/payments/${encodeURIComponent(paymentId.trim())}/requeue`)
    tell(`${paymentId.trim()} is queued again.`)
  })
  return (
    <section class="panel" aria-label="Queue again">
      <h2>Queue a failed payment again</h2>
      {notice}
      <Form form={form} action="Queue again">
        <TextField label="Payment" field={form.field('paymentId')} placeholder="pay_…" />
      </Form>
    </section>
  )
}

/** What `/readyz` says. Alerts are for Prometheus: it has the rules, and the times for which they must hold. */
function Readiness({ readiness: { status, checks } }: Pick<Operation, 'readiness'>) {
  const failing = checks.filter(({ ok }) => !ok)
  return (
    <section class="panel" aria-label="Readiness">
      <header>
        <h2>{failing.length === 0 ? 'Ready' : 'Not all is well'}</h2>
        <span class={status === 'ok' ? 'status good' : 'status bad'}>{status}</span>
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
        <span class={index.status === 'current' ? 'status good' : 'status bad'}>
          {index.status === 'current' ? 'index current' : `index behind: ${reasons[index.reason ?? '']}`}
        </span>
      </header>
      <dl class="facts">
        <Fact title="Indexed block">
          <span class="number">{index.indexedBlock === null ? '–' : writeCount(index.indexedBlock)}</span>
          {index.indexedAt !== null && (
            <span class="note"> {writeDistance(Date.parse(asOf), Date.parse(index.indexedAt))}</span>
          )}
        </Fact>
        <Fact title="Behind the chain">
          {index.chainBlock === null
            ? 'no node answers'
            : lag === null
              ? '–'
              : `${writeCount(Math.max(0, lag))} blocks`}
        </Fact>
        <Fact title="Logs it could not read">
          {Object.entries(index.unreadable)
            .map(([reason, logs]) => `${logs} ${reason}`)
            .join(', ') || 'none'}
        </Fact>
        <Fact title="Open batches">
          {Object.entries(openBatches)
            .map(([state, count]) => `${count} ${state}`)
            .join(', ') || 'none'}
        </Fact>
        <Fact title="Gas today and in 30 days">
          <span class="number">
            {writeUsdc(parseUsdc(gas.today_usdc))} and {writeUsdc(parseUsdc(gas.last30Days_usdc))}
          </span>{' '}
          USDC
        </Fact>
        <Fact title="Batches wait for cheaper gas">{gas.hold ?? 'no'}</Fact>
        <Fact title="Payers that are not tried any more">{writeCount(shown.givenUpPayers)}</Fact>
        <Fact title="Splitters that can’t be swept">{writeCount(shown.failedSweeps)}</Fact>
      </dl>
      <h3>Keepers</h3>
      {keepers.length === 0 ? (
        <p class="note">No keeper has been here yet: nothing settles.</p>
      ) : (
        <Keepers keepers={keepers} network={network} />
      )}
      <h3>Queue by wallet</h3>
      {queue.length === 0 ? <p class="note">Nothing waits.</p> : <Queue queue={queue} network={network} />}
    </section>
  )
}

function Keepers({ keepers, network }: { keepers: OperatedNetwork['keepers']; network: string }) {
  return (
    <Table
      label={`Keepers on ${network}`}
      isStacked
      head={[['Wallet'], ['Gas money', true], ['State'], ['Keeper']]}
    >
      {keepers.map(({ wallet, holder, pausedUntil, pausedReason, balance_ether }) => (
        <tr key={wallet} class={holder === null ? 'off' : undefined}>
          <td>
            <Copyable text={wallet} />
          </td>
          <td class="right number" data-title="Gas money">
            {balance_ether === null ? 'no node answers' : cutDecimals(balance_ether)}
          </td>
          <td>
            {pausedUntil !== null ? (
              <>
                <span class="status bad">paused</span> {pausedReason}, until <Time at={pausedUntil} />
              </>
            ) : holder === null ? (
              <span class="status plain">nobody has it</span>
            ) : (
              <span class="status good">at work</span>
            )}
          </td>
          <td class="wrap" data-title="Keeper">
            <span class="code break">{holder ?? '–'}</span>
          </td>
        </tr>
      ))}
    </Table>
  )
}

/** Shows the decimals that say when to refill, rounded down. */
function cutDecimals(ether: string): string {
  return ether.replace(/(\.\d{6})\d+$/, '$1')
}

function Queue({ queue, network }: { queue: OperatedNetwork['queue']; network: string }) {
  return (
    <Table
      label={`Queue on ${network}`}
      isStacked
      head={[
        ['Wallet'],
        ['Provider'],
        ['Waiting', true],
        ['Retrying', true],
        ['In batches', true],
        ['USDC', true],
        ['Oldest'],
      ]}
    >
      {queue.map((row) => (
        <tr key={row.wallet}>
          <td>
            <Copyable text={row.wallet} />
          </td>
          <td class="wrap break">{row.providers.map(({ name }) => name).join(', ') || '–'}</td>
          <td class="right number" data-title="Waiting">
            {writeCount(row.verified)}
          </td>
          <td class="right number" data-title="Retrying">
            {writeCount(row.retrying)}
          </td>
          <td class="right number" data-title="In batches">
            {writeCount(row.settling)}
          </td>
          <td class="right" data-title="USDC">
            <Usdc decimal={row.accumulated_usdc} />
          </td>
          <td data-title="Oldest">{row.oldestAt === null ? '–' : <Time at={row.oldestAt} distance />}</td>
        </tr>
      ))}
    </Table>
  )
}
