import { useEffect, useRef, useState } from 'preact/hooks'
import type { Payment, Receipt, Refunds, Timeline } from '../answers.ts'
import { describeCode, nameNetwork, writeUsdc } from '../format.ts'
import { Copyable, Fact, Status, Time, Transaction } from '../parts/bits.tsx'
import { Claims } from '../parts/Claims.tsx'
import { RefundPanel } from '../parts/Refunds.tsx'
import { View } from '../parts/View.tsx'
import { checkReceipt, isSameStatement, type ReceiptCheck } from '../receiptCheck.ts'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import { type Step, stepsOf } from '../timeline.ts'
import { usePolled } from '../usePolled.ts'

export function PaymentPage({ paymentId }: { paymentId: string }) {
  const { gateway, provider } = useSession()
  const polled = usePolled(async (signal) => {
    const id = encodeURIComponent(paymentId)
    const found = gateway.get<Payment>(`payments/${id}`, signal)
    const [timeline, payment, receipt, refunds] = await Promise.all([
      gateway.get<Timeline>(`providers/${provider.providerId}/payments/${id}/timeline`, signal),
      found,
      // A payment that came through the facilitator has no receipt.
      found.then(({ source }) =>
        source === 'gateway' ? gateway.get<Receipt>(`receipts/${id}`, signal) : null,
      ),
      gateway.get<Refunds>(`providers/${provider.providerId}/payments/${id}/refunds`, signal),
    ])
    return { timeline, payment, receipt, refunds }
  }, `payment ${paymentId}`)
  return (
    <View title="Payment" polled={polled}>
      {({ timeline, payment, receipt, refunds }) => (
        <>
          <div class="payment-head">
            <p>
              <span class="value">{writeUsdc(BigInt(payment.providerUsdc))}</span> <small>USDC for you</small>
            </p>
            <Status status={payment.payment_status} />
            <Copyable text={payment.paymentId} whole />
          </div>
          <div class="halves">
            <section class="panel">
              <h2>Its life</h2>
              <ol class="timeline">
                {stepsOf(payment, timeline).map((step) => (
                  <StepItem key={`${step.title} ${step.at}`} step={step} network={payment.network} />
                ))}
              </ol>
            </section>
            <Facts payment={payment} />
          </div>
          <RefundPanel refunds={refunds} refresh={polled.refresh} />
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
      <p class="step">
        <b>{title}</b>
        <span class="unseen">, {stateNames[state]}</span>
        {at !== null && <Time at={at} />}
      </p>
      {detail !== undefined && <p class="note">{detail}</p>}
      {txHash !== undefined && <Transaction hash={txHash} network={network} />}
    </li>
  )
}

function Facts({ payment }: { payment: Payment }) {
  const halves = [
    ['Your part', payment.provider],
    ['Platform fee', payment.platform],
  ] as const
  return (
    <section class="panel">
      <h2>What was signed</h2>
      <dl class="facts">
        <Fact title="Resource">
          <span class="code break">{payment.resource}</span>
        </Fact>
        {payment.source === 'facilitator' && (
          <Fact title="Came through">
            x402 facilitator
            <br />
            <span class="note">It has no receipt of ours: the transaction is one.</span>
          </Fact>
        )}
        <Fact title="Payer">
          <Copyable text={payment.payer} />
        </Fact>
        <Fact title="Network">{nameNetwork(payment.network)}</Fact>
        <Fact title="Valid until">
          <Time at={new Date(payment.validBefore * 1000).toISOString()} />
        </Fact>
        {halves.map(
          ([title, half]) =>
            half && (
              <Fact key={title} title={title}>
                <span class="number">{writeUsdc(BigInt(half.value))}</span> USDC to{' '}
                <Copyable text={half.to} />
                <br />
                <span class="note">
                  {half.state === 'settled'
                    ? `settled, log ${half.logIndex} of block ${half.blockNumber}`
                    : half.state}
                </span>
              </Fact>
            ),
        )}
        {payment.failureCode !== null && (
          <Fact title="Last failure">{describeCode(payment.failureCode)}</Fact>
        )}
      </dl>
    </section>
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
  const mismatches = check?.kind === 'genuine' ? check.mismatches : []
  return (
    <section class="panel">
      <header class="line">
        <h2>Receipt</h2>
        {check?.kind === 'genuine' && mismatches.length === 0 && (
          <span class="status good">verified in this browser</span>
        )}
        {mismatches.length > 0 && (
          <span class="status bad">differs from the record in: {mismatches.join(', ')}</span>
        )}
        {check?.kind === 'forged' && <span class="status bad">signature is wrong</span>}
        {check?.kind === 'unavailable' && <span class="status plain">not verified: {check.reason}</span>}
      </header>
      {check?.kind === 'genuine' && <Claims claims={check.claims} />}
      <details>
        <summary>Signed form (JWS)</summary>
        <p class="jws">
          <Copyable text={shown} whole />
        </p>
        <a href={href('receipt', shown)}>Open in the receipt check</a>
      </details>
    </section>
  )
}
