import { isoTime } from '@tollkeeper/sdk/protocol/time'
import { useEffect, useRef, useState } from 'preact/hooks'
import { isFinal } from '../display/final.ts'
import { describeCode, nameNetwork, writeCount, writeUsdc } from '../display/format.ts'
import { href } from '../display/routing.ts'
import { type Step, stepsOf } from '../display/timeline.ts'
import type { Payment, Receipt, Refunds, Timeline } from '../gateway/answers.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { checkReceipt, isSameStatement, type ReceiptCheck } from '../gateway/receiptCheck.ts'
import { useSession } from '../gateway/session.ts'
import { finalMs, type Polled, usePolled, usualMs } from '../gateway/usePolled.ts'
import { PaymentSearch } from '../parts/PaymentSearch.tsx'
import { PassPanel } from '../parts/passes.tsx'
import { Buyer, Claims, EndpointName, Status } from '../parts/payments.tsx'
import { RefundPanel } from '../parts/Refunds.tsx'
import { type Column, Table } from '../parts/Table.tsx'
import { Badge, Code, Copyable, Facts, Panel, Time, Transaction, Usdc } from '../parts/ui.tsx'
import { Empty, useTitle, View } from '../parts/View.tsx'

export function PaymentPage({ paymentId }: { paymentId: string }) {
  const { gateway, path } = useSession()
  const read = async (signal: AbortSignal) => {
    const id = encodeURIComponent(paymentId)
    const found = gateway.get<Payment>(`payments/${id}`, signal)
    if (await isUnknown(found)) return null
    const [timeline, payment, receipt, refunds] = await Promise.all([
      gateway.get<Timeline>(`${path}/payments/${id}/timeline`, signal),
      found,
      // A payment that came through the facilitator has no receipt.
      found.then(({ source }) =>
        source === 'gateway' ? gateway.get<Receipt>(`receipts/${id}`, signal) : null,
      ),
      // A tab can't be refunded as a whole, because it can belong to several providers.
      found.then(({ source }) =>
        source === 'tab' ? null : gateway.get<Refunds>(`${path}/payments/${id}/refunds`, signal),
      ),
    ])
    return { timeline, payment, receipt, refunds }
  }
  const polled = usePolled(read, `payment ${paymentId}`, (data) =>
    data && isFinal(data) ? finalMs : usualMs,
  )
  if (polled.data === null) return <UnknownPayment paymentId={paymentId} />
  return (
    <View title="Payment" polled={polled as Polled<NonNullable<typeof polled.data>>}>
      {({ timeline, payment, receipt, refunds }) => (
        <>
          <div class="line">
            <p>
              <span class="value">{writeUsdc(ownPart(payment))}</span> <small>USDC net</small>
            </p>
            <Status status={payment.payment_status} />
            <Copyable text={payment.paymentId} whole />
          </div>
          <div class="halves">
            <Panel title="Timeline">
              <ol class="timeline">
                {stepsOf(payment, timeline).map((step) => (
                  <StepItem key={`${step.title} ${step.at}`} step={step} network={payment.network} />
                ))}
              </ol>
            </Panel>
            <Signed payment={payment} />
          </div>
          {payment.pass && <PassPanel pass={payment.pass} />}
          {payment.tab && <TabPanel tab={payment.tab} paymentId={payment.paymentId} />}
          {refunds && <RefundPanel refunds={refunds} refresh={polled.refresh} />}
          {receipt && <ReceiptPanel receipt={receipt.receipt} />}
        </>
      )}
    </View>
  )
}

/** Whether the gateway doesn't know the payment. The view reports any other failure. */
async function isUnknown(found: Promise<Payment>): Promise<boolean> {
  try {
    await found
    return false
  } catch (error) {
    return error instanceof GatewayError && error.status === 404
  }
}

function UnknownPayment({ paymentId }: { paymentId: string }) {
  useTitle('Payment')
  return (
    <>
      <header class="line view-head">
        <h1>Payment</h1>
      </header>
      <Empty title="No payment has this id" more={<a href={href('payments')}>See all payments</a>}>
        This gateway knows no payment <span class="code break">{paymentId}</span>. Copy the whole id, or
        search for the buyer’s address or the transaction.
      </Empty>
      <PaymentSearch />
    </>
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

/** Returns the viewer's part of a tab, according to the tab's lines. */
function ownPart({ tab, providerUsdc }: Payment): bigint {
  if (tab === null) return BigInt(providerUsdc)
  return salesOf(tab).reduce((sum, { providerUsdc }) => sum + BigInt(providerUsdc), 0n)
}

type Tab = NonNullable<Payment['tab']>

const salesOf = ({ lines }: Tab) =>
  (lines ?? []).flatMap(({ sales, payTo }) => sales.map((sale) => ({ ...sale, payTo })))

const saleColumns: Column<ReturnType<typeof salesOf>[number]>[] = [
  ['Endpoint', ({ endpointId }) => <EndpointName id={endpointId} />],
  ['Requests', ({ requests }) => writeCount(requests), 'number'],
  ['Net, USDC', ({ providerUsdc }) => <Usdc units={providerUsdc} />, 'number'],
  ['Arrived, USDC', ({ settledUsdc }) => <Usdc units={settledUsdc} />, 'number'],
  ['Fee, USDC', ({ platformUsdc }) => <Usdc units={platformUsdc} />, 'number'],
  ['Wallet', ({ payTo }) => <Copyable text={payTo} />],
  ['Last request', ({ lastRequestAt }) => <Time at={lastRequestAt} />],
]

function TabPanel({ tab, paymentId }: { tab: Tab; paymentId: string }) {
  const sales = salesOf(tab)
  const isOtherState = (tab.lines ?? []).some(
    ({ signedUsdc, movedUsdc }) => movedUsdc !== '0' && movedUsdc !== signedUsdc,
  )
  return (
    <Panel title="Your lines of this tab">
      <Facts
        of={{
          Tab: <Copyable text={tab.tabId} link={href('tabs', paymentId)} />,
          'Your requests': `${sales.reduce((sum, { requests }) => sum + requests, 0)} of ${tab.requests}`,
          [tab.isOpen ? 'Newest state' : 'State that settles']: `number ${tab.sequence}`,
          Open: (
            <>
              <Time at={tab.openedAt} /> to <Time at={tab.closedAt} none="now" />
            </>
          ),
          'Close reason': tab.isOpen ? 'still open' : tab.closeReason?.replaceAll('_', ' '),
        }}
      />
      <Table
        label="Sales on this tab"
        rows={sales}
        none="None of your requests is charged on this tab."
        keyOf={({ sale }) => `${sale}`}
        columns={saleColumns}
      />
      {isOtherState && (
        <p class="note">
          The buyer signs a tab again for each request. This tab settled with another signature than the one
          that the gateway chose. You received the amounts under “Arrived”.
        </p>
      )}
    </Panel>
  )
}

function Signed({ payment }: { payment: Payment }) {
  const {
    resource,
    source,
    endpointId,
    payer,
    network,
    validBefore,
    provider,
    platform,
    failureCode,
    trace,
  } = payment
  const { transactionHash } = provider
  return (
    <Panel title="Authorizations">
      <Facts
        of={{
          Endpoint: endpointId !== null && <EndpointName id={endpointId} />,
          Resource: source !== 'tab' && <Code>{resource}</Code>,
          'Came through': source === 'facilitator' && (
            <>
              x402 facilitator
              <br />
              <span class="note">
                It has no receipt from this gateway. The transaction is the proof of payment.
              </span>
            </>
          ),
          Buyer: <Buyer address={payer} />,
          Batch: transactionHash !== null && (
            <a href={href('payouts', 'batches', network, transactionHash)}>Payments that settled together</a>
          ),
          Network: nameNetwork(network),
          'Valid until': <Time at={isoTime(validBefore)} />,
          [source === 'tab' ? 'Whole tab' : 'Your part']: <Half half={provider} />,
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

/** Shows the current receipt, after verifying it in this browser. Verifies it again only if its claims change. */
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
  if (check.kind === 'forged') return ['bad', 'invalid signature']
  if (check.kind === 'unavailable') return ['plain', `not verified: ${check.reason}`]
  if (check.kind === 'unreadable') return undefined
  const { mismatches } = check
  return mismatches.length === 0
    ? ['good', 'verified in this browser']
    : ['bad', `differs from the gateway’s record in: ${mismatches.join(', ')}`]
}
