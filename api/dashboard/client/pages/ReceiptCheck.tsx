import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import type { Payment } from '../answers.ts'
import { createGateway } from '../gateway.ts'
import { Fact, Status, Transaction } from '../parts/bits.tsx'
import { Claims } from '../parts/Claims.tsx'
import { useTitle } from '../parts/View.tsx'
import { checkReceipt, type ReceiptCheck } from '../receiptCheck.ts'

type State = ReceiptCheck | { kind: 'idle' } | { kind: 'checking' }

/** For anyone, without a key: is this receipt genuine, and has its payment settled? */
export function ReceiptCheckPage({ receipt }: { receipt: string | undefined }) {
  useTitle('Receipt check')
  const text = useRef<HTMLTextAreaElement>(null)
  const [state, setState] = useState<State>({ kind: 'idle' })

  const check = useCallback(async () => {
    const pasted = text.current?.value ?? ''
    if (pasted.trim() === '') return setState({ kind: 'idle' })
    setState({ kind: 'checking' })
    setState(await checkReceipt(pasted, createGateway()))
  }, [])

  // Where the link carries one.
  useEffect(() => {
    if (receipt === undefined || text.current === null) return
    text.current.value = receipt
    void check()
  }, [receipt, check])

  return (
    <>
      <header class="view-head">
        <h1>Receipt check</h1>
      </header>
      <form
        class="panel check"
        onSubmit={(event) => {
          event.preventDefault()
          void check()
        }}
      >
        <label for="receipt">Receipt</label>
        <textarea
          id="receipt"
          ref={text}
          rows={5}
          spellcheck={false}
          autocomplete="off"
          placeholder="eyJ… . eyJ… . …"
          aria-describedby="receipt-note"
        />
        <p id="receipt-note" class="note">
          What came in the <code>Service-Receipt</code> header. Its signature is verified here, in your
          browser, with the gateway’s public keys.
        </p>
        <button type="submit">Check</button>
      </form>
      <div role="status">
        <Verdict state={state} />
      </div>
    </>
  )
}

function Verdict({ state }: { state: State }) {
  switch (state.kind) {
    case 'idle':
      return null
    case 'checking':
      return <p class="loading">Checking…</p>
    case 'unavailable':
      return (
        <section class="panel trouble">
          <h2>It could not be checked</h2>
          <p>{state.reason} This says nothing about the receipt.</p>
        </section>
      )
    case 'unreadable':
      return (
        <section class="panel trouble">
          <h2>This is not a receipt</h2>
          <p>A receipt is three parts with dots between. Check that it was copied whole.</p>
        </section>
      )
    case 'forged':
      return (
        <section class="panel trouble">
          <h2>Not genuine</h2>
          <p>
            This gateway did not sign it, or somebody changed it since. It says that it was issued by{' '}
            <span class="code break">{state.claims.iss}</span>: if that is another gateway, check it there.
          </p>
          <p class="note">{state.reason}</p>
        </section>
      )
    case 'genuine':
      return <Genuine {...state} />
  }
}

function Genuine({ claims, payment, mismatches }: Extract<ReceiptCheck, { kind: 'genuine' }>) {
  const { title, tone, text } = describe(payment, mismatches)
  return (
    <section class={`panel verdict ${tone}`}>
      <h2>{title}</h2>
      <p>{text}</p>
      {payment !== undefined && mismatches.length === 0 && (
        <dl class="facts">
          <Fact title="Now">
            <Status status={payment.payment_status} />
          </Fact>
          <Fact title="Provider’s part">
            <HalfState half={payment.provider} network={payment.network} />
          </Fact>
          {payment.platform && (
            <Fact title="Platform’s part">
              <HalfState half={payment.platform} network={payment.network} />
            </Fact>
          )}
        </dl>
      )}
      <h3>What it says</h3>
      <Claims claims={claims} />
    </section>
  )
}

function HalfState({ half, network }: { half: Payment['provider']; network: string }) {
  if (half.transactionHash === null) return half.state === 'open' ? 'not moved yet' : half.state
  return (
    <>
      {half.state} <Transaction hash={half.transactionHash} network={network} />
    </>
  )
}

function describe(
  payment: Payment | undefined,
  mismatches: string[],
): { title: string; tone: string; text: string } {
  const signed = 'The gateway’s signature is good'
  if (payment === undefined) {
    return {
      title: 'Genuine, but unknown here',
      tone: 'wait',
      text: `${signed}; its payment is not in this gateway’s records.`,
    }
  }
  if (mismatches.length > 0) {
    return {
      title: 'Genuine, but it does not match',
      tone: 'bad',
      text: `${signed}, but the payment on record differs in: ${mismatches.join(', ')}.`,
    }
  }
  switch (payment.payment_status) {
    case 'settled':
      return {
        title: 'Genuine and settled',
        tone: 'good',
        text: `${signed}, and the money has moved on chain.`,
      }
    case 'failed':
      return {
        title: 'Genuine, not settled',
        tone: 'bad',
        text: `${signed}, but the payment failed to settle.`,
      }
    case 'voided':
      return {
        title: 'Genuine, but voided',
        tone: 'bad',
        text: `${signed}; no service was rendered, and nothing is charged.`,
      }
    case 'partially_settled':
      return {
        title: 'Genuine, partly settled',
        tone: 'wait',
        text: `${signed}; one of the two parts has moved on chain.`,
      }
    default:
      return {
        title: 'Genuine, not settled yet',
        tone: 'wait',
        text: `${signed}. The payment is on its way to the chain.`,
      }
  }
}
