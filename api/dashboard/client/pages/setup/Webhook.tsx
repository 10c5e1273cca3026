import type { Deliveries, Delivery, Webhook } from '../../answers.ts'
import { countOf } from '../../format.ts'
import { query, readPages } from '../../gateway.ts'
import { Copyable, Fact, PaymentLink, ShowMore, Time } from '../../parts/bits.tsx'
import { SetupView, useNotice } from '../../parts/Setup.tsx'
import { useSession } from '../../session.ts'
import { useAction } from '../../useAction.ts'
import { useNow } from '../../useNow.ts'
import { usePolledPages } from '../../usePolledPages.ts'

const pageSize = 20

/** One webhook, and what was sent to it. */
export function WebhookPage({ webhookId }: { webhookId: string }) {
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}/webhooks/${encodeURIComponent(webhookId)}`
  const { notice, tell } = useNotice()
  const { polled, showMore } = usePolledPages(async (signal, pages) => {
    const [webhook, log] = await Promise.all([
      gateway.get<Webhook>(path, signal),
      readPages(
        (cursor) =>
          gateway.get<Deliveries>(`${path}/deliveries${query({ limit: pageSize, cursor })}`, signal),
        ({ deliveries }) => deliveries,
        pages,
      ),
    ])
    return { webhook, deliveries: log.rows, hasMore: log.hasMore }
  }, `webhook ${webhookId}`)
  return (
    <SetupView page="webhooks" title="Webhook" polled={polled}>
      {({ webhook, deliveries, hasMore }) => (
        <>
          {notice}
          <dl class="panel facts">
            <Fact title="URL">
              <span class="code break">{webhook.url}</span>
            </Fact>
            <Fact title="Id">
              <Copyable text={webhook.webhookId} />
            </Fact>
            <Fact title="Events">{webhook.events.join(', ')}</Fact>
            {webhook.description !== '' && <Fact title="Description">{webhook.description}</Fact>}
            {webhook.disabledAt !== null && (
              <Fact title="Disabled">
                <Time at={webhook.disabledAt} /> Its receiver answered 410. Rotate its secret to go on.
              </Fact>
            )}
            {webhook.previousSecretExpiresAt !== null && (
              <Fact title="The secret before counts until">
                <Time at={webhook.previousSecretExpiresAt} />
              </Fact>
            )}
          </dl>
          <section class="panel">
            <h2>Sent to it</h2>
            {deliveries.length === 0 ? (
              <p class="note">Nothing yet. What happens from now on is sent within seconds.</p>
            ) : (
              <ul class="rows">
                {deliveries.map((delivery) => (
                  <DeliveryItem
                    key={delivery.deliveryId}
                    delivery={delivery}
                    redeliver={async () => {
                      await gateway.post(`${path}/deliveries/${delivery.deliveryId}/redeliver`)
                      tell('It is sent again within seconds.')
                      polled.refresh()
                    }}
                  />
                ))}
              </ul>
            )}
            <ShowMore hasMore={hasMore} showMore={showMore} />
          </section>
        </>
      )}
    </SetupView>
  )
}

const tones: Record<Delivery['status'], string> = { pending: 'busy', delivered: 'good', failed: 'bad' }

function DeliveryItem({ delivery, redeliver }: { delivery: Delivery; redeliver: () => Promise<void> }) {
  const { event, status, paymentId, createdAt, nextAttemptAt, attempts } = delivery
  const { run, isBusy, problem } = useAction(redeliver)
  const now = useNow()
  return (
    <li>
      <div class="line">
        <b>{event}</b>
        <span class={`status ${tones[status]}`}>{status}</span>
        {paymentId !== null && <PaymentLink paymentId={paymentId} />}
        <span class="note">
          <Time at={createdAt} />
        </span>
        <button type="button" class="quiet small end" disabled={isBusy} onClick={run}>
          Send again
        </button>
      </div>
      {problem !== undefined && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {status === 'pending' && nextAttemptAt !== null && (
        <p class="note">
          Next attempt {Date.parse(nextAttemptAt) <= now ? 'at once' : <Time at={nextAttemptAt} distance />}
        </p>
      )}
      {attempts.length > 0 && (
        <details>
          <summary>{countOf(attempts.length, 'attempt')}</summary>
          <ol class="attempts">
            {attempts.map(({ attempt, startedAt, endedAt, httpStatus, failure, detail, response }) => (
              <li key={attempt}>
                <Time at={startedAt} />{' '}
                {endedAt === null ? 'under way, or cut short' : (failure ?? `answered ${httpStatus}`)}
                {detail !== null && detail !== '' && <span class="note"> {detail}</span>}
                {response !== null && response !== '' && <span class="note code break"> {response}</span>}
              </li>
            ))}
          </ol>
        </details>
      )}
    </li>
  )
}
