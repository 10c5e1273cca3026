import { useState } from 'preact/hooks'
import type { Failure, Failures } from '../answers.ts'
import { describeCode, writeCountdown, writeUsdc } from '../format.ts'
import { GatewayError, query, readPages } from '../gateway.ts'
import { Copyable, Fact, PaymentLink, Status, Time } from '../parts/bits.tsx'
import { Empty, View } from '../parts/View.tsx'
import { useSession } from '../session.ts'
import { useNow } from '../useNow.ts'
import { usePolled } from '../usePolled.ts'

/** The first try, and five retries (SPEC.md section 8.2). */
const mostAttempts = 6
const mostPages = 4

export function FailuresPage() {
  const { gateway, provider } = useSession()
  const polled = usePolled(async (signal) => {
    const read = (status: 'retrying' | 'failed') =>
      readPages(
        (cursor) =>
          gateway.get<Failures>(
            `providers/${provider.providerId}/failures${query({ status, limit: 50, cursor })}`,
            signal,
          ),
        ({ failures }) => failures,
        mostPages,
      )
    const [retrying, failed] = await Promise.all([read('retrying'), read('failed')])
    return { retrying: retrying.rows, failed: failed.rows }
  }, 'failures')
  return (
    <View title="Failures" polled={polled}>
      {({ retrying, failed }) =>
        retrying.length + failed.length === 0 ? (
          <Empty title="Nothing fails to settle">
            <p>
              Should a buyer’s balance not cover a payment when its batch is due, it shows here, with each
              attempt and the next one.
            </p>
          </Empty>
        ) : (
          <>
            <List title="Failed" failures={failed} refresh={polled.refresh} />
            <List title="Retrying by itself" failures={retrying} refresh={polled.refresh} />
          </>
        )
      }
    </View>
  )
}

function List({ title, failures, refresh }: { title: string; failures: Failure[]; refresh: () => void }) {
  if (failures.length === 0) return null
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {failures.map((failure) => (
        <FailureCard key={failure.paymentId} failure={failure} refresh={refresh} />
      ))}
    </section>
  )
}

function FailureCard({ failure, refresh }: { failure: Failure; refresh: () => void }) {
  const { paymentId, payment_status, failureCode, nextAttemptAt, failures } = failure
  const last = failures.at(-1)
  const reason = last?.code ?? failureCode
  return (
    <article class="panel failure">
      <header>
        <h3>
          <PaymentLink paymentId={paymentId} />
        </h3>
        <Status status={payment_status} />
        {payment_status === 'failed' && <Requeue paymentId={paymentId} refresh={refresh} />}
      </header>
      <dl class="facts">
        <Fact title="Why">{reason ? describeCode(reason) : 'Its authorizations have run out'}</Fact>
        <Fact title="You would get">
          <span class="number">{writeUsdc(BigInt(failure.providerUsdc))}</span> USDC
        </Fact>
        <Fact title="Attempts">
          <span class="number">
            {failure.attempts} of {mostAttempts}
          </span>
        </Fact>
        <Fact title="Next attempt">{nextAttemptAt === null ? 'none' : <Next at={nextAttemptAt} />}</Fact>
        <Fact title="Payer">
          <Copyable text={failure.payer} />
        </Fact>
        <Fact title="Accepted">
          <Time at={failure.acceptedAt} />
        </Fact>
      </dl>
      {failures.length > 0 && (
        <details>
          <summary>Each attempt</summary>
          <ol class="attempts">
            {failures.map(({ attempt, code, detail, failedAt }) => (
              <li key={attempt}>
                <Time at={failedAt} /> {describeCode(code)}
                {detail !== '' && <span class="note"> {detail}</span>}
              </li>
            ))}
          </ol>
        </details>
      )}
    </article>
  )
}

function Next({ at }: { at: string }) {
  const leftMs = Date.parse(at) - useNow()
  return <span class="number">{leftMs <= 0 ? 'now' : `in ${writeCountdown(leftMs)}`}</span>
}

function Requeue({ paymentId, refresh }: { paymentId: string; refresh: () => void }) {
  const { gateway, scope } = useSession()
  const [state, setState] = useState<'idle' | 'asking' | 'queued' | { problem: string }>('idle')

  async function requeue() {
    setState('asking')
    try {
      await gateway.post(`payments/${paymentId}/requeue`)
      setState('queued')
      refresh()
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      setState({ problem: error.message })
    }
  }
  return (
    <span class="requeue" role="status">
      {typeof state === 'object' && <span class="problem">{state.problem}</span>}
      {state === 'queued' ? (
        'Queued again'
      ) : (
        <button
          type="button"
          disabled={state === 'asking' || scope === 'read'}
          onClick={() => void requeue()}
        >
          Queue again
        </button>
      )}
    </span>
  )
}
