import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { countOf, nameNetwork, writeCount, writeSeconds, writeUsdc } from '../../display/format.ts'
import { href } from '../../display/routing.ts'
import { useNow } from '../../display/useNow.ts'
import type { Batch, Queue, SplitterBalance, Splitters, WalletQueue } from '../../gateway/answers.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { type Column, Table } from '../../parts/Table.tsx'
import { Badge, Copyable, Panel, Time, Usdc } from '../../parts/ui.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { batchColumns } from '../Batches.tsx'

const batchesShown = 5

/** Shows the next payout, the amounts that wait in splitters, and the last payouts. */
export function PayoutOverview() {
  const { gateway, path } = useSession()
  const polled = usePolled(async (signal) => {
    const pages = { signal, pages: 1 }
    const [{ wallets, asOf }, splitters, batches] = await Promise.all([
      gateway.get<Queue>(`${path}/queue`, signal),
      gateway.list<SplitterBalance, Splitters>(`${path}/splitters`, { limit: 100 }, pages),
      gateway.list<Batch>(`${path}/batches`, { limit: batchesShown }, pages),
    ])
    return {
      rows: wallets,
      splitters: splitters.rows,
      sweep: splitters.last.sweep,
      batches: batches.rows,
      // Countdowns use the gateway's clock, because this machine's clock may be wrong.
      aheadMs: Date.parse(asOf) - Date.now(),
    }
  }, 'payouts')
  return (
    <View
      title="Payouts"
      polled={polled}
      none={
        <Empty title="No wallet is registered yet">
          Payouts go to your wallet: <a href={href('setup', 'wallets')}>register one</a>.
        </Empty>
      }
    >
      {({ rows, splitters, sweep, batches, aheadMs }) => (
        <>
          <div class="halves">
            {rows.map((wallet) => (
              <NextPayout key={wallet.walletId} queue={wallet} aheadMs={aheadMs} />
            ))}
          </div>
          {splitters.length > 0 && <SplitterPanel splitters={splitters} sweep={sweep} />}
          <Panel title="Last payouts" beside={<a href={href('payouts', 'batches')}>All batches</a>}>
            <Table
              label="Last payouts"
              rows={batches}
              keyOf={({ network, batch_id }) => `${network} ${batch_id}`}
              columns={batchColumns}
              none="No batch has settled any of your payments yet. The first one appears here with your first payout."
            />
          </Panel>
        </>
      )}
    </View>
  )
}

const clock = (time: number) => new Date(time).toISOString()

/** Describes the next payout: its amount, and the amount, count or time that triggers it. */
function NextPayout({ queue, aheadMs }: { queue: WalletQueue; aheadMs: number }) {
  const { wallet, network, payments, fired, settlesAt, triggers, settlingPayments, retryingPayments } = queue
  const now = useNow() + aheadMs
  const waiting = parseUsdc(queue.accumulated_usdc)
  const settling = parseUsdc(queue.settling_usdc)
  const isDue = fired !== null || (settlesAt !== null && Date.parse(settlesAt) <= now)
  const limits = `${writeUsdc(parseUsdc(triggers.amount.threshold_usdc))} USDC or ${countOf(triggers.count.threshold, 'payment')}`
  return (
    <Panel
      title={<Copyable text={wallet} />}
      label={`Next payout to ${wallet} on ${network}`}
      beside={<Badge tone="plain">{nameNetwork(network)}</Badge>}
    >
      <p>
        <span class="value">{writeUsdc(waiting)}</span> <small>USDC</small>{' '}
        <span class="note">{countOf(payments, 'payment waits', 'payments wait')}</span>
      </p>
      {payments === 0 ? (
        <p>
          No payments are waiting. A payout follows the next payment within{' '}
          {writeSeconds(triggers.time.seconds)}.
        </p>
      ) : isDue ? (
        <p>The next payout is due: the keeper sends it within moments.</p>
      ) : settlesAt === null ? (
        <p>These payments settle separately. Each payment’s page shows its next attempt.</p>
      ) : (
        <p>
          Next payout by <Time at={clock(Date.parse(settlesAt) - aheadMs)} />, or as soon as {limits} have
          come together.
        </p>
      )}
      {settlingPayments > 0 && (
        <p class="note">
          {countOf(settlingPayments, 'payment', 'payments')} with {writeUsdc(settling)} USDC{' '}
          {settlingPayments === 1 ? 'is' : 'are'} being paid now.
        </p>
      )}
      {retryingPayments > 0 && (
        <p class="note">
          {countOf(retryingPayments, 'payment')} failed and {retryingPayments === 1 ? 'is' : 'are'} tried
          again. <a href={href('payments', 'failures')}>See why</a>
        </p>
      )}
      {queue.withheld && (
        <p class="note" role="alert">
          USDC has blacklisted this wallet, so nothing is paid out to it.{' '}
          <a href={href('payouts', 'queue')}>See the waiting amount</a>
        </p>
      )}
    </Panel>
  )
}

function SplitterPanel({ splitters, sweep }: { splitters: SplitterBalance[]; sweep: Splitters['sweep'] }) {
  const waiting = splitters.filter(({ payments }) => payments > 0)
  const now = useNow()
  const columns: Column<SplitterBalance>[] = [
    ['Splitter', ({ splitter }) => <Copyable text={splitter} />],
    ['Your wallet', ({ wallet }) => <Copyable text={wallet} />, undefined, 'more'],
    ['Network', ({ network }) => nameNetwork(network)],
    [
      'Payments',
      ({ payments, isAtLeast }) => `${isAtLeast ? 'at least ' : ''}${writeCount(payments)}`,
      'number',
      'second',
    ],
    ['For you, USDC', ({ waiting_usdc }) => <Usdc decimal={waiting_usdc} />, 'number'],
    ['Paid out', (row) => <PaidOut row={row} now={now} />],
    [
      'Last payout',
      ({ lastPayout }) => <Time at={lastPayout?.at ?? null} none="none yet" />,
      undefined,
      'more',
    ],
  ]
  return (
    <Panel title="Waiting in splitters">
      <Table
        label="Splitters"
        rows={waiting}
        keyOf={({ network, splitter }) => `${network} ${splitter}`}
        columns={columns}
        none="The splitters are empty: everything has been paid out."
      />
      <p class="note">
        A payment with one signature settles into a splitter, which divides it between you and the platform. A
        batch pays out a splitter when {countOf(sweep.payments, 'payment')} wait in it, or one has waited{' '}
        {writeSeconds(sweep.seconds)}. Anyone may call its <code>sweep</code> sooner.
      </p>
    </Panel>
  )
}

function PaidOut({ row: { failedSweeps, paidOutAfter }, now }: { row: SplitterBalance; now: number }) {
  if (failedSweeps > 0) return <>{countOf(failedSweeps, 'payout')} failed; tried again later</>
  if (paidOutAfter === null || Date.parse(paidOutAfter) <= now) return <>with the next batch</>
  return (
    <>
      with the first batch after <Time at={paidOutAfter} />
    </>
  )
}
