import type { Deliveries, Delivery, Webhook } from '../../answers.ts'
import { countOf } from '../../format.ts'
import { readPages } from '../../gateway.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { Badge, Code, Copyable, Facts, Panel, PaymentLink, ShowMore, Time } from '../../parts/bits.tsx'
import { SetupView } from '../../parts/Setup.tsx'
import { useSession } from '../../session.ts'
import { useNow } from '../../useNow.ts'
import { usePolledPages } from '../../usePolledPages.ts'
import { listEvents } from './resources.tsx'

/** One webhook, and what was sent to it. */
export function WebhookPage({ webhookId }: { webhookId: string }) {
  const { gateway, path } = useSession()
  const own = `${path}/webhooks/${encodeURIComponent(webhookId)}`
  const { polled, showMore } = usePolledPages(async (asked) => {
    const deliveriesOf = ({ deliveries }: Deliveries) => deliveries
    const [webhook, sent] = await Promise.all([
      gateway.get<Webhook>(own, asked.signal),
      readPages(gateway, `${own}/deliveries`, { limit: 20 }, deliveriesOf, asked),
    ])
    return { webhook, ...sent }
  }, `webhook ${webhookId}`)
  const redeliver = async ({ deliveryId }: Delivery) => {
    await gateway.post(`${own}/deliveries/${deliveryId}/redeliver`)
    polled.refresh()
  }
  return (
    <SetupView page="webhooks" title="Webhook" polled={polled}>
      {({ webhook, rows, hasMore }) => (
        <>
          <WebhookFacts webhook={webhook} />
          <Panel title="Sent to it">
            {rows.length === 0 && (
              <p class="note">Nothing yet. What happens from now on is sent within seconds.</p>
            )}
            <ul class="rows">
              {rows.map((delivery) => (
                <DeliveryItem
                  key={delivery.deliveryId}
                  delivery={delivery}
                  redeliver={() => redeliver(delivery)}
                />
              ))}
            </ul>
            <ShowMore hasMore={hasMore} showMore={showMore} />
          </Panel>
        </>
      )}
    </SetupView>
  )
}

function WebhookFacts({ webhook }: { webhook: Webhook }) {
  const { url, webhookId, events, description, disabledAt, previousSecretExpiresAt } = webhook
  return (
    <Facts
      isPanel
      of={{
        URL: <Code>{url}</Code>,
        Id: <Copyable text={webhookId} />,
        Events: listEvents(events),
        Description: description !== '' && description,
        Disabled: disabledAt !== null && (
          <>
            <Time at={disabledAt} /> Its receiver answered 410. Rotate its secret to go on.
          </>
        ),
        'The secret before counts until': previousSecretExpiresAt !== null && (
          <Time at={previousSecretExpiresAt} />
        ),
      }}
    />
  )
}

const tones = { pending: 'busy', delivered: 'good', failed: 'bad' } as const

function DeliveryItem({ delivery, redeliver }: { delivery: Delivery; redeliver: () => Promise<void> }) {
  const { event, status, paymentId, createdAt, nextAttemptAt, attempts } = delivery
  const now = useNow()
  return (
    <li>
      <div class="line">
        <b>{event}</b>
        <Badge tone={tones[status]}>{status}</Badge>
        {paymentId !== null && <PaymentLink paymentId={paymentId} />}
        <span class="note">
          <Time at={createdAt} />
        </span>
        <span class="line end">
          <ActionButton
            label="Send again"
            class="quiet small"
            ask={redeliver}
            said="It is sent again within seconds."
          />
        </span>
      </div>
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
                {detail && <span class="note"> {detail}</span>}
                {response && <span class="note code break"> {response}</span>}
              </li>
            ))}
          </ol>
        </details>
      )}
    </li>
  )
}
