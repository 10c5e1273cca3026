import { useMemo } from 'preact/hooks'
import type { Home, ProviderWithKey } from '../../answers.ts'
import { createGateway } from '../../gateway.ts'
import { Form } from '../../parts/Form.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { usePolled } from '../../usePolled.ts'
import { providerFields } from '../setup/fields.ts'

const token = {
  name: 'token',
  label: 'Registration token',
  note: 'From the operator of this gateway, who decides who may register.',
}

export function Register({ done }: { done: (registered: ProviderWithKey) => void }) {
  const gateway = useMemo(() => createGateway(), [])
  const polled = usePolled((signal) => gateway.get<Home>('', signal), 'home')
  return (
    <View title="Sell your API" polled={polled}>
      {({ registration }) =>
        registration === 'closed' ? (
          <Empty title="Registration is closed here">
            <p>
              The operator of this gateway registers providers. With an API key, <a href={href()}>sign in</a>.
            </p>
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
