import { useState } from 'preact/hooks'
import { countOf, describeCode, writeCountdown, writeUsdc } from '../display/format.ts'
import { hrefWith } from '../display/routing.ts'
import { useNow } from '../display/useNow.ts'
import type { Failure, Payment } from '../gateway/answers.ts'
import { useSession } from '../gateway/session.ts'
import { usePolled } from '../gateway/usePolled.ts'
import { ActionButton } from '../parts/ActionButton.tsx'
import { Buyer, EndpointName, PaymentLink, payments, Status } from '../parts/payments.tsx'
import { Attempts, Facts, Time } from '../parts/ui.tsx'
import { Empty, View } from '../parts/View.tsx'

/** Maximum number of attempts: the first one and five retries (conformance 8.2-2). */
const mostAttempts = 6
const mostPages = 4

const lists = [
  ['Failed', 'failed'],
  ['Retrying automatically', 'retrying'],
] as const

export function FailuresPage() {
  const { gateway, path, scope } = useSession()
  const polled = usePolled(async (signal) => {
    const pages = { signal, pages: mostPages }
    const read = async ([title, status]: (typeof lists)[number]) => {
      const { rows } = await gateway.list<Failure>(`${path}/failures`, { status, limit: 50 }, pages)
      return { title, failures: rows }
    }
    const found = await Promise.all(lists.map(read))
    return { rows: found.filter(({ failures }) => failures.length > 0) }
  }, 'failures')
  const { requeued, add, forget } = useRequeued(polled.data?.rows.flatMap(({ failures }) => failures) ?? [])
  // After the user has queued a payment again, it is no longer a failure. Its card stays, and shows the result.
  const shown = polled.data && {
    rows: [
      ...(requeued.length > 0 ? [{ title: requeuedTitle, failures: requeued }] : []),
      ...polled.data.rows.map(({ title, failures }) => ({
        title,
        failures: failures.filter((one) => !requeued.some((other) => keyOf(other) === keyOf(one))),
      })),
    ].filter(({ failures }) => failures.length > 0),
  }
  return (
    <View
      title="Failures"
      polled={{ ...polled, data: shown }}
      actions={
        scope === 'full' &&
        (polled.data?.rows.length ?? 0) > 0 && (
          <a href={hrefWith(['payments'], { status: 'failed' })}>Queue several again</a>
        )
      }
      none={
        <Empty title="No failures">
          There is nothing to do. A payment appears here if it can’t settle, for example because the buyer’s
          balance is too low. You then see why, and when it is tried again.
        </Empty>
      }
    >
      {({ rows }) =>
        rows.map(({ title, failures }) => (
          <section key={title} class="failures" aria-label={title}>
            <h2>{title}</h2>
            {failures.map((failure) =>
              title === requeuedTitle ? (
                <RequeuedCard key={keyOf(failure)} failure={failure} forget={() => forget(failure)} />
              ) : (
                <FailureCard
                  key={keyOf(failure)}
                  failure={failure}
                  requeued={() => {
                    add(failure)
                    polled.refresh()
                  }}
                />
              ),
            )}
          </section>
        ))
      }
    </View>
  )
}

const keyOf = payments.keyOf
const requeuedTitle = 'Queued again'

/**
 * Returns the payments that the user queued again on this page. A payment is removed when it fails again or the user has seen the
 * result.
 */
function useRequeued(failures: readonly Failure[]) {
  const [all, setAll] = useState<readonly Failure[]>([])
  const isFailing = (one: Failure) =>
    failures.some(
      (other) => keyOf(other) === keyOf(one) && other.failures.length > 0 && other.failedAt !== one.failedAt,
    )
  const requeued = all.filter((one) => !isFailing(one))
  return {
    requeued,
    add: (failure: Failure) => setAll((now) => [failure, ...now]),
    forget: (failure: Failure) => setAll((now) => now.filter((one) => one !== failure)),
  }
}

function RequeuedCard({ failure, forget }: { failure: Failure; forget: () => void }) {
  const { paymentId, providerUsdc, payer } = failure
  const { gateway } = useSession()
  const polled = usePolled(
    (signal) => gateway.get<Payment>(`payments/${paymentId}`, signal),
    `requeued ${paymentId}`,
  )
  const status = polled.data?.payment_status ?? 'verified'
  return (
    <article class="panel">
      <header>
        <h3>
          <PaymentLink paymentId={paymentId} />
        </h3>
        <Status status={status} />
        <span class="line end">
          <button type="button" class="quiet small" onClick={forget}>
            Hide
          </button>
        </span>
      </header>
      <p role="status">
        {status === 'settled'
          ? 'The payment has settled.'
          : 'The payment is queued again with all its retries. It settles with one of the next batches.'}
      </p>
      <Facts of={{ 'Net, USDC': writeUsdc(BigInt(providerUsdc)), Buyer: <Buyer address={payer} /> }} />
    </article>
  )
}

function FailureCard({ failure, requeued }: { failure: Failure; requeued: () => void }) {
  const { gateway, scope } = useSession()
  const { paymentId, endpointId, tab, payment_status, failureCode, nextAttemptAt, failures } = failure
  const reason = failures.at(-1)?.code ?? failureCode
  const requeue = async () => {
    await gateway.post(`payments/${paymentId}/requeue`)
    requeued()
  }
  return (
    <article class="panel">
      <header>
        <h3>
          <PaymentLink paymentId={paymentId} />
        </h3>
        <Status status={payment_status} />
        {/* A tab can belong to several providers, so only the operator can queue it again. */}
        {payment_status === 'failed' && tab === null && (
          <span class="line end">
            <ActionButton label="Queue again" ask={requeue} isDisabled={scope === 'read'} />
          </span>
        )}
      </header>
      <Facts
        of={{
          Why: reason ? describeCode(reason) : 'Its authorizations have expired',
          Endpoint: <EndpointName id={endpointId} />,
          'Requests on a tab': tab !== null && countOf(tab.requests, 'request'),
          'Net, USDC': writeUsdc(BigInt(failure.providerUsdc)),
          'Of that, settled, USDC': failure.settledUsdc !== '0' && writeUsdc(BigInt(failure.settledUsdc)),
          Attempts: `${failure.attempts} of ${mostAttempts}`,
          'Next attempt': nextAttemptAt === null ? 'none' : <Next at={nextAttemptAt} />,
          Buyer: <Buyer address={failure.payer} />,
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
