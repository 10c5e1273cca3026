import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import {
  countOf,
  nameNetwork,
  nameTrigger,
  shareOf,
  writeCount,
  writeCountdown,
  writeUsdc,
} from '../display/format.ts'
import { href } from '../display/routing.ts'
import { useNow } from '../display/useNow.ts'
import type { ProviderPayment, Queue, WalletQueue } from '../gateway/answers.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled } from '../gateway/usePolled.ts'
import { payments } from '../parts/payments.tsx'
import { Table } from '../parts/Table.tsx'
import { Badge, Copyable, Meter, Panel } from '../parts/ui.tsx'
import { Empty, View } from '../parts/View.tsx'

export function QueuePage() {
  const { gateway, path } = useSession()
  const polled = usePolled(async (signal) => {
    const asked = { status: 'verified', limit: 20 }
    const [{ wallets: rows, asOf }, waiting] = await Promise.all([
      gateway.get<Queue>(`${path}/queue`, signal),
      gateway.list<ProviderPayment>(`${path}/payments`, asked, { signal, pages: 1 }),
    ])
    // Countdowns use the gateway's clock, because this machine's clock may be wrong.
    return { rows, waiting: waiting.rows, aheadMs: Date.parse(asOf) - Date.now() }
  }, 'queue')
  return (
    <View
      title="Queue"
      polled={polled}
      none={
        <Empty title="No wallet is registered yet">
          Register the wallet that receives the money: <a href={href('setup', 'wallets')}>add a wallet</a>.
        </Empty>
      }
    >
      {({ rows, waiting, aheadMs }) => (
        <>
          <div class="halves">
            {rows.map((wallet) => (
              <WalletCard key={wallet.walletId} queue={wallet} aheadMs={aheadMs} />
            ))}
          </div>
          <Panel title="Waiting">
            <Table
              label="Waiting payments"
              rows={waiting}
              none="No payments are waiting to settle. A new payment appears here within seconds."
              {...payments}
            />
          </Panel>
        </>
      )}
    </View>
  )
}

function WalletCard({ queue, aheadMs }: { queue: WalletQueue; aheadMs: number }) {
  const now = useNow() + aheadMs
  const { triggers, fired, settlesAt } = queue
  const accumulated = parseUsdc(queue.accumulated_usdc)
  const counted = parseUsdc(triggers.amount.counted_usdc)
  const amount = parseUsdc(triggers.amount.threshold_usdc)
  const largest = parseUsdc(triggers.high_value.largest_usdc)
  const high = parseUsdc(triggers.high_value.threshold_usdc)
  const waitedMs = triggers.time.since === null ? 0 : Math.max(0, now - Date.parse(triggers.time.since))
  const limitMs = triggers.time.seconds * 1000
  const leftMs = triggers.expiry.at === null ? null : Date.parse(triggers.expiry.at) - now
  const expired =
    leftMs === null ? 0 : 1 - Math.min(1, Math.max(0, leftMs / (waitedMs + Math.max(leftMs, 1))))
  const { count } = triggers
  const [state, note] =
    settlesAt === null
      ? [
          queue.settlingPayments > 0 ? 'settling' : 'idle',
          queue.payments > 0 ? 'settles separately' : 'nothing waits',
        ]
      : fired
        ? ['now', `${nameTrigger(fired)} fired`]
        : [writeCountdown(Date.parse(settlesAt) - now), 'until settlement, at the latest']
  const meters: [label: string, share: number, text: string][] = [
    ['Amount', shareOf(counted, amount), `${writeUsdc(counted)} of ${writeUsdc(amount)} USDC`],
    [
      'Count',
      shareOf(BigInt(count.counted), BigInt(count.threshold)),
      `${writeCount(count.counted)} of ${writeCount(count.threshold)}`,
    ],
    ['Time', Math.min(1, waitedMs / limitMs), `${writeCountdown(waitedMs)} of ${writeCountdown(limitMs)}`],
    ['High value', shareOf(largest, high), `${writeUsdc(largest)} of ${writeUsdc(high)} USDC`],
    ['Expiry', expired, leftMs === null ? 'nothing can expire' : `in ${writeCountdown(leftMs)}`],
  ]
  return (
    <Panel
      title={<Copyable text={queue.wallet} />}
      label={`Queue of ${queue.wallet} on ${queue.network}`}
      beside={<Badge tone="plain">{nameNetwork(queue.network)}</Badge>}
    >
      <div class="line countdown">
        <p>
          <span class="value">{writeUsdc(accumulated)}</span> <small>USDC</small>
          <br />
          <span class="note">
            {countOf(queue.payments, 'payment waits', 'payments wait')}
            {queue.tabs > 0 && `, counting each request on ${countOf(queue.tabs, 'closed tab')}`}
            {queue.settlingPayments > 0 && `, ${writeCount(queue.settlingPayments)} settling now`}
            {queue.retryingPayments > 0 && `, ${writeCount(queue.retryingPayments)} retrying`}
          </span>
        </p>
        <p class="right end">
          <span class="value" role={settlesAt === null ? undefined : 'timer'}>
            {state}
          </span>
          <br />
          <span class="note">{note}</span>
        </p>
      </div>
      {queue.withheld && <Withheld {...queue.withheld} />}
      <div class="meters">
        {meters.map(([label, share, text]) => (
          <Meter key={label} label={label} share={share} text={text} />
        ))}
      </div>
      <p class="note">
        The queue settles when the first trigger is reached. While gas is expensive, the keeper waits for{' '}
        {writeUsdc(parseUsdc(triggers.amount.raised_threshold_usdc))} USDC or{' '}
        {writeCount(triggers.count.raisedThreshold)} payments instead.
      </p>
    </Panel>
  )
}

function Withheld({ waiting_usdc, splitters }: NonNullable<WalletQueue['withheld']>) {
  return (
    <div class="note" role="alert">
      <p>
        USDC has blacklisted this wallet, so nothing is paid out to it. {writeUsdc(parseUsdc(waiting_usdc))}{' '}
        USDC of it {splitters.length === 1 ? 'is held in this splitter' : 'is held in splitters'} until USDC
        removes the wallet from its blacklist. Register another wallet for future sales.
      </p>
      {splitters.map(({ splitter, waiting_usdc: part }) => (
        <p key={splitter}>
          <Copyable text={splitter} /> {writeUsdc(parseUsdc(part))} USDC
        </p>
      ))}
    </div>
  )
}
