import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import type { Payment } from '../gateway/answers.ts'
import { createGateway } from '../gateway/gateway.ts'
import { checkReceipt, type ReceiptCheck } from '../gateway/receiptCheck.ts'
import { Claims, Status } from '../parts/payments.tsx'
import { Code, Facts, Transaction } from '../parts/ui.tsx'
import { Empty, useTitle } from '../parts/View.tsx'

type State = ReceiptCheck | { kind: 'idle' } | { kind: 'checking' }

/** Shows anyone, without a key, whether a receipt is genuine and whether its payment has settled. */
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

  // Checks the receipt in the link, if there is one.
  useEffect(() => {
    if (receipt === undefined || text.current === null) return
    text.current.value = receipt
    void check()
  }, [receipt, check])

  return (
    <>
      <header class="line view-head">
        <h1>Receipt check</h1>
      </header>
      <form
        class="panel text"
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
          The value of the <code>Service-Receipt</code> header of a paid response. Its signature is verified
          in your browser, with the gateway’s public keys.
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
  if (state.kind === 'idle') return null
  if (state.kind === 'checking') return <p class="loading">Checking…</p>
  if (state.kind === 'genuine') return <Genuine {...state} />
  if (state.kind === 'unavailable')
    return (
      <Empty title="The receipt could not be checked" isTrouble>
        {state.reason} The receipt may still be genuine.
      </Empty>
    )
  if (state.kind === 'unreadable')
    return (
      <Empty title="This is not a receipt" isTrouble>
        A receipt has three parts, separated by dots. Check that you copied all of it.
      </Empty>
    )
  return (
    <Empty title="Not genuine" isTrouble more={<p class="note">{state.reason}</p>}>
      This gateway did not sign the receipt, or the receipt was changed afterwards. It names as its issuer{' '}
      <Code>{state.claims.iss}</Code>. If that is another gateway, check the receipt there.
    </Empty>
  )
}

function Genuine({ claims, payment, mismatches }: Extract<ReceiptCheck, { kind: 'genuine' }>) {
  const [tone, title, text] = describe(payment, mismatches)
  return (
    <section class="panel">
      <div class={`box ${tone}`}>
        <h2>{title}</h2>
        <p>The gateway’s signature is valid{text}</p>
      </div>
      {payment !== undefined && mismatches.length === 0 && (
        <Facts
          of={{
            Now: <Status status={payment.payment_status} />,
            'Provider’s part': <HalfState half={payment.provider} network={payment.network} />,
            'Platform’s part': payment.platform && (
              <HalfState half={payment.platform} network={payment.network} />
            ),
          }}
        />
      )}
      <h3>Claims</h3>
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

type Told = readonly [tone: 'good' | 'busy' | 'bad', title: string, text: string]

const onTheWay: Told = ['busy', 'Genuine, not settled yet', '. The payment is on its way to the chain.']

const verdicts: Partial<Record<Payment['payment_status'], Told>> = {
  settled: ['good', 'Genuine and settled', ', and the money has moved on chain.'],
  failed: ['bad', 'Genuine, not settled', ', but the payment failed to settle.'],
  voided: ['bad', 'Genuine, but voided', '; no service was rendered, and nothing is charged.'],
  partially_settled: ['busy', 'Genuine, partly settled', '; one of the two parts has moved on chain.'],
}

function describe(payment: Payment | undefined, mismatches: string[]): Told {
  if (payment === undefined)
    return ['busy', 'Genuine, but unknown here', '; its payment is not in this gateway’s records.']
  if (mismatches.length > 0) {
    const text = `, but the payment on record differs in: ${mismatches.join(', ')}.`
    return ['bad', 'Genuine, but it does not match', text]
  }
  return verdicts[payment.payment_status] ?? onTheWay
}
