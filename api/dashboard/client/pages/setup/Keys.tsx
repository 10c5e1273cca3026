import { useContext, useState } from 'preact/hooks'
import type { ApiKey, IssuedApiKey } from '../../answers.ts'
import { Copyable, Table, Time } from '../../parts/bits.tsx'
import { Confirm, Dialog } from '../../parts/Dialog.tsx'
import { Form, SelectField, TextField } from '../../parts/Form.tsx'
import { SecretDialog } from '../../parts/Secret.tsx'
import { SetupView, useNotice } from '../../parts/Setup.tsx'
import { EndContext, useSession } from '../../session.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'

type Open = { what: 'issue' } | { what: 'revoke'; key: ApiKey } | { what: 'show'; secret: string }

export function KeysPage() {
  const { gateway, provider, keyId: ownKeyId } = useSession()
  const end = useContext(EndContext)
  const path = `providers/${provider.providerId}/keys`
  const [open, setOpen] = useState<Open>()
  const { notice, tell } = useNotice()
  const close = () => setOpen(undefined)
  const polled = usePolled((signal) => gateway.get<{ keys: ApiKey[] }>(path, signal), 'keys')
  const issue = (
    <button type="button" onClick={() => setOpen({ what: 'issue' })}>
      Issue a key
    </button>
  )
  const usable = polled.data?.keys.filter((key) => key.revokedAt === null && key.scope === 'full') ?? []
  const isLast = (key: ApiKey) => usable.length === 1 && usable[0]?.keyId === key.keyId
  return (
    <SetupView page="keys" actions={issue} polled={polled}>
      {({ keys }) => (
        <>
          {notice}
          <section class="panel">
            <Table label="API keys" isStacked head={[['Key'], ['Label'], ['Issued'], ['State'], ['']]}>
              {keys.map((key) => (
                <tr key={key.keyId} class={key.revokedAt === null ? undefined : 'off'}>
                  <td>
                    <Copyable text={key.keyId} />
                  </td>
                  <td class="wrap">
                    <span class="break">{key.label || '–'}</span>
                    {key.keyId === ownKeyId && <span class="note"> you are signed in with it</span>}
                  </td>
                  <td data-title="Issued">
                    <Time at={key.createdAt} />
                  </td>
                  <td>
                    {key.revokedAt === null ? (
                      <span class="status good">{key.scope === 'read' ? 'may read' : 'in force'}</span>
                    ) : (
                      <span class="status plain">revoked</span>
                    )}
                  </td>
                  <td class="actions">
                    {key.revokedAt === null && (
                      <button type="button" class="quiet" onClick={() => setOpen({ what: 'revoke', key })}>
                        Revoke<span class="unseen"> {key.label || key.keyId}</span>
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          </section>
          {open?.what === 'issue' && (
            <IssueDialog path={path} close={close} show={(secret) => setOpen({ what: 'show', secret })} />
          )}
          {open?.what === 'show' && (
            <SecretDialog
              title="Your new API key"
              secret={open.secret}
              note="Store it now: it is not shown again, and the gateway keeps only its hash."
              close={() => {
                close()
                tell('The key is issued.')
                polled.refresh()
              }}
            />
          )}
          {open?.what === 'revoke' && (
            <Confirm
              title={isLast(open.key) ? 'Revoke your last key?' : 'Revoke this key?'}
              action={isLast(open.key) ? 'Revoke it and lock myself out' : 'Revoke it'}
              close={close}
              run={async () => {
                // We do what the user was shown; the gateway says whether this key is the last one.
                await gateway.delete(`${path}/${open.key.keyId}${isLast(open.key) ? '?force=true' : ''}`)
                if (open.key.keyId === ownKeyId)
                  return end('You revoked the API key that you were signed in with.')
                close()
                tell('The key is revoked; it is refused within two seconds.')
                polled.refresh()
              }}
            >
              <p>
                <span class="code">{open.key.keyId}</span> {open.key.label}
              </p>
              <p>
                {isLast(open.key)
                  ? 'There is no other key in force that may change anything. Without one, nobody can change anything here, and only the operator can issue another.'
                  : 'Whoever uses it is refused, for good.'}
              </p>
            </Confirm>
          )}
        </>
      )}
    </SetupView>
  )
}

function IssueDialog(props: { path: string; close: () => void; show: (secret: string) => void }) {
  const { path, close, show } = props
  const { gateway } = useSession()
  const form = useForm({ label: '', scope: 'full' }, async (asked) => {
    show((await gateway.post<IssuedApiKey>(path, asked)).apiKey)
  })
  return (
    <Dialog title="Issue an API key" close={close}>
      <Form form={form} action="Issue it" cancel={close}>
        <TextField
          label="Label"
          field={form.field('label')}
          note="What it is for, such as the server that uses it. May be empty."
        />
        <SelectField
          label="It may"
          field={form.field('scope')}
          options={[
            ['full', 'sell, and change everything here'],
            ['read', 'read payments and statements only'],
          ]}
        />
      </Form>
    </Dialog>
  )
}
