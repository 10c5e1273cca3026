import { countOf, writeCount } from '../../display/format.ts'
import { useNow } from '../../display/useNow.ts'
import type { Delivery, Webhook } from '../../gateway/answers.ts'
import { GatewayError } from '../../gateway/gateway.ts'
import { useSession } from '../../gateway/session.ts'
import { usePolledPages } from '../../gateway/usePolled.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { PaymentLink } from '../../parts/payments.tsx'
import { Rows } from '../../parts/Table.tsx'
import { Attempts, Badge, Code, Copyable, Facts, Panel, Time } from '../../parts/ui.tsx'
import { listEvents } from './resources.tsx'
import { SetupView } from './Setup.tsx'

/** The response of `POST …/webhooks/{webhookId}/test`. */
type TestDelivery = { delivered: boolean; status: number | null; durationMs: number; error?: string | null }

/** Shows one webhook and its deliveries. */
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
  const sendTest = async () => {
    const { delivered, status, durationMs, error } = await gateway.post<TestDelivery>(`${own}/test`)
    polled.refresh()
    if (delivered) return `Delivered: your receiver answered ${status} in ${writeCount(durationMs)} ms.`
    throw new GatewayError(
      0,
      'webhook_test_failed',
      `Not delivered: ${error ?? `your receiver answered ${status}`}.`,
    )
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
                  <Time at={webhook.disabledAt} />. Its receiver answered 410. Rotate its secret to send
                  again.
                </>
              ),
              'Previous secret expires': previous && <Time at={previous} />,
            }}
          />
          <div class="buttons">
            <ActionButton label="Send a test event" class="quiet" ask={sendTest} />
          </div>
          <Panel title="Deliveries">
            <Rows
              rows={rows}
              keyOf={({ deliveryId }) => deliveryId}
              none="No messages yet. New events are sent within seconds."
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
            said="It will be sent again within seconds."
          />
        </span>
      </div>
      {status === 'pending' && nextAttemptAt !== null && (
        <p class="note">
          Next attempt {Date.parse(nextAttemptAt) <= now ? 'now' : <Time at={nextAttemptAt} distance />}
        </p>
      )}
      <Attempts title={countOf(attempts.length, 'attempt')} of={attempts}>
        {({ startedAt, endedAt, httpStatus, failure, detail, response }) => (
          <>
            <Time at={startedAt} />{' '}
            {endedAt === null
              ? 'in progress, or interrupted'
              : (failure?.replaceAll('_', ' ') ?? `answered ${httpStatus}`)}
            {detail && <span class="note"> {detail}</span>}
            {response && <span class="note code break"> {response}</span>}
          </>
        )}
      </Attempts>
    </>
  )
}
