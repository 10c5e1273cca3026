import type { Failure, Failures } from '../answers.ts'
import { countOf, describeCode, writeCountdown, writeUsdc } from '../format.ts'
import { readPages } from '../gateway.ts'
import { ActionButton } from '../parts/ActionButton.tsx'
import { Copyable, Facts, PaymentLink, Status, Time } from '../parts/bits.tsx'
import { keyOfPayment } from '../parts/PaymentTable.tsx'
import { Empty, View } from '../parts/View.tsx'
import { useSession } from '../session.ts'
import { useNow } from '../useNow.ts'
import { usePolled } from '../usePolled.ts'

/** The first try, and five retries (SPEC.md section 8.2). */
const mostAttempts = 6
const mostPages = 4

export function FailuresPage() {
  const { gateway, path } = useSession()
  const polled = usePolled(async (signal) => {
    const failuresOf = ({ failures }: Failures) => failures
    const read = (status: 'retrying' | 'failed') =>
      readPages(gateway, `${path}/failures`, { status, limit: 50 }, failuresOf, { signal, pages: mostPages })
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
        <FailureCard key={keyOfPayment(failure)} failure={failure} refresh={refresh} />
      ))}
    </section>
  )
}

function FailureCard({ failure, refresh }: { failure: Failure; refresh: () => void }) {
  const { gateway, scope } = useSession()
  const { paymentId, tab, payment_status, failureCode, nextAttemptAt, failures } = failure
  const reason = failures.at(-1)?.code ?? failureCode
  const requeue = async () => {
    await gateway.post(`payments/${paymentId}/requeue`)
    refresh()
  }
  return (
    <article class="panel">
      <header>
        <h3>
          <PaymentLink paymentId={paymentId} />
        </h3>
        <Status status={payment_status} />
        {/* A tab is of several providers: only the operator queues it again. */}
        {payment_status === 'failed' && tab === null && (
          <span class="line end">
            <ActionButton
              label="Queue again"
              ask={requeue}
              said="Queued again"
              isDisabled={scope === 'read'}
            />
          </span>
        )}
      </header>
      <Facts
        of={{
          Why: reason ? describeCode(reason) : 'Its authorizations have run out',
          'A tab': tab !== null && `${countOf(tab.requests, 'request')} to one endpoint`,
          'You would get, USDC': writeUsdc(BigInt(failure.providerUsdc)),
          'Of it, arrived': failure.settledUsdc !== '0' && writeUsdc(BigInt(failure.settledUsdc)),
          Attempts: `${failure.attempts} of ${mostAttempts}`,
          'Next attempt': nextAttemptAt === null ? 'none' : <Next at={nextAttemptAt} />,
          Payer: <Copyable text={failure.payer} />,
          Accepted: <Time at={failure.acceptedAt} />,
        }}
      />
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
