import { useState } from 'preact/hooks'
import type { Home, Provider } from '../../answers.ts'
import { Copyable, Fact, Time } from '../../parts/bits.tsx'
import { Confirm, Dialog } from '../../parts/Dialog.tsx'
import { Meanwhile } from '../../parts/Differences.tsx'
import { Form, SelectField, TextField } from '../../parts/Form.tsx'
import { SetupView, useNotice } from '../../parts/Setup.tsx'
import { useSession } from '../../session.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'
import { useVersioned } from '../../useVersioned.ts'

export function ProviderPage() {
  const { gateway, provider, update } = useSession()
  const [open, setOpen] = useState<{ what: 'edit' | 'confirm' | 'switch'; provider: Provider }>()
  const { notice, tell } = useNotice()
  const close = () => setOpen(undefined)
  const polled = usePolled(async (signal) => {
    const [shown, { mail }] = await Promise.all([
      gateway.get<Provider>(`providers/${provider.providerId}`, signal),
      gateway.get<Home>('', signal),
    ])
    return { shown, isUnconfirmed: mail && shown.contact !== null && shown.contactConfirmedAt === null }
  }, 'provider')
  const done = async (text: string) => {
    close()
    tell(text)
    polled.refresh()
    update(await gateway.get<Provider>('account'))
  }
  return (
    <SetupView page="provider" polled={polled}>
      {({ shown, isUnconfirmed }) => (
        <>
          {notice}
          <section class="panel">
            <dl class="facts">
              <Fact title="Name">{shown.name}</Fact>
              <Fact title="Id">
                <Copyable text={shown.providerId} />
              </Fact>
              <Fact title="Contact">
                {shown.contact ?? '–'}
                {shown.contact !== null && (
                  <span class="note">
                    {' '}
                    {shown.contactConfirmedAt === null ? 'not confirmed: no mail is sent' : 'confirmed'}
                  </span>
                )}
              </Fact>
              <Fact title="Payments are verified">
                {shown.requiresKey ? 'for callers with your key only' : 'for anyone'}
              </Fact>
              <Fact title="Registered">
                <Time at={shown.createdAt} />
              </Fact>
              <Fact title="State">
                {shown.disabledAt === null ? (
                  <span class="status good">on sale</span>
                ) : (
                  <>
                    <span class="status plain">disabled</span> since <Time at={shown.disabledAt} />
                  </>
                )}
              </Fact>
            </dl>
            <div class="buttons">
              <button type="button" onClick={() => setOpen({ what: 'edit', provider: shown })}>
                Change
              </button>
              {isUnconfirmed && (
                <button
                  type="button"
                  class="quiet"
                  onClick={() => setOpen({ what: 'confirm', provider: shown })}
                >
                  Confirm the contact
                </button>
              )}
              <button
                type="button"
                class="quiet"
                onClick={() => setOpen({ what: 'switch', provider: shown })}
              >
                {shown.disabledAt === null ? 'Disable everything' : 'Enable again'}
              </button>
            </div>
          </section>
          {open?.what === 'edit' && <EditDialog {...open} close={close} done={done} />}
          {open?.what === 'confirm' && <ContactDialog {...open} close={close} done={done} />}
          {open?.what === 'switch' && <SwitchDialog {...open} close={close} done={done} />}
        </>
      )}
    </SetupView>
  )
}

type DialogProps = { provider: Provider; close: () => void; done: (text: string) => Promise<void> }

function EditDialog({ provider, close, done }: DialogProps) {
  const { current, meanwhile, patch } = useVersioned(`providers/${provider.providerId}`, provider)
  const form = useForm(
    { name: current.name, contact: current.contact ?? '', requiresKey: String(current.requiresKey) },
    async (_, { name, contact, requiresKey }) => {
      await patch({
        ...(name !== undefined && { name }),
        ...(contact !== undefined && { contact: contact.trim() || null }),
        ...(requiresKey !== undefined && { requiresKey: requiresKey === 'true' }),
      })
      await done('The change is made.')
    },
  )
  return (
    <Dialog title="Change the provider" close={close}>
      <Form form={form} action="Save" cancel={close}>
        <Meanwhile differences={meanwhile} />
        <TextField label="Name" field={form.field('name')} note="As shown to buyers." />
        <TextField
          label="Contact"
          field={form.field('contact')}
          note="Where the operator reaches you. May be empty."
        />
        <SelectField
          label="Payments are verified"
          field={form.field('requiresKey')}
          options={[
            ['false', 'for anyone'],
            ['true', 'for callers with my API key only'],
          ]}
          note="With your key only, your middleware needs its apiKey option."
        />
      </Form>
    </Dialog>
  )
}

/** The code is asked for and given back in one place: it may have been mailed before, and counts for a day. */
function ContactDialog({ provider, close, done }: DialogProps) {
  const { gateway } = useSession()
  const path = `providers/${provider.providerId}/contact`
  const { notice, tell } = useNotice()
  const mailing = useForm({}, async () => {
    await gateway.post(`${path}/code`)
    tell('A code was mailed.')
  })
  const confirming = useForm({ code: '' }, async ({ code }) => {
    await gateway.post(`${path}/confirmation`, { code: code.trim() })
    await done('The contact is confirmed.')
  })
  return (
    <Dialog title="Confirm the contact" close={close}>
      <Form form={mailing} action="Send me a code">
        <p class="break">
          You are told by mail what fails to settle once {provider.contact} has shown that it is yours.
        </p>
      </Form>
      {notice}
      <Form form={confirming} action="Confirm" cancel={close}>
        <TextField
          label="Code"
          field={confirming.field('code')}
          note="It stands in the mail, and counts for 24 hours."
        />
      </Form>
    </Dialog>
  )
}

function SwitchDialog({ provider, close, done }: DialogProps) {
  const { meanwhile, patch } = useVersioned(`providers/${provider.providerId}`, provider)
  const disabled = provider.disabledAt === null
  return (
    <Confirm
      title={disabled ? 'Disable everything?' : 'Sell again?'}
      action={disabled ? 'Disable everything' : 'Enable again'}
      isDanger={disabled}
      close={close}
      run={async () => {
        await patch({ disabled })
        await done(disabled ? 'All your endpoints are disabled.' : 'Your endpoints are on sale again.')
      }}
    >
      <p>
        {disabled
          ? 'Requests to all your endpoints are refused from now on. What was paid settles as usual.'
          : 'Requests are answered with a price again, but for endpoints that are disabled by themselves.'}
      </p>
      <Meanwhile differences={meanwhile} />
    </Confirm>
  )
}
