import { useMemo, useState } from 'preact/hooks'
import { href } from '../../display/routing.ts'
import type { Home, ProviderWithKey } from '../../gateway/answers.ts'
import { createGateway } from '../../gateway/gateway.ts'
import { usePolled } from '../../gateway/usePolled.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { ShownSecret } from '../../parts/actions.tsx'
import { Form } from '../../parts/Form.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { providerFields } from '../setup/fields.ts'

/** Helps a new provider to get an API key, and then shows the first steps. */
export function StartPage({ open }: { open: (key: string) => Promise<void> }) {
  const [registered, setRegistered] = useState<ProviderWithKey>()
  if (registered === undefined) return <Register done={setRegistered} />
  const { name, apiKey } = registered
  return (
    <div class="sign-in">
      <h1>Your API key</h1>
      <p>
        <b class="break">{name}</b> is registered. With this key you sign in here, and your server calls the
        gateway.
      </p>
      <div class="panel form">
        <ShownSecret text={apiKey} />
        <ActionButton label="I have stored it" ask={() => open(apiKey)} />
      </div>
    </div>
  )
}

const token = {
  name: 'token',
  label: 'Registration token',
  note: 'Ask the operator of this gateway for it.',
}

function Register({ done }: { done: (registered: ProviderWithKey) => void }) {
  const gateway = useMemo(() => createGateway(), [])
  const polled = usePolled((signal) => gateway.get<Home>('', signal), 'home')
  return (
    <View title="Sell your API" polled={polled}>
      {({ registration }) =>
        registration === 'closed' ? (
          <Empty title="Registration is closed here">
            The operator of this gateway registers providers. With an API key, <a href={href()}>sign in</a>.
          </Empty>
        ) : (
          <section class="panel">
            <Form
              fields={[...providerFields({}), ...(registration === 'token' ? [token] : [])]}
              action="Register"
              send={async ({ name, contact, token }) => {
                const body = { name, ...(contact !== null && { contact }) }
                const headers = token === undefined ? {} : { 'registration-token': String(token) }
                done(await gateway.post<ProviderWithKey>('providers', body, headers))
              }}
            />
          </section>
        )
      }
    </View>
  )
}
