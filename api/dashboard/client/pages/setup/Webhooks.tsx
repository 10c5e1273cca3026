import { useState } from 'preact/hooks'
import type { Webhook, WebhookWithSecret } from '../../answers.ts'
import { Table, Time } from '../../parts/bits.tsx'
import { Confirm, Dialog } from '../../parts/Dialog.tsx'
import { ChecksField, Form, TextField } from '../../parts/Form.tsx'
import { SecretDialog } from '../../parts/Secret.tsx'
import { SetupView, useNotice } from '../../parts/Setup.tsx'
import { Empty } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { useSession } from '../../session.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'

type Event = Webhook['events'][number]

/** All that the api knows: the type check compares. */
const eventNames: Record<Event, string> = {
  'payment.settled': 'A payment has settled',
  'payment.reverted': 'A reorg took a settlement back',
  'batch.confirmed': 'A batch is final',
  'settlement.failing': 'A payment failed three times, and is tried again',
  'settlement.failed': 'A payment’s retries are used up',
  'refund.settled': 'A refund has settled',
  'refund.reverted': 'A reorg took a refund back',
  'refund.failing': 'A refund failed three times, and is tried again',
  'refund.failed': 'A refund’s retries are used up',
}
const events = Object.entries(eventNames)

type Open =
  | { what: 'add' }
  | { what: 'delete' | 'rotate'; webhook: Webhook }
  | { what: 'show'; secret: string }

export function WebhooksPage() {
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}/webhooks`
  const [open, setOpen] = useState<Open>()
  const { notice, tell } = useNotice()
  const polled = usePolled((signal) => gateway.get<{ webhooks: Webhook[] }>(path, signal), 'webhooks')
  const close = () => setOpen(undefined)
  const done = (text: string) => {
    close()
    tell(text)
    polled.refresh()
  }
  const show = (secret: string) => setOpen({ what: 'show', secret })
  const add = (
    <button type="button" onClick={() => setOpen({ what: 'add' })}>
      Add a webhook
    </button>
  )
  return (
    <SetupView page="webhooks" actions={add} polled={polled}>
      {({ webhooks }) => (
        <>
          {notice}
          {webhooks.length === 0 ? (
            <Empty title="No webhook yet">
              <p>A webhook is a URL of yours that is told when payments settle or fail.</p>
            </Empty>
          ) : (
            <section class="panel">
              <WebhookTable webhooks={webhooks} open={setOpen} />
            </section>
          )}
          {open?.what === 'add' && <AddDialog path={path} close={close} show={show} />}
          {open?.what === 'show' && (
            <SecretDialog
              title="The webhook’s secret"
              secret={open.secret}
              note="Your receiver checks with it that messages are ours. It is not shown again; a rotation makes a new one."
              close={() => done('The secret is in force.')}
            />
          )}
          {open?.what === 'rotate' && (
            <Confirm
              title="Rotate this webhook’s secret?"
              action="Rotate it"
              isDanger={false}
              close={close}
              run={async () => {
                show(
                  (await gateway.post<WebhookWithSecret>(`${path}/${open.webhook.webhookId}/rotate`)).secret,
                )
              }}
            >
              <p class="code break">{open.webhook.url}</p>
              <p>For 24 hours messages are signed with both secrets, so that your receiver misses none.</p>
            </Confirm>
          )}
          {open?.what === 'delete' && (
            <Confirm
              title="Delete this webhook?"
              action="Delete it"
              close={close}
              run={async () => {
                await gateway.delete(`${path}/${open.webhook.webhookId}`)
                done('The webhook is deleted.')
              }}
            >
              <p class="code break">{open.webhook.url}</p>
              <p>What waits to be sent to it is dropped, and its log goes with it.</p>
            </Confirm>
          )}
        </>
      )}
    </SetupView>
  )
}

function WebhookTable({ webhooks, open }: { webhooks: Webhook[]; open: (what: Open) => void }) {
  return (
    <Table label="Webhooks" isStacked head={[['URL'], ['Events'], ['Since'], ['State'], ['']]}>
      {webhooks.map((webhook) => (
        <tr key={webhook.webhookId} class={webhook.disabledAt === null ? undefined : 'off'}>
          <td class="wrap">
            <a class="code break" href={href('setup', 'webhooks', webhook.webhookId)}>
              {webhook.url}
            </a>
            {webhook.description !== '' && (
              <>
                <br />
                <span class="note break">{webhook.description}</span>
              </>
            )}
          </td>
          <td class="wrap" data-title="Events">
            {webhook.events.length === events.length ? 'all' : webhook.events.join(', ')}
          </td>
          <td data-title="Since">
            <Time at={webhook.createdAt} />
          </td>
          <td>
            {webhook.disabledAt === null ? (
              <span class="status good">in force</span>
            ) : (
              <span class="status bad" title="Its receiver answered 410 Gone. Rotate its secret to go on.">
                disabled
              </span>
            )}
          </td>
          <td class="actions">
            <button type="button" class="quiet" onClick={() => open({ what: 'rotate', webhook })}>
              Rotate<span class="unseen"> the secret of {webhook.url}</span>
            </button>
            <button type="button" class="quiet" onClick={() => open({ what: 'delete', webhook })}>
              Delete<span class="unseen"> {webhook.url}</span>
            </button>
          </td>
        </tr>
      ))}
    </Table>
  )
}

function AddDialog(props: { path: string; close: () => void; show: (secret: string) => void }) {
  const { path, close, show } = props
  const { gateway } = useSession()
  const all = events.map(([name]) => name).join(' ')
  const form = useForm({ url: '', events: all, description: '' }, async ({ url, events, description }) => {
    const body = { url: url.trim(), events: events.split(' ').filter(Boolean), description }
    show((await gateway.post<WebhookWithSecret>(path, body)).secret)
  })
  return (
    <Dialog title="Add a webhook" close={close}>
      <Form form={form} action="Add the webhook" cancel={close}>
        <TextField
          label="URL"
          field={form.field('url')}
          inputMode="url"
          placeholder="https://api.example/tollkeeper"
          note="https, and reachable from everywhere."
        />
        <ChecksField label="Tell it when" field={form.field('events')} options={events} />
        <TextField label="Description" field={form.field('description')} note="May be empty." />
      </Form>
    </Dialog>
  )
}
