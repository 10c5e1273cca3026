import { isoTime } from '@tollkeeper/sdk/protocol/time'
import { useEffect, useRef, useState } from 'preact/hooks'
import { describeCode, nameNetwork, writeCount, writeUsdc } from '../display/format.ts'
import { href } from '../display/routing.ts'
import { type Step, stepsOf } from '../display/timeline.ts'
import type { Payment, Receipt, Refunds, Timeline } from '../gateway/answers.ts'
import { checkReceipt, isSameStatement, type ReceiptCheck } from '../gateway/receiptCheck.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled } from '../gateway/usePolled.ts'
import { Badge, Code, Copyable, Facts, Panel, Time, Transaction, Usdc } from '../parts/bits.tsx'
import { Claims, Status } from '../parts/payments.tsx'
import { RefundPanel } from '../parts/Refunds.tsx'
import { type Column, Table } from '../parts/Table.tsx'
import { View } from '../parts/View.tsx'

export function PaymentPage({ paymentId }: { paymentId: string }) {
  const { gateway, path } = useSession()
  const polled = usePolled(async (signal) => {
    const id = encodeURIComponent(paymentId)
    const found = gateway.get<Payment>(`payments/${id}`, signal)
    const [timeline, payment, receipt, refunds] = await Promise.all([
      gateway.get<Timeline>(`${path}/payments/${id}/timeline`, signal),
      found,
      // A payment that came through the facilitator has no receipt.
      found.then(({ source }) =>
        source === 'gateway' ? gateway.get<Receipt>(`receipts/${id}`, signal) : null,
      ),
      // A tab has no refunds of ours either, since it is of several providers.
      found.then(({ source }) =>
        source === 'tab' ? null : gateway.get<Refunds>(`${path}/payments/${id}/refunds`, signal),
      ),
    ])
    return { timeline, payment, receipt, refunds }
  }, `payment ${paymentId}`)
  return (
    <View title="Payment" polled={polled}>
      {({ timeline, payment, receipt, refunds }) => (
        <>
          <div class="line">
            <p>
              <span class="value">{writeUsdc(ownPart(payment))}</span> <small>USDC for you</small>
            </p>
            <Status status={payment.payment_status} />
            <Copyable text={payment.paymentId} whole />
          </div>
          <div class="halves">
            <Panel title="Its life">
              <ol class="timeline">
                {stepsOf(payment, timeline).map((step) => (
                  <StepItem key={`${step.title} ${step.at}`} step={step} network={payment.network} />
                ))}
              </ol>
            </Panel>
            <Signed payment={payment} />
          </div>
          {payment.tab && <TabPanel tab={payment.tab} />}
          {refunds && <RefundPanel refunds={refunds} refresh={polled.refresh} />}
          {receipt && <ReceiptPanel receipt={receipt.receipt} />}
        </>
      )}
    </View>
  )
}

const stateNames: Record<Step['state'], string> = {
  done: 'done',
  now: 'in progress',
  ahead: 'still ahead',
  failed: 'failed',
}

function StepItem({ step: { title, at, state, detail, txHash }, network }: { step: Step; network: string }) {
  return (
    <li class={state} aria-current={state === 'now' ? 'step' : undefined}>
      <p class="line">
        <b>{title}</b>
        <span class="unseen">, {stateNames[state]}</span>
        {at !== null && (
          <span class="note end">
            <Time at={at} />
          </span>
        )}
      </p>
      {detail !== undefined && <p class="note">{detail}</p>}
      {txHash !== undefined && <Transaction hash={txHash} network={network} />}
    </li>
  )
}

/** The part of a tab that its lines have for the viewer. */
function ownPart({ tab, providerUsdc }: Payment): bigint {
  if (tab === null) return BigInt(providerUsdc)
  return salesOf(tab).reduce((sum, { providerUsdc }) => sum + BigInt(providerUsdc), 0n)
}

type Tab = NonNullable<Payment['tab']>

const salesOf = ({ lines }: Tab) =>
  (lines ?? []).flatMap(({ sales, payTo }) => sales.map((sale) => ({ ...sale, payTo })))

const saleColumns: Column<ReturnType<typeof salesOf>[number]>[] = [
  ['Endpoint', ({ endpointId }) => <Copyable text={endpointId} />],
  ['Requests', ({ requests }) => writeCount(requests), 'number'],
  ['You get, USDC', ({ providerUsdc }) => <Usdc units={providerUsdc} />, 'number'],
  ['Arrived, USDC', ({ settledUsdc }) => <Usdc units={settledUsdc} />, 'number'],
  ['Fee, USDC', ({ platformUsdc }) => <Usdc units={platformUsdc} />, 'number'],
  ['Wallet', ({ payTo }) => <Copyable text={payTo} />],
  ['Last request', ({ lastRequestAt }) => <Time at={lastRequestAt} />],
]

function TabPanel({ tab }: { tab: Tab }) {
  const sales = salesOf(tab)
  const isOtherState = (tab.lines ?? []).some(
    ({ signedUsdc, movedUsdc }) => movedUsdc !== '0' && movedUsdc !== signedUsdc,
  )
  return (
    <Panel title="Your lines of this tab">
      <Facts
        of={{
          Tab: <Copyable text={tab.tabId} />,
          'Your requests': `${sales.reduce((sum, { requests }) => sum + requests, 0)} of ${tab.requests}`,
          [tab.isOpen ? 'Newest state' : 'State that settles']: `number ${tab.sequence}`,
          Open: (
            <>
              <Time at={tab.openedAt} /> to <Time at={tab.closedAt} none="now" />
            </>
          ),
          'Closed because': tab.isOpen ? 'It is open' : tab.closeReason?.replaceAll('_', ' '),
        }}
      />
      <Table
        label="What was sold on this tab"
        rows={sales}
        keyOf={({ sale }) => `${sale}`}
        columns={saleColumns}
      />
      {isOtherState && (
        <p class="note">
          Another state of this tab moved than the one that was to settle: what it had for you has arrived.
        </p>
      )}
    </Panel>
  )
}

function Signed({ payment }: { payment: Payment }) {
  const { resource, source, payer, network, validBefore, provider, platform, failureCode, trace } = payment
  return (
    <Panel title="What was signed">
      <Facts
        of={{
          Resource: source !== 'tab' && <Code>{resource}</Code>,
          'Came through': source === 'facilitator' && (
            <>
              x402 facilitator
              <br />
              <span class="note">It has no receipt of ours: the transaction is one.</span>
            </>
          ),
          Payer: <Copyable text={payer} />,
          Network: nameNetwork(network),
          'Valid until': <Time at={isoTime(validBefore)} />,
          [source === 'tab' ? 'All of the tab' : 'Your part']: <Half half={provider} />,
          'Platform fee': platform && <Half half={platform} />,
          'Last failure': failureCode && describeCode(failureCode),
          Trace: trace && (
            <>
              <Copyable text={trace.id} /> {trace.url !== null && <a href={trace.url}>Open the trace</a>}
            </>
          ),
        }}
      />
    </Panel>
  )
}

function Half({ half }: { half: Payment['provider'] }) {
  const { value, to, state, logIndex, blockNumber } = half
  return (
    <>
      <span class="number">{writeUsdc(BigInt(value))}</span> USDC to <Copyable text={to} />
      <br />
      <span class="note">
        {state === 'settled' ? `settled, log ${logIndex} of block ${blockNumber}` : state}
      </span>
    </>
  )
}

/** The current receipt, verified in this browser; verified again only when its claims change. */
function ReceiptPanel({ receipt }: { receipt: string }) {
  const { gateway } = useSession()
  const [check, setCheck] = useState<ReceiptCheck>()
  const kept = useRef(receipt)
  if (check?.kind === 'unavailable' || !isSameStatement(kept.current, receipt)) kept.current = receipt
  const shown = kept.current
  useEffect(() => {
    let isCurrent = true
    void checkReceipt(shown, gateway).then((result) => {
      if (isCurrent) setCheck(result)
    })
    return () => {
      isCurrent = false
    }
  }, [shown, gateway])
  const verdict = check && describe(check)
  return (
    <Panel title="Receipt" beside={verdict && <Badge tone={verdict[0]}>{verdict[1]}</Badge>}>
      {check?.kind === 'genuine' && <Claims claims={check.claims} />}
      <details>
        <summary>Signed form (JWS)</summary>
        <p class="break">
          <Copyable text={shown} whole />
        </p>
        <a href={href('receipt', shown)}>Open in the receipt check</a>
      </details>
    </Panel>
  )
}

function describe(check: ReceiptCheck): [tone: 'good' | 'bad' | 'plain', text: string] | undefined {
  if (check.kind === 'forged') return ['bad', 'signature is wrong']
  if (check.kind === 'unavailable') return ['plain', `not verified: ${check.reason}`]
  if (check.kind === 'unreadable') return undefined
  const { mismatches } = check
  return mismatches.length === 0
    ? ['good', 'verified in this browser']
    : ['bad', `differs from the record in: ${mismatches.join(', ')}`]
}
