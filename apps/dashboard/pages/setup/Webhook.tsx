import { countOf } from '../../display/format.ts'
import { useNow } from '../../display/useNow.ts'
import type { Delivery, Webhook } from '../../gateway/answers.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolledPages } from '../../gateway/usePolled.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { Attempts, Badge, Code, Copyable, Facts, Panel, Time } from '../../parts/bits.tsx'
import { PaymentLink } from '../../parts/payments.tsx'
import { Rows } from '../../parts/Table.tsx'
import { listEvents } from './resources.tsx'
import { SetupView } from './Setup.tsx'

/** One webhook, and what was sent to it. */
export function WebhookPage({ webhookId }: { webhookId: string }) {
  const { gateway, path } = useSession()
  const own = `${path}/webhooks/${encodeURIComponent(webhookId)}`
  const polled = usePolledPages(async (asked) => {
    const [webhook, sent] = await Promise.all([
      gateway.get<Webhook>(own, asked.signal),
      gateway.list<Delivery>(`${own}/deliveries`, { limit: 20 }, asked),
    ])
    return { webhook, ...sent }
  }, `webhook ${webhookId}`)
  const redeliver = async ({ deliveryId }: Delivery) => {
    await gateway.post(`${own}/deliveries/${deliveryId}/redeliver`)
    polled.refresh()
  }
  return (
    <SetupView page="webhooks" title="Webhook" polled={polled}>
      {({ webhook, webhook: { previousSecretExpiresAt: previous }, rows, more }) => (
        <>
          <Facts
            isPanel
            of={{
              URL: <Code>{webhook.url}</Code>,
              Id: <Copyable text={webhook.webhookId} />,
              Events: listEvents(webhook.events),
              Description: webhook.description !== '' && webhook.description,
              Disabled: webhook.disabledAt && (
                <>
                  <Time at={webhook.disabledAt} /> Its receiver answered 410. Rotate its secret to go on.
                </>
              ),
              'The secret before counts until': previous && <Time at={previous} />,
            }}
          />
          <Panel title="Sent to it">
            <Rows
              rows={rows}
              keyOf={({ deliveryId }) => deliveryId}
              none="Nothing yet. What happens from now on is sent within seconds."
              more={more}
            >
              {(delivery) => <DeliveryItem delivery={delivery} redeliver={() => redeliver(delivery)} />}
            </Rows>
          </Panel>
        </>
      )}
    </SetupView>
  )
}

const tones = { pending: 'busy', delivered: 'good', failed: 'bad' } as const

function DeliveryItem({ delivery, redeliver }: { delivery: Delivery; redeliver: () => Promise<void> }) {
  const { event, status, paymentId, createdAt, nextAttemptAt, attempts } = delivery
  const now = useNow()
  return (
    <>
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
      <Attempts title={countOf(attempts.length, 'attempt')} of={attempts}>
        {({ startedAt, endedAt, httpStatus, failure, detail, response }) => (
          <>
            <Time at={startedAt} />{' '}
            {endedAt === null ? 'under way, or cut short' : (failure ?? `answered ${httpStatus}`)}
            {detail && <span class="note"> {detail}</span>}
            {response && <span class="note code break"> {response}</span>}
          </>
        )}
      </Attempts>
    </>
  )
}
