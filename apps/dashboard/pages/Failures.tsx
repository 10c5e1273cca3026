import { countOf, describeCode, writeCountdown, writeUsdc } from '../display/format.ts'
import { useNow } from '../display/useNow.ts'
import type { Failure } from '../gateway/answers.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled } from '../gateway/usePolled.ts'
import { ActionButton } from '../parts/ActionButton.tsx'
import { Attempts, Copyable, Facts, Time } from '../parts/bits.tsx'
import { PaymentLink, payments, Status } from '../parts/payments.tsx'
import { Empty, View } from '../parts/View.tsx'

/** The first try, and five retries (conformance 8.2-2). */
const mostAttempts = 6
const mostPages = 4

const lists = [
  ['Failed', 'failed'],
  ['Retrying by itself', 'retrying'],
] as const

export function FailuresPage() {
  const { gateway, path } = useSession()
  const polled = usePolled(async (signal) => {
    const pages = { signal, pages: mostPages }
    const read = async ([title, status]: (typeof lists)[number]) => {
      const { rows } = await gateway.list<Failure>(`${path}/failures`, { status, limit: 50 }, pages)
      return { title, failures: rows }
    }
    const found = await Promise.all(lists.map(read))
    return { rows: found.filter(({ failures }) => failures.length > 0) }
  }, 'failures')
  return (
    <View
      title="Failures"
      polled={polled}
      none={
        <Empty title="Nothing fails to settle">
          Should a buyer’s balance not cover a payment when its batch is due, it shows here, with each attempt
          and the next one.
        </Empty>
      }
    >
      {({ rows }) =>
        rows.map(({ title, failures }) => (
          <section key={title} class="failures" aria-label={title}>
            <h2>{title}</h2>
            {failures.map((failure) => (
              <FailureCard key={payments.keyOf(failure)} failure={failure} refresh={polled.refresh} />
            ))}
          </section>
        ))
      }
    </View>
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
      <Attempts title="Each attempt" of={failures}>
        {({ code, detail, failedAt }) => (
          <>
            <Time at={failedAt} /> {describeCode(code)}
            {detail !== '' && <span class="note"> {detail}</span>}
          </>
        )}
      </Attempts>
    </article>
  )
}

function Next({ at }: { at: string }) {
  const leftMs = Date.parse(at) - useNow()
  return <span class="number">{leftMs <= 0 ? 'now' : `in ${writeCountdown(leftMs)}`}</span>
}
