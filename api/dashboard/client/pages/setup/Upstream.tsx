import { useState } from 'preact/hooks'
import type { Home, Upstream, UpstreamWithSecret } from '../../answers.ts'
import { GatewayError } from '../../gateway.ts'
import { Copyable, Fact, Time } from '../../parts/bits.tsx'
import { Confirm, Dialog } from '../../parts/Dialog.tsx'
import { Form, TextField } from '../../parts/Form.tsx'
import { SecretDialog } from '../../parts/Secret.tsx'
import { SetupView, useNotice } from '../../parts/Setup.tsx'
import { Empty } from '../../parts/View.tsx'
import { useSession } from '../../session.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'

type Open = { what: 'set' | 'rotate' | 'remove' } | { what: 'show'; secret: string }

/** It seldom changes, and where there is none, the browser notes each 404. */
const everyMs = 60_000

/** The server that the gateway passes paid requests on to, in the place of a middleware. */
export function UpstreamPage() {
  const { gateway, provider } = useSession()
  const path = `providers/${provider.providerId}/upstream`
  const [open, setOpen] = useState<Open>()
  const { notice, tell } = useNotice()
  const close = () => setOpen(undefined)
  const polled = usePolled(
    async (signal) => {
      const [home, upstream] = await Promise.all([
        gateway.get<Home>('', signal),
        gateway.get<Upstream>(path, signal).catch(noneIfUnknown),
      ])
      return { base: `${home.gatewayUrl}/p/${provider.providerId}`, upstream }
    },
    'upstream',
    everyMs,
  )
  const done = (text: string, secret?: string) => {
    setOpen(secret === undefined ? undefined : { what: 'show', secret })
    tell(text)
    polled.refresh()
  }
  const set = (
    <button type="button" onClick={() => setOpen({ what: 'set' })}>
      {polled.data?.upstream ? 'Change its URL' : 'Register your server'}
    </button>
  )
  return (
    <SetupView page="upstream" actions={set} polled={polled}>
      {({ base, upstream }) => (
        <>
          {notice}
          {upstream === null ? (
            <Empty title="No server yet">
              <p>
                Sell without code: buyers call the gateway, and it passes on to your server what they paid
                for. Endpoints whose URL is a path alone, such as /forecast, are sold so.
              </p>
            </Empty>
          ) : (
            <section class="panel">
              <dl class="facts">
                <Fact title="Your server">
                  <span class="code break">{upstream.url}</span>
                </Fact>
                <Fact title="Buyers call">
                  <Copyable text={base} whole />
                </Fact>
                <Fact title="Secret since">
                  <Time at={upstream.secretSince} />
                </Fact>
                {upstream.previousSecretExpiresAt !== null && (
                  <Fact title="The secret before counts until">
                    <Time at={upstream.previousSecretExpiresAt} />
                  </Fact>
                )}
              </dl>
              <div class="buttons">
                <button type="button" class="quiet" onClick={() => setOpen({ what: 'rotate' })}>
                  Rotate its secret
                </button>
                <button type="button" class="quiet" onClick={() => setOpen({ what: 'remove' })}>
                  Remove it
                </button>
              </div>
            </section>
          )}
          {open?.what === 'set' && (
            <UrlDialog path={path} url={upstream?.url ?? ''} close={close} done={done} />
          )}
          {open?.what === 'show' && (
            <SecretDialog
              title="Your server’s secret"
              secret={open.secret}
              note="Requests from the gateway carry it in Service-Upstream-Secret. Refuse what does not, or your API is free for who finds your server. It is not shown again."
              close={close}
            />
          )}
          {open?.what === 'rotate' && (
            <Confirm
              title="Rotate the secret?"
              action="Rotate it"
              isDanger={false}
              close={close}
              run={async () => {
                const { secret } = await gateway.post<UpstreamWithSecret>(`${path}/secret`)
                done('The secret is rotated.', secret)
              }}
            >
              <p>For a day requests carry both secrets, so that your server misses none.</p>
            </Confirm>
          )}
          {open?.what === 'remove' && (
            <Confirm
              title="Remove your server?"
              action="Remove it"
              close={close}
              run={async () => {
                await gateway.delete(path)
                done('The server is removed.')
              }}
            >
              <p>What is sold without code is refused from then on. What was paid settles as usual.</p>
            </Confirm>
          )}
        </>
      )}
    </SetupView>
  )
}

function noneIfUnknown(error: unknown): null {
  if (error instanceof GatewayError && error.code === 'unknown_upstream') return null
  throw error
}

function UrlDialog(props: {
  path: string
  url: string
  close: () => void
  done: (text: string, secret?: string) => void
}) {
  const { path, url, close, done } = props
  const { gateway } = useSession()
  const form = useForm({ url }, async (values) => {
    const { secret } = await gateway.put<UpstreamWithSecret>(path, { url: values.url.trim() })
    done('The server is registered.', secret)
  })
  return (
    <Dialog title="Your server" close={close}>
      <Form form={form} action="Save" cancel={close}>
        <TextField
          label="URL"
          field={form.field('url')}
          inputMode="url"
          placeholder="https://origin.example/v2"
          note="https, and reachable from everywhere. Its path is put before that of a request."
        />
      </Form>
    </Dialog>
  )
}
